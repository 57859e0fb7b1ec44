"""The Django application `fairlane`: migrates the store with the database, and checks the backends' options."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class FairlaneConfig(AppConfig):
    """`"fairlane.contrib.django"` in `INSTALLED_APPS`."""

    name = "fairlane.contrib.django"
    label = "fairlane"
    default_auto_field = "django.db.models.BigAutoField"
    verbose_name = "Fairlane"

    def ready(self) -> None:
        from fairlane.contrib.django.project import follow_tests

        post_migrate.connect(_migrate, sender=self, dispatch_uid="fairlane.contrib.django")
        follow_tests()


def _migrate(using: str, verbosity: int = 1, stdout: Any = None, **_: object) -> None:
    """Bring the store's schema up to date with `manage.py migrate`, in test databases too."""
    from fairlane.contrib.django.project import migrate

    for step in migrate(using):
        if verbosity >= 2 and stdout is not None:
            stdout.write(f"  Fairlane: {step}\n")
