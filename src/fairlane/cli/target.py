"""Which store and which application a command works with; the migrator and the isolator of that store.

    store         --url, else the application's own, else FAIRLANE_URL and the settings file
    application   --app, else FAIRLANE_APP, else `app` in the settings file

A command works on a store that outlives it, and never falls back to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from fairlane.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane
    from fairlane.client.settings.model import Settings
    from fairlane.stores.base import Migrator
    from fairlane.stores.failover.spool import SpoolDepth
    from fairlane.stores.postgres import PostgresStore
    from fairlane.stores.postgres.migrator import PostgresMigrator
    from fairlane.stores.postgres.roles import PostgresIsolator
    from fairlane.stores.sqlite.driver import Driver

T = TypeVar("T")

FLAG = "option --url"
PATIENCE_S = 10.0
"""How long a migration waits for other writers of the file."""


class At(NamedTuple):
    """The store and application that `--url` and `--app` name."""

    url: str | None = None
    app: str | None = None

    def settings(self) -> Settings:
        """The settings in force. Imports the application only if its own store is used."""
        settings = self._configured()
        reference = self.app or settings.app
        if self.url is None and reference is not None:
            from fairlane.worker.application import load_application

            return load_application(reference).runtime.settings
        return settings

    def application(self) -> Fairlane | None:
        """The application itself, for commands that use its tasks."""
        reference = self.app or self._configured().app
        if reference is None:
            return None
        from fairlane.worker.application import load_application

        return load_application(reference)

    @contextmanager
    def client(self, *, creates: bool | Literal["for_application"] = False) -> Iterator[Fairlane]:
        """A client on that store. A SQLite file that is not there is an error, unless the command `creates`.

        `for_application`: it creates the file of an application that is named. Without one nobody may look there.
        """
        from fairlane.client.app import Fairlane

        settings = self.settings()
        _require_lasting(settings)
        if creates == "for_application" and self.app is None and self._configured().app is None:
            _require_known_file(settings)
        elif not creates:
            _require_file(settings)
        with Fairlane(settings=without_fallback(settings)) as client:
            yield client

    def _configured(self) -> Settings:
        from msgspec.structs import replace

        from fairlane.client.settings.load import load

        if self.url is None:
            return load()
        settings = load({"url": self.url})
        return replace(settings, sources={**settings.sources, "url": FLAG})


def sqlite_file(settings: Settings) -> Path | None:
    """The file of a SQLite store; None for the others."""
    from fairlane.stores.url import sqlite_path, store_named_by

    return Path(sqlite_path(settings.url)) if store_named_by(settings.url) == "sqlite" else None


def without_fallback(settings: Settings) -> Settings:
    # An operator needs the error, not an empty store in memory or a spool.
    from msgspec.structs import replace

    return replace(settings, fallback="refuse", spool=None)


def _require_lasting(settings: Settings) -> None:
    if settings.url.lower().startswith("memory:"):
        raise ConfigError(
            f"url = {settings.url} ({settings.source('url')}) lives in one process and would end with this command; "
            "give --url or FAIRLANE_URL, such as sqlite:///fairlane.db"
        )


def _require_file(settings: Settings) -> None:
    file = sqlite_file(settings)
    if file is not None and not file.exists():
        raise StoreUnavailable(
            "sqlite",
            f"there is no file {file} (url from {settings.source('url')}); the first enqueue or `fairlane migrate up` "
            "creates it, --url or FAIRLANE_URL names another",
        )


def _require_known_file(settings: Settings) -> None:
    file = sqlite_file(settings)
    if file is not None and not file.exists():
        raise ConfigError(
            f"url = {settings.url} ({settings.source('url')}): there is no file {file.absolute()}, and a job in a new "
            "one would never run; name the application with --app module:app, or the file it uses with --url"
        )


def schema_of(settings: Settings) -> Migrator:
    """The migrator of a store. Reading its state changes nothing."""
    from fairlane.stores.url import redacted, store_named_by

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
    raise ConfigError(f"url = {redacted(settings.url)}: a {named} store keeps no schema, there is nothing to migrate")


def _in_file(settings: Settings, file: Path) -> Migrator:
    """Opening a store would create a missing file and its schema, so this checks first."""
    from fairlane.core.chance import SystemChance
    from fairlane.stores.sqlite.borrowed import chosen_library
    from fairlane.stores.sqlite.connection import Database, load
    from fairlane.stores.sqlite.location import located
    from fairlane.stores.sqlite.migrator import SqliteMigrator

    place = located(file)

    def read(work: Callable[[Driver], T], /) -> T:
        connect, _ = load(chosen_library(settings.sqlite_library))
        db = connect(str(place) if place.exists() else ":memory:")
        try:
            return work(db)
        finally:
            db.close()

    def change(work: Callable[[Driver], T], /) -> T:
        database = Database(place, chosen_library(settings.sqlite_library), PATIENCE_S, SystemChance())
        try:
            return database.change_any_schema(work)
        finally:
            database.close()

    return SqliteMigrator(change, read)


def spool_depth(settings: Settings) -> SpoolDepth | None:
    """What waits in the spool on this machine; None: it is in memory, or no application has made it yet."""
    from fairlane.client.store_access import library_of_spool
    from fairlane.stores.failover.spool import FILE, MEMORY, Spool

    if settings.spool in (None, MEMORY) or not (Path(settings.spool) / FILE).exists():
        return None
    spool = Spool(settings.spool, owner=None, library=library_of_spool(settings))
    try:
        return spool.depth()
    finally:
        spool.close()


def isolator_of(settings: Settings) -> PostgresIsolator:
    store = postgres_of(settings, "has no roles; isolation by the database")
    from fairlane.supervisors.contract import CONTRACT

    return store.isolator(CONTRACT)


def contract_of(settings: Settings) -> PostgresMigrator:
    """The migrator of the supervisors' queue contract, beside the store's own."""
    store = postgres_of(settings, "has no SQL functions; the supervisors' queue contract")
    from fairlane.supervisors.contract import CONTRACT

    return store.migrator(CONTRACT)


def postgres_of(settings: Settings, wanted: str) -> PostgresStore:
    from fairlane.stores.url import redacted, store_named_by

    named = store_named_by(settings.url)
    if not named.startswith("postgres"):
        raise ConfigError(f"url = {redacted(settings.url)}: a {named} store {wanted} needs PostgreSQL")
    from fairlane.stores.postgres import PostgresStore

    return PostgresStore(settings.url, schema=settings.schema, statement_timeout_s=settings.statement_timeout_s)
