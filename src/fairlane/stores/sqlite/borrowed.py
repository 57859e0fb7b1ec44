"""Runs operations on the caller's own connection, inside the caller's own transaction."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from fairlane.errors import SqliteLibraryMismatch, StoreError, StoreUnavailable, UnsupportedConnection
from fairlane.stores.migrations import require
from fairlane.stores.sqlite.connection import load
from fairlane.stores.sqlite.driver import Driver, Library
from fairlane.stores.sqlite.journal import is_wal_safe, keep_rollback_journal
from fairlane.stores.sqlite.migrator import MIGRATIONS, current_state, migrate

if TYPE_CHECKING:
    import apsw

    from fairlane.stores import SqliteLibrary

T = TypeVar("T")

# Changes nothing, but takes the write lock, and makes sqlite3 open the transaction it opens before any change.
_TOUCH = "delete from fairlane_meta where name is null"
# Only the schema is read for it, and no transaction begins.
_EXPLAIN = f"explain {_TOUCH}"


USERS_OF_STDLIB = ("sqlalchemy.dialects.sqlite.pysqlite", "django.db.backends.sqlite3.base", "aiosqlite")
"""Modules that are loaded only where an application opens SQLite files through the standard library."""


def chosen_library(library: SqliteLibrary, on: object | None = None) -> Library:
    """The library of `auto`: that of the caller's connection, else the one the application is known to use, else apsw.

    A worker whose tasks open the file through SQLAlchemy or Django has to use their library, although it is given no
    connection of theirs.
    """
    if library != "auto":
        return library
    theirs = None if on is None else _library_of(_raw(on))
    return theirs or ("stdlib" if any(module in sys.modules for module in USERS_OF_STDLIB) else "apsw")


def borrow(on: object, library: Library, place: Path, work: Callable[[Driver], T], *, is_ready: bool = True) -> T:
    """Run `work` on the caller's connection, if it is of our library and on our file.

    It leaves all of its rows or none, and never commits what the caller has begun. On a connection in autocommit mode,
    where every statement stands for itself, so does this. Nothing is tried twice: waiting is the business of the
    connection's owner. Unless the schema is known to be there (`is_ready`), a file without one gets it in the caller's
    transaction: a connection of our own would wait for the caller, who waits for us.
    """
    with _driver_of(on, library) as driver:
        return _within(_on_our_file(driver, on, place), work, is_ready=is_ready)


def check_connection(on: object, library: Library, place: Path) -> None:
    """Raise what `borrow` would raise about the connection itself; nothing is changed."""
    with _driver_of(on, library) as driver:
        _on_our_file(driver, on, place)


@contextmanager
def _driver_of(on: object, library: Library) -> Iterator[Driver]:
    connection = _raw(on)
    theirs = _library_of(connection)
    if theirs is None:
        ours = "an apsw.Connection" if library == "apsw" else "a sqlite3.Connection, or SQLAlchemy or Django over one,"
        raise UnsupportedConnection(on, f"{ours} to its own file")
    if theirs != library:
        raise SqliteLibraryMismatch(theirs, library)
    if not isinstance(connection, sqlite3.Connection):
        from fairlane.stores.sqlite.apsw_driver import ApswDriver

        yield ApswDriver(cast("apsw.Connection", connection))
        return
    from fairlane.stores.sqlite.stdlib_driver import StdlibDriver

    text_factory, connection.text_factory = connection.text_factory, str
    try:
        yield StdlibDriver(connection)
    finally:
        connection.text_factory = text_factory


def _library_of(connection: object) -> Library | None:
    if isinstance(connection, sqlite3.Connection):
        return "stdlib"
    loaded = sys.modules.get("apsw")
    return "apsw" if loaded is not None and isinstance(connection, loaded.Connection) else None


def _raw(on: object) -> object:
    """The connection itself, out of a SQLAlchemy Session or Connection; SQLAlchemy is not imported for it."""
    if "sqlalchemy" not in sys.modules:
        return on
    from sqlalchemy.engine import Connection
    from sqlalchemy.orm import Session, scoped_session

    if isinstance(on, Session | scoped_session):
        on = on.connection()
    if not isinstance(on, Connection):
        return on
    # Any statement: SQLAlchemy commits only what it knows was begun, and it would not know of ours.
    on.exec_driver_sql("select 1")
    return on.connection.driver_connection


def _on_our_file(driver: Driver, on: object, place: Path) -> Driver:
    rows = driver.execute("pragma database_list")
    theirs = next((file for _, name, file in rows if name == "main"), "")
    if not theirs or not _is_same(theirs, place):
        raise UnsupportedConnection(on, f"a connection to {place}; this one is open on {theirs or 'no file'}")
    return driver


def _is_same(theirs: str, place: Path) -> bool:
    """Although neither of them may be there yet: SQLite makes a file when it is first written."""
    if os.path.exists(theirs) and place.exists():
        return os.path.samefile(theirs, place)
    return os.path.realpath(theirs) == str(place)


def _within(driver: Driver, work: Callable[[Driver], T], *, is_ready: bool) -> T:
    is_new = not is_ready and not _has_tables(driver)
    if _begins_by_itself(driver) and not driver.in_transaction():
        driver.execute("begin immediate" if is_new else _TOUCH)
    driver.execute("savepoint fairlane")
    try:
        if is_new:
            migrate(driver)
            if not is_wal_safe(load(driver.library)[1]):
                keep_rollback_journal(driver)
        # The write lock first: read before it, and another's commit in between would fail our first write.
        driver.execute(_TOUCH)
        if not is_ready:
            require(current_state(driver), MIGRATIONS.needed)
        answer = work(driver)
    except BaseException:
        if driver.in_transaction():
            driver.execute("rollback to fairlane")
            driver.execute("release fairlane")
        raise
    driver.execute("release fairlane")
    return answer


def _has_tables(driver: Driver) -> bool:
    """Whether the schema is there, without a read before the write lock where it is."""
    try:
        driver.execute(_EXPLAIN)
    except StoreUnavailable:
        raise
    except StoreError:
        return current_state(driver).expanded > 0
    return True


def _begins_by_itself(driver: Driver) -> bool:
    """sqlite3 opens a transaction before the first change, unless set not to."""
    connection = getattr(driver, "connection", None)
    if not isinstance(connection, sqlite3.Connection) or connection.isolation_level is None:
        return False
    # Python 3.12 added another way to say it; -1 means: as ever.
    return getattr(connection, "autocommit", -1) == -1
