"""The HTTP API: `create_api(app)` creates a FastAPI application to mount, or for `fairlane dashboard` to serve."""

from __future__ import annotations

from fairlane.extras import needed_for

with needed_for("the HTTP API", "dashboard"):
    from fairlane.api.app import create_api as create_api
    from fairlane.api.auth.admission import Person as Person, UsersHook as UsersHook

__all__ = ["Person", "UsersHook", "create_api"]
