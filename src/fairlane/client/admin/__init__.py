"""The groups of `Fairlane`: one module for each noun, `app.jobs` in `jobs.py`, `app.dead_letters` in `dead_letters.py` and so on."""
