"""The contract of every operation, on every store, sync and async."""
