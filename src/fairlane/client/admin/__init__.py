"""The method groups of `Fairlane`, one module per noun: `app.jobs` is in `jobs.py`."""
