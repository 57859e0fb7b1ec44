"""The client through its public face."""
