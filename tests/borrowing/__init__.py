"""Enqueueing in the caller's own transaction, through every kind of connection a caller may have."""
