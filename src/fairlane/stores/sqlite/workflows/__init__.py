"""Workflows on SQLite: nodes, the gates they wait behind, and the figures of both."""
