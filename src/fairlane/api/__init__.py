"""The HTTP API: `create_api(app)` makes a FastAPI application that is mounted in yours, or served by `fairlane dashboard`."""

from __future__ import annotations

from fairlane.api.access.caller import Person as Person, UsersHook as UsersHook
from fairlane.api.app import create_api as create_api

__all__ = ["Person", "UsersHook", "create_api"]
