"""The HTTP API: `create_api(app)` makes a FastAPI application that is mounted in yours, or served by `fairlane dashboard`."""

from __future__ import annotations

from fairlane.extras import needed_for

with needed_for("the HTTP API", "dashboard"):
    from fairlane.api.app import create_api as create_api
    from fairlane.api.auth.caller import Person as Person, UsersHook as UsersHook

__all__ = ["Person", "UsersHook", "create_api"]
