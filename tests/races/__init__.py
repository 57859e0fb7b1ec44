"""Real processes on one store at once: who wins, never both."""
