"""The HTTP API, through its public face."""
