"""Enqueues, and sets the tenant, on the caller's own connection: in its transaction, never committing, never retrying.

Takes psycopg and asyncpg connections, and SQLAlchemy's Connection, Session and async twins over either; the client
takes Django's apart.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg.rows import tuple_row

from fairlane.core.tracebacks import without_frames
from fairlane.errors import (
    FairlaneError,
    NoTransaction,
    PermissionDenied,
    SchemaOutOfDate,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    UnsupportedConnection,
)
from fairlane.stores.postgres.calls import Rows
from fairlane.stores.postgres.errors import STORE, translated
from fairlane.stores.postgres.schema import CORE
from fairlane.stores.retries import Again, Lost

EXPECTED = "a psycopg, asyncpg, SQLAlchemy or Django connection or session on this database"

Params = tuple[object, ...]
Send = Callable[[str, Params], Rows]
AsyncSend = Callable[[str, Params], Awaitable[Rows]]

# Calling a function that is missing, or not granted to this role, would abort the caller's transaction: check first.
_LOOK = (
    "select count(distinct p.proname) = 5, "
    "bool_and(has_schema_privilege(n.oid, 'usage') and has_function_privilege(p.oid, 'execute')), current_user::text "
    "from pg_catalog.pg_namespace n join pg_catalog.pg_proc p on p.pronamespace = n.oid "
    "where n.nspname = %s::text "
    "and p.proname in ('enqueue_v1', 'enqueue_one_v1', 'enqueue_alike_v1', 'emit_v1', 'enqueue_workflow_v1')"
)


class BorrowedConnections:
    """Sends calls through callers' connections."""

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._looked: WeakSet[Any] = WeakSet()
        """Connections on which the schema was found: each is asked once."""

    def run(self, conn: object, sql: bytes, params: Params) -> Rows:
        """Run on a connection of the blocking kind."""
        try:
            send, owner = blocking(conn)
            if owner not in self._looked:
                self._found(owner, send(_LOOK, (self._schema,)))
            return send(sql.decode(), params)
        except driver_errors() as error:
            raise caller_error(error) from without_frames(error)

    async def arun(self, conn: object, sql: bytes, params: Params) -> Rows:
        """Run on a connection of either kind; a blocking one is used in a thread."""
        try:
            send, owner = await awaited(conn)
            if send is None:
                return await asyncio.to_thread(self.run, conn, sql, params)
            if owner not in self._looked:
                self._found(owner, await send(_LOOK, (self._schema,)))
            return await send(sql.decode(), params)
        except driver_errors() as error:
            raise caller_error(error) from without_frames(error)

    def _found(self, owner: object, rows: Rows) -> None:
        is_there, is_allowed, role = rows[0]
        if not is_there:
            why = f'schema "{self._schema}" is not in the database of this connection'
            raise SchemaOutOfDate(0, CORE.migrations.needed.expanded, why=why)
        if not is_allowed:
            raise StoreUnavailable(
                STORE, f'the role "{role}" of this connection may not enqueue; grant it the schema and its functions'
            )
        self._looked.add(owner)


def blocking(conn: object) -> tuple[Send, object]:
    """How to send through a connection, and the driver's own connection behind it."""
    if isinstance(conn, psycopg.Connection):
        return _through_psycopg(conn), conn
    if _is_sqlalchemy(conn, "Session", "scoped_session"):
        return _through_sqlalchemy(conn.connection())  # type: ignore[attr-defined]
    if _is_sqlalchemy(conn, "Connection"):
        return _through_sqlalchemy(conn)
    if _needs_await(conn):
        raise UnsupportedConnection(conn, f"{EXPECTED}; this one is asynchronous: use aenqueue")
    raise UnsupportedConnection(conn, EXPECTED)


async def awaited(conn: object) -> tuple[AsyncSend | None, object]:
    if isinstance(conn, psycopg.AsyncConnection):
        return _through_async_psycopg(conn), conn
    if _is_asyncpg(conn):
        return _through_asyncpg(conn)
    if _is_sqlalchemy(conn, "AsyncSession", "async_scoped_session"):
        return await _through_async_sqlalchemy(await conn.connection())  # type: ignore[attr-defined]
    if _is_sqlalchemy(conn, "AsyncConnection"):
        return await _through_async_sqlalchemy(conn)
    return None, None


# A cursor class, row factory or binary mode set on the caller's connection is for the caller's rows, not for ours.


def _through_psycopg(conn: psycopg.Connection[Any]) -> Send:
    def send(sql: str, params: Params) -> Rows:
        with psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
            return cursor.execute(sql.encode(), params).fetchall()

    return send


def _through_async_psycopg(conn: psycopg.AsyncConnection[Any]) -> AsyncSend:
    async def send(sql: str, params: Params) -> Rows:
        async with psycopg.AsyncCursor(conn, row_factory=tuple_row) as cursor:
            await cursor.execute(sql.encode(), params)
            return await cursor.fetchall()

    return send


