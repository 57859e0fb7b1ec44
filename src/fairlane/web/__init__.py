"""The dashboard: `create_dashboard(app)` creates the HTTP API with pages for people, to mount or to serve."""

from __future__ import annotations

from fairlane.extras import needed_for

with needed_for("the dashboard", "dashboard"):
    from fairlane.web.app import create_dashboard as create_dashboard

__all__ = ["create_dashboard"]
