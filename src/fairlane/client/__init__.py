"""The interface for applications: enqueue, inspect and act. Sync and async."""
