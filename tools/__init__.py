"""What keeps the project true to itself: generated docs, the ledger, links."""
