"""Fairlane beside the raw limits of what it stands on, as ratios in one run. `make bench`, or `python -m bench NAME …`."""
