"""Stores write the facts: SQLite (in a file or in memory), PostgreSQL. `open_store` makes the one a URL names."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal

from fairlane.errors import ConfigError
from fairlane.extras import needed_for
from fairlane.stores.url import redacted, sqlite_path, store_named_by

if TYPE_CHECKING:
    from fairlane.core.clock import Clock
    from fairlane.stores.base import Store

SqliteLibrary = Literal["apsw", "stdlib"]


class StoreMissing(ConfigError):
    """A URL names a store that this version does not have."""

    code = "config"


def open_store(
    url: str,
    *,
    clock: Clock | None = None,
    schema: str = "fairlane",
    sqlite_library: SqliteLibrary = "apsw",
    statement_timeout_s: float = 10.0,
) -> Store:
    """Make the store that `url` names. Only the chosen store's driver is imported."""
    named = store_named_by(url)
    given: dict[str, Any] = {} if clock is None else {"clock": clock}
    if named == "memory":
        memory = _load("sqlite", "MemoryStore")
        return memory(library=sqlite_library, **given)  # type: ignore[no-any-return]
    if named == "sqlite":
        sqlite = _load("sqlite", "SqliteStore")
        return sqlite(sqlite_path(url), library=sqlite_library, **given)  # type: ignore[no-any-return]
    if named == "postgresql":
        with needed_for(f'url = "{redacted(url)}"', "postgres"):
            postgres = _load("postgres", "PostgresStore")
        return postgres(url, schema=schema, statement_timeout_s=statement_timeout_s)  # type: ignore[no-any-return]
    raise StoreMissing(
        f'url = "{redacted(url)}": the Redis store comes in a later version; use postgresql://, sqlite:/// or memory://'
    )


def _load(module: str, name: str) -> Any:
    """The store's class, imported by one of our own names, never by one found in data."""
    return getattr(importlib.import_module(f"fairlane.stores.{module}"), name)
