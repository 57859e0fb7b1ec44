"""The store on PostgreSQL: runs each operation as one call, on a connection of its pool or on the caller's own.

A call that failed is sent again where that is safe (`Op.repeatable`); else the error says that it may have been done.
"""

from __future__ import annotations

import asyncio
import time
from typing import TypeVar, cast

import psycopg
from psycopg import sql as quoting
from psycopg.errors import CharacterNotInRepertoire

from fairlane.core.ids import WorkerId
from fairlane.core.ops import Check, Emit, Enqueue, EnqueueWorkflow, Op, Turn
from fairlane.core.tracebacks import without_frames
from fairlane.errors import ConfigError, StoreRefused, StoreUnavailable, UnsupportedConnection
from fairlane.stores.base import Capability
from fairlane.stores.pool import ConnectionPool
from fairlane.stores.postgres.borrowed import EXPECTED, BorrowedConnections
from fairlane.stores.postgres.calls import Call, GarbledRows, Rows, keeps_any_bytes, operation_call
from fairlane.stores.postgres.connection import PostgresConnector, parameters
from fairlane.stores.postgres.enqueue import enqueue
from fairlane.stores.postgres.errors import SILENCES, STORE, translated
from fairlane.stores.postgres.health import check_call
from fairlane.stores.postgres.listener import PostgresListener
from fairlane.stores.postgres.migrator import PostgresMigrator
from fairlane.stores.postgres.roles import PostgresIsolator
from fairlane.stores.postgres.schema import CORE, SchemaFiles
from fairlane.stores.postgres.turn import turn
from fairlane.stores.retries import Again, Lost, Retries, ends_sessions

T = TypeVar("T")

ANSWER_GRACE_S = 1.0
"""How much longer than its own timeout a server's answer may take."""


