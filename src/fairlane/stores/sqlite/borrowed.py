"""Runs operations on the caller's own connection, inside the caller's own transaction."""

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


def borrow(on: object, library: Library, place: Path, work: Callable[[Driver], T]) -> T:
    """Run `work` on the caller's connection, if it is of our library and on our file.

    It leaves all of its rows or none, and never commits what the caller has begun. On a connection in autocommit mode,
    where every statement stands for itself, so does this. Nothing is tried twice: waiting is the business of the
    connection's owner.
    """
    connection = _raw(on)
    if isinstance(connection, sqlite3.Connection) and library == "stdlib":
        from fairlane.stores.sqlite.stdlib_driver import StdlibDriver

        text_factory, connection.text_factory = connection.text_factory, str
        try:
            return _within(_on_our_file(StdlibDriver(connection), on, place), work)
        finally:
            connection.text_factory = text_factory
    apsw = sys.modules.get("apsw")
    if apsw is not None and isinstance(connection, apsw.Connection) and library == "apsw":
        from fairlane.stores.sqlite.apsw_driver import ApswDriver

        return _within(_on_our_file(ApswDriver(connection), on, place), work)
    if isinstance(connection, sqlite3.Connection):
        raise SqliteLibraryMismatch("stdlib", library)
    if apsw is not None and isinstance(connection, apsw.Connection):
        raise SqliteLibraryMismatch("apsw", library)
    ours = "an apsw.Connection" if library == "apsw" else "a sqlite3.Connection, or SQLAlchemy over one,"
    raise UnsupportedConnection(on, f"{ours} to its own file")


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
    if not theirs or not os.path.samefile(theirs, place):
        raise UnsupportedConnection(on, f"a connection to {place}; this one is open on {theirs or 'no file'}")
    return driver


def _within(driver: Driver, work: Callable[[Driver], T]) -> T:
    if _begins_by_itself(driver) and not driver.in_transaction():
        driver.execute(_TOUCH)
    driver.execute("savepoint fairlane")
    try:
        # The write lock first: read before it, and another's commit in between would fail our first write.
        driver.execute(_TOUCH)
        answer = work(driver)
    except BaseException:
        if driver.in_transaction():
            driver.execute("rollback to fairlane")
            driver.execute("release fairlane")
        raise
    driver.execute("release fairlane")
    return answer


def _begins_by_itself(driver: Driver) -> bool:
    """sqlite3 opens a transaction before the first change, unless set not to."""
    connection = getattr(driver, "connection", None)
    if not isinstance(connection, sqlite3.Connection) or connection.isolation_level is None:
        return False
    # Python 3.12 added another way to say it; -1 means: as ever.
    return getattr(connection, "autocommit", -1) == -1