def _through_asyncpg(conn: Any) -> tuple[AsyncSend, object]:
    async def send(sql: str, params: Params) -> Rows:
        return [tuple(record) for record in await conn.fetch(_numbered(sql), *params)]

    return send, getattr(conn, "_con", conn)  # out of its pool's proxy, which is new at every acquire


def _through_sqlalchemy(connection: Any) -> tuple[Send, object]:
    dialect = connection.dialect
    if dialect.name != "postgresql":
        raise UnsupportedConnection(connection, f"{EXPECTED}; this one is on {dialect.name}")
    is_numbered = dialect.paramstyle in ("numeric_dollar", "numeric")

    def send(sql: str, params: Params) -> Rows:
        text = _numbered(sql) if is_numbered else sql
        return [tuple(row) for row in connection.exec_driver_sql(text, params)]

    return send, connection.connection.driver_connection


async def _through_async_sqlalchemy(connection: Any) -> tuple[AsyncSend, object]:
    blocking, owner = await connection.run_sync(_through_sqlalchemy)

    async def send(sql: str, params: Params) -> Rows:
        return await connection.run_sync(lambda _: blocking(sql, params))  # type: ignore[no-any-return]

    return send, owner


def driver_errors() -> tuple[type[Exception], ...]:
    """Whatever may come out of a caller's connection; only drivers somebody has imported can raise anything."""
    errors: list[type[Exception]] = [psycopg.Error, OSError, UnicodeEncodeError]
    if "asyncpg" in sys.modules:
        from asyncpg import InterfaceError, PostgresError  # type: ignore[import-untyped]

        errors += [InterfaceError, PostgresError]
    if "sqlalchemy" in sys.modules:
        from sqlalchemy.exc import SQLAlchemyError

        errors.append(SQLAlchemyError)
    return tuple(errors)


def caller_error(error: Exception) -> StoreError:
    """What the caller gets. Here nothing is tried again: only the caller can repeat its transaction."""
    if isinstance(error, UnicodeEncodeError):
        return StoreRefused(STORE, f"this connection's client_encoding cannot carry the payload ({error}); use UTF8")
    found = translated(getattr(error, "orig", None) or error)  # SQLAlchemy wraps the driver's error
    if isinstance(found, Again):
        return StoreUnavailable(STORE, f"the server ended your transaction so that you may run it again ({found})")
    if isinstance(found, Lost):
        return StoreUnavailable(STORE, f"your connection broke, and your transaction with it ({found})")
    return found


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


def _numbered(sql: str) -> str:
    """`%s` as `$1`, `$2`, … for drivers that count."""
    first, *rest = sql.split("%s")
    return (first + "".join(f"${number}{part}" for number, part in enumerate(rest, 1))).replace("%%", "%")


IDLE = 0
"""libpq's status of a connection outside any transaction."""

# A transaction is one tenant's to its end: what is set stays, and the answer says whose it is.
_SET = (
    "select set_config('fairlane.tenant', "
    "case when coalesce(current_setting('fairlane.tenant', true), '') in ('', %s::text) "
    "then %s::text else current_setting('fairlane.tenant', true) end, true)"
)
_READ = "select current_setting('fairlane.tenant', true)"


def set_tenant(conn: object, tenant: str) -> None:
    """Let the open transaction of a blocking connection see one tenant's rows, until it ends."""
    try:
        send, driver = blocking(conn)
        [(in_force,)] = send(_SET, (tenant, tenant))
        lasts = _is_in_transaction(driver)
        if lasts is None:
            lasts = send(_READ, ())[0][0] == in_force
    except driver_errors() as error:
        raise caller_error(error) from without_frames(error)
    _check(tenant, in_force, lasts=lasts)


async def aset_tenant(conn: object, tenant: str) -> None:
    """The same on a connection of either kind; a blocking one is used in a thread."""
    try:
        send, driver = await awaited(conn)
        if send is None:
            await asyncio.to_thread(set_tenant, conn, tenant)
            return
        [(in_force,)] = await send(_SET, (tenant, tenant))
        lasts = _is_in_transaction(driver)
        if lasts is None:
            lasts = (await send(_READ, ()))[0][0] == in_force
    except FairlaneError:  # PermissionDenied is an OSError, too
        raise
    except driver_errors() as error:
        raise caller_error(error) from without_frames(error)
    _check(tenant, in_force, lasts=lasts)


def _check(tenant: str, in_force: str, *, lasts: bool) -> None:
    if not lasts:
        raise NoTransaction
    if in_force != tenant:
        raise PermissionDenied(f'tenant "{tenant}" in a transaction of another', in_force)


def _is_in_transaction(driver: object) -> bool | None:
    """Asked of the driver, which knows without asking the server; None: this one does not say."""
    if hasattr(driver, "is_in_transaction"):
        return bool(driver.is_in_transaction())
    status = getattr(getattr(driver, "info", None), "transaction_status", None)
    return None if status is None else int(status) != IDLE
