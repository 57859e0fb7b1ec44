"""Cron lines and schedules as values."""
