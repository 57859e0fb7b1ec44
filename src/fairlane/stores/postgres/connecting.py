"""Connections: how they are made, kept between calls, and what their errors mean here."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict

from fairlane.errors import ConfigError, FairlaneError, SchemaOutOfDate, StoreClosed, StoreRefused, StoreUnavailable

STORE = "postgresql"
SCHEMA_VERSION = 1

_OPTIONS = " ".join(
    f"-c {setting}"
    for setting in (
        "synchronous_commit=on",  # a server-wide `off` must not lose what we acknowledge
        r"default_transaction_isolation=read\ committed",
        "statement_timeout={statement_timeout_ms}",
        "lock_timeout={lock_timeout_ms}",
        "idle_in_transaction_session_timeout=60000",
    )
)


class Lost(Exception):
    """The connection broke: whether the call took effect is unknown."""


class Again(Exception):
    """The server rolled the call back and invites another try."""


def parameters(dsn: str, *, statement_timeout_s: float, lock_timeout_s: float) -> dict[str, Any]:
    try:
        given = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise ConfigError(f"not a PostgreSQL address: {error}") from None
    options = _OPTIONS.format(
        statement_timeout_ms=int(statement_timeout_s * 1000), lock_timeout_ms=int(lock_timeout_s * 1000)
    )
    defaults = {
        "application_name": "fairlane",
        "connect_timeout": 5,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
    }
    return defaults | given | {"options": f"{options} {given.get('options') or ''}".rstrip()}


def without_options(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name != "options"}


class Connector:
    """Opens connections, with our session settings where the server, or a pooler before it, lets us."""

    def __init__(self, params: dict[str, Any]) -> None:
        self._params = params
        self.pooled = False
        """A pooler refused start-up settings: the server's own hold."""

    def connect(self) -> psycopg.Connection[Any]:
        try:
            return psycopg.connect(**self._given(), autocommit=True, prepare_threshold=None)
        except psycopg.OperationalError as error:
            if not self._refused_options(error):
                raise unreachable(error) from None
        return self.connect()

    async def aconnect(self) -> psycopg.AsyncConnection[Any]:
        try:
            return await psycopg.AsyncConnection.connect(**self._given(), autocommit=True, prepare_threshold=None)
        except psycopg.OperationalError as error:
            if not self._refused_options(error):
                raise unreachable(error) from None
        return await self.aconnect()

    def _given(self) -> dict[str, Any]:
        return without_options(self._params) if self.pooled else self._params

    def _refused_options(self, error: psycopg.OperationalError) -> bool:
        # PgBouncer answers unknown start-up parameters with a protocol violation; libpq gives a failed connection no sqlstate to ask.
        refused = not self.pooled and "startup parameter" in str(error)
        self.pooled = self.pooled or refused
        return refused


class Shelf:
    """Idle connections of one process, at most `size` in use at once, for threads and for event loops."""

    def __init__(self, connector: Connector, size: int, wait_s: float) -> None:
        self._connector, self._size, self._wait_s = connector, size, wait_s
        self._renew()

    def _renew(self) -> None:
        self._pid = os.getpid()
        self._idle: list[psycopg.Connection[Any]] = []
        self._slots = threading.BoundedSemaphore(self._size)
        self._loops: dict[asyncio.AbstractEventLoop, tuple[list[psycopg.AsyncConnection[Any]], asyncio.Semaphore]] = {}
        self.closed = False

    def _check(self) -> None:
        if self._pid != os.getpid():
            # After a fork the sockets are the parent's: forget them unclosed, closing would end the parent's sessions.
            self._inherited = (self._idle, self._loops)
            self._renew()
        if self.closed:
            raise StoreClosed(STORE)

    def take(self) -> psycopg.Connection[Any]:
        self._check()
        if not self._slots.acquire(timeout=self._wait_s):
            raise StoreUnavailable(
                STORE, f"all {self._size} connections were busy for {self._wait_s:g} s; raise `max_connections`"
            )
        try:
            return self._idle.pop() if self._idle else self._connector.connect()
        except BaseException:
            self._slots.release()
            raise

    def give(self, conn: psycopg.Connection[Any]) -> None:
        if self.closed or conn.closed or conn.broken:
            conn.close()
        else:
            self._idle.append(conn)
        self._slots.release()

    async def atake(self) -> psycopg.AsyncConnection[Any]:
        self._check()
        idle, slots = self._here()
        try:
            await asyncio.wait_for(slots.acquire(), self._wait_s)
        except TimeoutError:
            raise StoreUnavailable(
                STORE, f"all {self._size} connections were busy for {self._wait_s:g} s; raise `max_connections`"
            ) from None
        try:
            return idle.pop() if idle else await self._connector.aconnect()
        except BaseException:
            slots.release()
            raise

    async def agive(self, conn: psycopg.AsyncConnection[Any]) -> None:
        idle, slots = self._here()
        if self.closed or conn.closed or conn.broken:
            await conn.close()
        else:
            idle.append(conn)
        slots.release()

    def _here(self) -> tuple[list[psycopg.AsyncConnection[Any]], asyncio.Semaphore]:
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            self._loops = {known: held for known, held in self._loops.items() if not known.is_closed()}
            found = self._loops[loop] = ([], asyncio.Semaphore(self._size))
        return found

    def close(self) -> None:
        self.closed = True
        while self._idle:
            self._idle.pop().close()

    async def aclose(self) -> None:
        self.close()
        idle, _ = self._loops.pop(asyncio.get_running_loop(), ([], None))
        for conn in idle:
            await conn.close()


def unreachable(error: psycopg.Error) -> StoreUnavailable:
    return StoreUnavailable(STORE, " ".join(str(error).split()) or type(error).__name__)


def translated(error: psycopg.Error) -> Exception:
    """What a driver's error means to us, by its code."""
    state = error.sqlstate or ""
    if isinstance(error, pg.SerializationFailure | pg.DeadlockDetected):
        return Again(str(error))
    if isinstance(error, pg.UndefinedFunction | pg.UndefinedTable | pg.InvalidSchemaName):
        return SchemaOutOfDate(0, SCHEMA_VERSION)
    if state.startswith(("57P", "08")) or (not state and isinstance(error, psycopg.OperationalError)):
        return Lost(" ".join(str(error).split()))
    if state.startswith(("53", "55", "57", "58", "25006")):  # out of resources, locked, cancelled, system, read-only
        return unreachable(error)
    if state.startswith(("22", "23", "54")) or isinstance(error, psycopg.DataError):
        return StoreRefused(STORE, " ".join(str(error).split()))
    if state.startswith("42501"):
        return StoreUnavailable(STORE, f"{error}; the role lacks rights on the schema")
    if isinstance(error, FairlaneError):
        return error
    return StoreUnavailable(STORE, f"{type(error).__name__}: {error}")
