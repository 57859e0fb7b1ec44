"""Jobs: read, listed, explained, and changed by hand."""
