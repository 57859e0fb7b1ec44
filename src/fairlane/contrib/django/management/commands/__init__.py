"""`manage.py fairlane …`."""
