"""Stores write the facts: SQLite (file or memory), PostgreSQL, Redis. `open_store` makes the one a URL names."""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any, Literal

from fairlane.errors import FairlaneError
from fairlane.extras import needed_for
from fairlane.stores.url import redacted, sqlite_path, store_named_by

if TYPE_CHECKING:
    from fairlane.core.clock import Clock
    from fairlane.stores.base import Store

SqliteLibrary = Literal["auto", "apsw", "stdlib"]


def open_store(
    url: str,
    *,
    clock: Clock | None = None,
    schema: str = "fairlane",
    sqlite_library: SqliteLibrary = "auto",
    statement_timeout_s: float = 10.0,
    key_prefix: str = "fairlane",
    health_check_timeout_s: float = 2.0,
    on: object | None = None,
) -> Store:
    """Make the store that `url` names. Only the chosen store's driver is imported.

    `on` is the caller's connection that the first operation runs on: it chooses the SQLite library (`auto`), and
    nothing of the file is touched on any other connection.
    """
    named = store_named_by(url)
    given: dict[str, Any] = {} if clock is None else {"clock": clock}
    if named == "memory":
        memory = _load("sqlite", "MemoryStore")
        return memory(library="apsw" if sqlite_library == "auto" else sqlite_library, **given)  # type: ignore[no-any-return]
    if named == "sqlite":
        sqlite = _load("sqlite", "SqliteStore")
        return sqlite(sqlite_path(url), library=sqlite_library, on=on, **given)  # type: ignore[no-any-return]
    if named == "postgresql":
        with needed_for(f'url = "{redacted(url)}"', "postgres"):
            postgres = _load("postgres", "PostgresStore")
        return postgres(url, schema=schema, statement_timeout_s=statement_timeout_s)  # type: ignore[no-any-return]
    with needed_for(f'url = "{redacted(url)}"', "redis"):
        redis = _load("redis", "RedisStore")
    return redis(  # type: ignore[no-any-return]
        url, key_prefix=key_prefix, connect_timeout_s=health_check_timeout_s, answer_within_s=statement_timeout_s
    )


def import_store(url: str) -> None:
    """Import what `open_store` will need; its errors are left to that."""
    names = {"postgresql": ("postgres", "PostgresStore"), "redis": ("redis", "RedisStore")}
    with contextlib.suppress(FairlaneError, ImportError):
        _load(*names.get(store_named_by(url), ("sqlite", "SqliteStore")))


def _load(module: str, name: str) -> Any:
    """The store's class, imported by one of our own names, never by one found in data."""
    return getattr(importlib.import_module(f"fairlane.stores.{module}"), name)
