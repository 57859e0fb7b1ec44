"""What an application calls: enqueue, inspect, act. Sync and async."""
