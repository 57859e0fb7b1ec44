"""Fairlane as the task backend of a Django project, on the project's own database.

    INSTALLED_APPS = [..., "fairlane.contrib.django"]
    TASKS = {"default": {"BACKEND": "fairlane.contrib.django.FairlaneBackend"}}

Serves `django.tasks` of Django 6, and Django 5.2 through the package django-tasks. The guide: docs/guides/django.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fairlane.extras import needed_for

if TYPE_CHECKING:
    from fairlane.contrib.django.backend import FairlaneBackend as FairlaneBackend
    from fairlane.contrib.django.project import application as application, job_options as job_options
    from fairlane.contrib.django.users import person as person, with_dashboard as with_dashboard

_HOME_OF = {
    "FairlaneBackend": "backend",
    "application": "project",
    "job_options": "project",
    "person": "users",
    "with_dashboard": "users",
}
__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - type checkers read the imports above


def __getattr__(name: str) -> Any:
    """Names are loaded at first use: Django imports this package before its own applications are ready."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needed_for(__name__, "django"):
        importlib.import_module("django")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
