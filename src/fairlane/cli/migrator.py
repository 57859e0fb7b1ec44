"""The migrator and the isolator of the store that a command works with. Reading the current state changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from fairlane.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from fairlane.client.settings.model import Settings
    from fairlane.stores.base import Migrator
    from fairlane.stores.postgres.roles import PostgresIsolator
    from fairlane.stores.sqlite.driver import Driver

T = TypeVar("T")


def schema_of(settings: Settings) -> Migrator:
    from fairlane.cli.target import sqlite_file
    from fairlane.stores.url import store_named_by

    named = store_named_by(settings.url)
    file = sqlite_file(settings)
    if file is not None:
        return _in_file(settings, file)
    if named.startswith("postgres"):
        from fairlane.stores import open_store

        store = open_store(settings.url, schema=settings.schema, statement_timeout_s=settings.statement_timeout_s)
        migrator = store.migrator()
        assert migrator is not None
        return migrator
    raise ConfigError(f"url = {settings.url}: a {named} store keeps no schema, there is nothing to migrate")


def _in_file(settings: Settings, file: Path) -> Migrator:
    """Opening a store would create a missing file and its schema, so this checks first."""
    from fairlane.core.chance import SystemChance
    from fairlane.stores.sqlite.connection import Database, load
    from fairlane.stores.sqlite.location import located
    from fairlane.stores.sqlite.migrator import SqliteMigrator

    place = located(file)

    def read(work: Callable[[Driver], T], /) -> T:
        connect, _ = load(settings.sqlite_library)
        db = connect(str(place) if place.exists() else ":memory:")
        try:
            return work(db)
        finally:
            db.close()

    def change(work: Callable[[Driver], T], /) -> T:
        database = Database(place, settings.sqlite_library, PATIENCE_S, SystemChance())
        try:
            return database.change_any_schema(work)
        finally:
            database.close()

    return SqliteMigrator(change, read)


def isolator_of(settings: Settings) -> PostgresIsolator:
    from fairlane.stores.url import redacted, store_named_by

    named = store_named_by(settings.url)
    if not named.startswith("postgres"):
        raise ConfigError(
            f"url = {redacted(settings.url)}: a {named} store has no roles; isolation by the database needs PostgreSQL"
        )
    from fairlane.stores.postgres import PostgresStore

    return PostgresStore(
        settings.url, schema=settings.schema, statement_timeout_s=settings.statement_timeout_s
    ).isolator()


PATIENCE_S = 10.0
"""How long a migration waits for other writers of the file."""
