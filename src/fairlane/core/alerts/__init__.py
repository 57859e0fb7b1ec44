"""Alert rules as values, and when an alert fires and ends."""
