"""Jobs: put together from what is kept of them, changed by hand, and why they wait."""
