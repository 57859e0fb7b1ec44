"""A small shop, for trying a deployment before your own application is in it."""
