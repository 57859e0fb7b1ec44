"""A Django project that is set up once in a process, on a SQLite file and a PostgreSQL database of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.stores import Ground, ground

__all__ = ["ground"]


@pytest.fixture(scope="session")
def site(ground: Ground) -> Iterator[None]:
    """Django, with both databases migrated by its own command."""
    os.environ["SITE_SQLITE"] = str(ground.directory / "site.sqlite3")
    os.environ["SITE_POSTGRES"] = ground.server.create_database("django_site")
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.contrib.django_site.settings"
    import django
    from django.core.management import call_command

    django.setup()
    for database in ("default", "postgres"):
        call_command("migrate", database=database, run_syncdb=True, verbosity=0)
    yield
    from django.db import connections

    from fairlane.contrib.django.project import project

    project.close()
    connections.close_all()


class Shop:
    """The project on one of its databases."""

    def __init__(self, alias: str) -> None:
        from fairlane.contrib.django import application
        from tests.contrib.django_site import tasks

        self.alias, self.app, self._tasks = alias, application(alias), tasks

    def task(self, name: str) -> Any:
        return getattr(self._tasks, name).using(backend=self.alias)

    @property
    def orders(self) -> Any:
        from tests.contrib.django_site.models import Order

        return Order.objects.using(self.alias)

    def run(self) -> None:
        from fairlane.testing import run_due

        run_due(self.app)

    def purge(self) -> None:
        self.app.jobs.purge()
        self.orders.all().delete()
        self._tasks.ran.clear()


@pytest.fixture(params=["default", "postgres"])
def shop(site: None, request: pytest.FixtureRequest) -> Iterator[Shop]:
    found = Shop(request.param)
    found.purge()
    yield found
    from django.db import connections

    connections.close_all()
