"""Waits and runs: claim, execute, renew, settle. The only place with loops and processes."""
