"""Enqueueing on the caller's own connection: in its transaction, never committing, never trying again.

psycopg and asyncpg connections, and SQLAlchemy's Connection, Session and async twins over either.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import psycopg

from fairlane.errors import UnsupportedConnection
from fairlane.stores.postgres.call import Rows
from fairlane.stores.postgres.connecting import Lost, translated, unreachable

EXPECTED = "a psycopg, asyncpg or SQLAlchemy connection or session on this database"


def run_on(conn: object, sql: bytes, params: tuple[object, ...]) -> Rows:
    """Run on a connection of the blocking kind."""
    if isinstance(conn, psycopg.Connection):
        try:
            with conn.cursor(binary=False) as cursor:
                cursor.row_factory = psycopg.rows.tuple_row
                return cursor.execute(sql, params).fetchall()
        except psycopg.Error as error:
            raise _final(error) from error
    if _is_sqlalchemy(conn, "Session", "scoped_session"):
        return _through_sqlalchemy(conn.connection(), sql, params)  # type: ignore[attr-defined]
    if _is_sqlalchemy(conn, "Connection"):
        return _through_sqlalchemy(conn, sql, params)
    if _needs_await(conn):
        raise UnsupportedConnection(conn, f"{EXPECTED}; this one is asynchronous: use aenqueue")
    raise UnsupportedConnection(conn, EXPECTED)


async def run_on_async(conn: object, sql: bytes, params: tuple[object, ...]) -> Rows:
    """Run on a connection of either kind; a blocking one is used in a thread."""
    if isinstance(conn, psycopg.AsyncConnection):
        try:
            async with conn.cursor(binary=False) as cursor:
                cursor.row_factory = psycopg.rows.tuple_row
                await cursor.execute(sql, params)
                return await cursor.fetchall()
        except psycopg.Error as error:
            raise _final(error) from error
    if _is_asyncpg(conn):
        records = await conn.fetch(_numbered(sql), *params)  # type: ignore[attr-defined]
        return [tuple(record) for record in records]
    if _is_sqlalchemy(conn, "AsyncSession", "async_scoped_session"):
        connection = conn.connection()  # type: ignore[attr-defined]
        return await _through_async_sqlalchemy(await connection, sql, params)
    if _is_sqlalchemy(conn, "AsyncConnection"):
        return await _through_async_sqlalchemy(conn, sql, params)
    return await asyncio.to_thread(run_on, conn, sql, params)


def _final(error: psycopg.Error) -> Exception:
    found = translated(error)
    return found if not isinstance(found, Lost) else unreachable(error)


def _is_sqlalchemy(conn: object, *names: str) -> bool:
    return any(base.__module__.startswith("sqlalchemy.") and base.__name__ in names for base in type(conn).__mro__)


def _is_asyncpg(conn: object) -> bool:
    return any(
        base.__module__.startswith("asyncpg.") and base.__name__ in ("Connection", "PoolConnectionProxy")
        for base in type(conn).__mro__
    )


def _needs_await(conn: object) -> bool:
    return (
        isinstance(conn, psycopg.AsyncConnection)
        or _is_asyncpg(conn)
        or _is_sqlalchemy(conn, "AsyncSession", "AsyncConnection", "async_scoped_session")
        or inspect.iscoroutinefunction(getattr(conn, "execute", None))
    )


def _through_sqlalchemy(connection: Any, sql: bytes, params: tuple[object, ...]) -> Rows:
    dialect = connection.dialect
    if dialect.name != "postgresql":
        raise UnsupportedConnection(connection, f"{EXPECTED}; this one is on {dialect.name}")
    numbered = dialect.paramstyle in ("numeric_dollar", "numeric")
    text = _numbered(sql) if numbered else sql.decode()
    return [tuple(row) for row in connection.exec_driver_sql(text, params)]


async def _through_async_sqlalchemy(connection: Any, sql: bytes, params: tuple[object, ...]) -> Rows:
    return await connection.run_sync(_through_sqlalchemy, sql, params)  # type: ignore[no-any-return]


def _numbered(sql: bytes) -> str:
    """`%s` as `$1`, `$2`, … for drivers that count."""
    first, *rest = sql.decode().split("%s")
    return first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))
