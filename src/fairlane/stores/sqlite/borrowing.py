"""Working through the caller's own connection, inside the caller's own transaction."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fairlane.errors import SqliteLibraryMismatch, UnsupportedConnection
from fairlane.stores.sqlite.driver import Driver, Library

T = TypeVar("T")

# Changes nothing, but takes the write lock, and makes sqlite3 open the transaction it opens before any change.
_TOUCH = "delete from fairlane_meta where name is null"


def borrowed(on: object, library: Library, place: Path) -> Driver:
    """A driver over the caller's connection, if it is of our library and on our file."""
    connection = _raw(on)
    driver = _driver(connection, on, library)
    rows = driver.execute("pragma database_list")
    theirs = next((file for _, name, file in rows if name == "main"), "")
    if not theirs or not os.path.samefile(theirs, place):
        raise UnsupportedConnection(on, f"a connection to {place}; this one is open on {theirs or 'memory'}")
    return driver


def within(driver: Driver, work: Callable[[], T]) -> T:
    """Run `work` so that it leaves either all of its rows or none, whatever becomes of the caller's transaction.

    Never commits what the caller has begun. On a connection in autocommit mode, where every statement stands for itself, so does this.
    """
    legacy = _begins_by_itself(driver)
    if legacy and not driver.in_transaction():
        driver.execute(_TOUCH)
    driver.execute("savepoint fairlane")
    try:
        driver.execute(_TOUCH)
        answer = work()
    except BaseException:
        if driver.in_transaction():
            driver.execute("rollback to fairlane")
            driver.execute("release fairlane")
        raise
    driver.execute("release fairlane")
    return answer


def _raw(on: object) -> object:
    """The connection itself, out of a SQLAlchemy Session or Connection; SQLAlchemy is not imported for it."""
    sqlalchemy = sys.modules.get("sqlalchemy")
    if sqlalchemy is None:
        return on
    from sqlalchemy.engine import Connection
    from sqlalchemy.orm import Session, scoped_session

    if isinstance(on, Session | scoped_session):
        on = on.connection()
    return on.connection.driver_connection if isinstance(on, Connection) else on


def _driver(connection: object, on: object, library: Library) -> Driver:
    if isinstance(connection, sqlite3.Connection):
        from fairlane.stores.sqlite.stdlib_driver import StdlibDriver

        if library != "stdlib":
            raise SqliteLibraryMismatch("stdlib", library)
        return StdlibDriver(connection)
    apsw = sys.modules.get("apsw")
    if apsw is not None and isinstance(connection, apsw.Connection):
        from fairlane.stores.sqlite.apsw_driver import ApswDriver

        if library != "apsw":
            raise SqliteLibraryMismatch("apsw", library)
        return ApswDriver(connection)
    ours = "an apsw.Connection" if library == "apsw" else "a sqlite3.Connection, or SQLAlchemy over one,"
    raise UnsupportedConnection(on, f"{ours} to its own file")


def _begins_by_itself(driver: Driver) -> bool:
    """sqlite3 opens a transaction before the first change, unless told not to."""
    connection = getattr(driver, "connection", None)
    return isinstance(connection, sqlite3.Connection) and connection.isolation_level is not None
