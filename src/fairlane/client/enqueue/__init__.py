"""Turns a call of a task into a durable job."""
