"""Servers killed, connections cut and frozen, rows nobody should have written: nothing acknowledged is lost or done twice."""
