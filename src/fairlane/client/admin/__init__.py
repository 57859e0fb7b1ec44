"""The groups of verbs of `Fairlane`, one module for each noun: `app.jobs` is in `jobs.py`."""
