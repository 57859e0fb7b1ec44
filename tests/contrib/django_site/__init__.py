"""A Django project with one application, on SQLite and PostgreSQL: Fairlane keeps its tasks in both."""
