"""PostgresStore: sends calls, repeats the ones that may be repeated, borrows the caller's connection when told to."""

from __future__ import annotations

import asyncio
import time
from typing import TypeVar, cast

import psycopg
from psycopg import sql as quoting

from fairlane.core.ids import WorkerId
from fairlane.core.ops import Check, Enqueue, Op
from fairlane.errors import ConfigError, StoreUnavailable, UnsupportedConnection
from fairlane.stores.base import Capability
from fairlane.stores.postgres.borrowed import EXPECTED, run_on, run_on_async
from fairlane.stores.postgres.call import Call, Rows
from fairlane.stores.postgres.calls import REPEATABLE, call_for
from fairlane.stores.postgres.checking import check_call
from fairlane.stores.postgres.connecting import STORE, Again, Connector, Lost, Shelf, parameters, translated
from fairlane.stores.postgres.listening import PostgresListener
from fairlane.stores.postgres.migrating import PostgresMigrator

T = TypeVar("T")

TRIES = 4
PAUSES_S = (0.02, 0.1, 0.5)


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
        self._connector = Connector(self._params)
        self._shelf = Shelf(self._connector, max_connections, wait_s)
        self._texts: dict[str, bytes] = {}

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        call = self._call(op)
        if on is not None:
            return call.read(run_on(_borrowable(op, on), self._text(call), call.params))
        for pause_s in PAUSES_S:
            try:
                return call.read(self._send(call))
            except Again:
                time.sleep(pause_s)
            except Lost as lost:
                if type(op) not in REPEATABLE:
                    raise _unknown(op, lost) from None
                time.sleep(pause_s)
        try:
            return call.read(self._send(call))
        except (Again, Lost) as error:
            raise StoreUnavailable(STORE, f"gave up after {TRIES} tries: {error}") from None

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        call = self._call(op)
        if on is not None:
            return call.read(await run_on_async(_borrowable(op, on), self._text(call), call.params))
        for pause_s in PAUSES_S:
            try:
                return call.read(await self._asend(call))
            except Again:
                await asyncio.sleep(pause_s)
            except Lost as lost:
                if type(op) not in REPEATABLE:
                    raise _unknown(op, lost) from None
                await asyncio.sleep(pause_s)
        try:
            return call.read(await self._asend(call))
        except (Again, Lost) as error:
            raise StoreUnavailable(STORE, f"gave up after {TRIES} tries: {error}") from None

    def listener(self, worker: WorkerId) -> PostgresListener:
        return PostgresListener(self._params, f"{self._schema}_wake")

    def migrator(self) -> PostgresMigrator:
        return PostgresMigrator(self._connector, self._schema)

    def close(self) -> None:
        self._shelf.close()

    async def aclose(self) -> None:
        await self._shelf.aclose()

    def _call(self, op: Op[T]) -> Call[T]:
        if isinstance(op, Check):
            return cast("Call[T]", check_call(self._schema, op.now, pooled=self._connector.pooled))
        return call_for(op)

    def _send(self, call: Call[T]) -> Rows:
        conn = self._shelf.take()
        try:
            with conn.cursor(binary=True) as cursor:
                return cursor.execute(self._text(call), call.params).fetchall()
        except psycopg.Error as error:
            raise translated(error) from error
        finally:
            self._shelf.give(conn)

    async def _asend(self, call: Call[T]) -> Rows:
        conn = await self._shelf.atake()
        try:
            async with conn.cursor(binary=True) as cursor:
                await cursor.execute(self._text(call), call.params)
                return await cursor.fetchall()
        except psycopg.Error as error:
            raise translated(error) from error
        finally:
            await self._shelf.agive(conn)

    def _text(self, call: Call[T]) -> bytes:
        text = self._texts.get(call.sql)
        if text is None:
            text = call.sql.replace("{schema}", self._quoted.replace("%", "%%")).encode()
            if len(self._texts) < 256:
                self._texts[call.sql] = text
        return text


def _borrowable(op: Op[T], conn: object) -> object:
    if not isinstance(op, Enqueue):
        raise UnsupportedConnection(conn, f"{EXPECTED}, for enqueueing only")
    return conn


def _unknown(op: Op[T], lost: Lost) -> StoreUnavailable:
    act = type(op).__name__.lower()
    return StoreUnavailable(
        STORE,
        f"the connection broke while asking to {act}, which may or may not have taken effect: look before repeating ({lost})",
    )
