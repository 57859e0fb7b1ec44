"""The schema of a store, looked at without changing it: what is there, what is missing, and the script that makes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fairlane.errors import ConfigError, SchemaOutOfDate

if TYPE_CHECKING:
    from fairlane.client.settings.model import Settings
    from fairlane.stores.base import Migration, Store

_SET_VERSION = "insert or replace into fairlane_meta values ('schema_version', {});"


class Schema(Protocol):
    needed: int

    def current(self) -> int:
        """0: there is none."""
        ...

    def pending(self) -> tuple[Migration, ...]: ...

    def up(self) -> tuple[Migration, ...]:
        """Run what is pending; returns it."""
        ...

    def script(self) -> str:
        """Every migration as SQL to run by hand, made without a connection."""
        ...


def schema_of(settings: Settings) -> Schema:
    from fairlane.cli.target import sqlite_file
    from fairlane.stores.url import store_named_by

    named = store_named_by(settings.url)
    file = sqlite_file(settings)
    if file is not None:
        return SqliteSchema(settings, file)
    if named.startswith("postgres"):
        return PostgresSchema(settings)
    raise ConfigError(f"url = {settings.url}: a {named} store keeps no schema, there is nothing to migrate")


class SqliteSchema:
    """Opening a store would make a missing file and its schema: this looks first."""

    def __init__(self, settings: Settings, file: Path) -> None:
        from fairlane.stores.sqlite.location import located
        from fairlane.stores.sqlite.migrating import MIGRATIONS, NEEDED

        self._settings, self._file, self._steps, self.needed = settings, located(file), MIGRATIONS, NEEDED

    def current(self) -> int:
        if not self._file.exists():
            return 0
        from fairlane.stores.sqlite.connection import load
        from fairlane.stores.sqlite.migrating import current_version

        connect, _ = load(self._settings.sqlite_library)
        db = connect(str(self._file))
        try:
            return current_version(db)
        finally:
            db.close()

    def pending(self) -> tuple[Migration, ...]:
        current = self.current()
        return tuple(step for step in self._steps if step.version > current)

    def up(self) -> tuple[Migration, ...]:
        pending = self.pending()
        if self.current() > self.needed:
            raise SchemaOutOfDate(self.current(), self.needed)
        store = _opened(self._settings)
        try:
            migrator = store.migrator()
            assert migrator is not None
            migrator.up()
        finally:
            store.close()
        return pending

    def script(self) -> str:
        return "\n".join(
            f"-- Fairlane schema, version {step.version}: {step.name} ({step.phase})\n"
            f"begin immediate;\n{step.sql.strip()}\n"
            f"{_SET_VERSION.format(step.version)}\ncommit;\n"
            for step in self._steps
        )


class PostgresSchema:
    def __init__(self, settings: Settings) -> None:
        store = _opened(settings)
        migrator = store.migrator()
        assert migrator is not None
        self._migrator, self._schema, self.needed = migrator, settings.schema, migrator.needed

    def current(self) -> int:
        return self._migrator.current()

    def pending(self) -> tuple[Migration, ...]:
        return self._migrator.pending()

    def up(self) -> tuple[Migration, ...]:
        return self._migrator.up()

    def script(self) -> str:
        from fairlane.stores.postgres.migrator import migrations, script

        return "\n".join(script(migration, self._schema) for migration in migrations())


def _opened(settings: Settings) -> Store:
    from fairlane.stores import open_store

    return open_store(
        settings.url,
        schema=settings.schema,
        sqlite_library=settings.sqlite_library,
        statement_timeout_s=settings.statement_timeout_s,
    )