class PostgresStore:
    name = STORE
    capabilities = frozenset({Capability.DURABLE, Capability.SHARED, Capability.BORROWS})

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "fairlane",
        max_connections: int = 8,
        statement_timeout_s: float = 10.0,
        lock_timeout_s: float = 5.0,
        wait_s: float = 5.0,
    ) -> None:
        if not schema or "\0" in schema or len(schema.encode()) > 58:
            raise ConfigError(f"schema = {schema!r}: expected a name of 1 to 58 bytes")
        self._schema = schema
        self._quoted = quoting.Identifier(schema).as_string(None)
        self._params = parameters(dsn, statement_timeout_s=statement_timeout_s, lock_timeout_s=lock_timeout_s)
        self._connector = PostgresConnector(self._params, statement_timeout_s + ANSWER_GRACE_S)
        self._pool = ConnectionPool(self._connector, max_connections, wait_s)
        self._borrowed = BorrowedConnections(schema)
        self._texts: dict[str, bytes] = {}
        self._statements: dict[str, bytes] = {}

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        call = self._call(op)
        if on is not None:
            return call.read(self._borrowed.run(_borrowable(op, on), self._text(call), call.params))
        retries: Retries | None = None
        while True:
            try:
                return call.read(self._send(call, proven=not op.repeatable))
            except (Again, Lost, StoreUnavailable) as error:
                if ends_sessions(error):
                    self._pool.forget_idle()
                retries = retries or Retries(STORE, op, SILENCES)
                pause_s = retries.pause_after(error)
            time.sleep(pause_s)

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        call = self._call(op)
        if on is not None:
            return call.read(await self._borrowed.arun(_borrowable(op, on), self._text(call), call.params))
        retries: Retries | None = None
        while True:
            try:
                return call.read(await self._asend(call, proven=not op.repeatable))
            except (Again, Lost, StoreUnavailable) as error:
                if ends_sessions(error):
                    await self._pool.aforget_idle()
                retries = retries or Retries(STORE, op, SILENCES)
                pause_s = retries.pause_after(error)
            await asyncio.sleep(pause_s)

    def listener(self, worker: WorkerId) -> PostgresListener:
        return PostgresListener(self._params, f"{self._schema}_wake")

    def migrator(self, part: SchemaFiles = CORE) -> PostgresMigrator:
        return PostgresMigrator(self._connector, self._schema, part)

    def isolator(self, *parts: SchemaFiles) -> PostgresIsolator:
        return PostgresIsolator(self._connector, self._schema, *parts)

    def close(self) -> None:
        self._pool.close()

    async def aclose(self) -> None:
        self._pool.close()  # hangs up; there is nothing to await

    def _call(self, op: Op[T]) -> Call[T]:
        if isinstance(op, Check):
            return cast("Call[T]", check_call(self._schema, op.now, pooled=self._connector.pooled))
        try:
            return call_for(op)
        except UnicodeError as error:
            raise StoreRefused(STORE, f"text that is no Unicode: {error}") from None

    def _send(self, call: Call[T], *, proven: bool) -> Rows:
        conn = self._pool.take(proven=proven)
        try:
            text = self._text(call)
            try:
                if call.has_text and conn.prepare_threshold == 0:
                    return [(conn.ask(self._statement(call), call.params),)]
                return conn.kept_cursor().execute(text, call.params).fetchall()
            except CharacterNotInRepertoire:
                if not keeps_any_bytes(conn):
                    raise
                try:
                    conn.execute("set client_encoding = 'SQL_ASCII'")
                    rows = GarbledRows(conn.cursor(binary=True).execute(text, call.params))
                    conn.execute("set client_encoding = 'UTF8'")
                except BaseException:
                    conn.close()  # nobody gets it in the other encoding
                    raise
                return rows
        except psycopg.Error as error:
            ours = translated(error)
            if ends_sessions(ours):
                conn.pgconn.finish()
            raise ours from without_frames(error)
        finally:
            self._pool.give(conn, broken=conn.is_over)

    async def _asend(self, call: Call[T], *, proven: bool) -> Rows:
        conn = await self._pool.atake(proven=proven)
        try:
            text = self._text(call)
            try:
                if call.has_text and conn.prepare_threshold == 0:
                    return [(await conn.ask(self._statement(call), call.params),)]
                cursor = await conn.kept_cursor().execute(text, call.params)
                return await cursor.fetchall()
            except CharacterNotInRepertoire:
                if not keeps_any_bytes(conn):
                    raise
                try:
                    await conn.execute("set client_encoding = 'SQL_ASCII'")
                    rows = GarbledRows(await conn.cursor(binary=True).execute(text, call.params))
                    await conn.execute("set client_encoding = 'UTF8'")
                except BaseException:
                    await conn.close()
                    raise
                return rows
        except psycopg.Error as error:
            ours = translated(error)
            if ends_sessions(ours):
                conn.pgconn.finish()
            raise ours from without_frames(error)
        finally:
            await self._pool.agive(conn, broken=conn.is_over)

    def _statement(self, call: Call[T]) -> bytes:
        """The same text with parameters as libpq has them."""
        statement = self._statements.get(call.sql)
        if statement is None:
            first, *others = call.sql.split("%s")
            numbered = first + "".join([f"${n}{part}" for n, part in enumerate(others, 1)])
            statement = self._statements[call.sql] = numbered.replace("{schema}", self._quoted).encode()
        return statement

    def _text(self, call: Call[T]) -> bytes:
        text = self._texts.get(call.sql)
        if text is None:
            text = call.sql.replace("{schema}", self._quoted.replace("%", "%%")).encode()
            if len(self._texts) < 256:
                self._texts[call.sql] = text
        return text


def call_for(op: Op[T]) -> Call[T]:
    """Every operation but `Check`, which asks no function, as a call."""
    if isinstance(op, Enqueue):
        return cast("Call[T]", enqueue(op))
    if isinstance(op, Turn):
        return cast("Call[T]", turn(op))
    return operation_call(op)


def _borrowable(op: Op[T], conn: object) -> object:
    if not isinstance(op, Enqueue | EnqueueWorkflow | Emit):
        raise UnsupportedConnection(conn, f"{EXPECTED}, for enqueueing and emitting only")
    return conn
