"""Limits on SQLite: those in force, and what they leave to be enqueued and claimed."""
