"""Opens connections with our session settings and keeps them between calls; each waits for an answer only so long.

A server's statement timeout is of no use when its answer never arrives: a router that forgot the connection, a frozen
proxy. Keepalives do not help where something in between answers them.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import re
import threading
from collections.abc import Mapping
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict

from fairlane.core.clock import SystemClock
from fairlane.errors import ConfigError, StoreClosed, StoreUnavailable
from fairlane.stores.postgres.errors import STORE, NoAnswer, unreachable
from fairlane.stores.url import redacted

T = TypeVar("T")

_monotonic = SystemClock().monotonic


class Connection(psycopg.Connection[Any]):
    answer_within_s: float | None = None
    """The longest silence to bear in a call; then the connection is closed and the call raises `NoAnswer`."""
    _kept: psycopg.Cursor[Any] | None = None

    def kept_cursor(self) -> psycopg.Cursor[Any]:
        """One cursor for all calls: making one each time cost a tenth of an enqueue's time in this process."""
        if self._kept is None:
            self._kept = self.cursor(binary=True)
        return self._kept

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        if self.answer_within_s is not None:
            gen = _answered(gen, self, self.answer_within_s)
        return super().wait(gen, *args, **kwargs)

    def answers(self) -> bool:
        """Whether the server is still at the other end; closes the connection if not."""
        try:
            self.execute("")
        except psycopg.Error:
            self.close()
            return False
        except BaseException:
            self.close()
            raise
        return True


class AsyncConnection(psycopg.AsyncConnection[Any]):
    answer_within_s: float | None = None
    _kept: psycopg.AsyncCursor[Any] | None = None

    def kept_cursor(self) -> psycopg.AsyncCursor[Any]:
        if self._kept is None:
            self._kept = self.cursor(binary=True)
        return self._kept

    async def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        if self.answer_within_s is not None:
            gen = _answered(gen, self, self.answer_within_s)
        return await super().wait(gen, *args, **kwargs)

    async def answers(self) -> bool:
        try:
            await self.execute("")
        except psycopg.Error:
            await self.close()
            return False
        except BaseException:
            self.pgconn.finish()  # cancelled: nobody else has it to close it
            raise
        return True


def _answered(gen: PQGen[T], conn: Connection | AsyncConnection, within_s: float) -> PQGen[T]:
    """Pass on what psycopg waits for; it resumes us ten times a second when nothing comes."""
    heard_s = _monotonic()
    try:
        state = next(gen)
        while True:
            ready = yield state
            if ready:
                heard_s = _monotonic()
            elif _monotonic() - heard_s > within_s:
                # Not to be used again: the answer may still come, and would be taken for the next call's.
                conn.pgconn.finish()
                raise NoAnswer(f"no answer within {within_s:g} s")
            state = gen.send(ready)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


_OPTIONS = " ".join(
    f"-c {setting}"
    for setting in (
        "synchronous_commit=on",  # a server-wide `off` must not lose what we acknowledge
        r"default_transaction_isolation=read\ committed",
        "timezone=UTC",  # elsewhere, instants before 1937 come with offsets down to the second
        "statement_timeout={statement_timeout_ms}",
        "lock_timeout={lock_timeout_ms}",
        "idle_in_transaction_session_timeout=60000",
        # Reported back by the server, unlike the others: tells whether these settings arrived.
        "intervalstyle=iso_8601",
    )
)


_QUOTED = re.compile(r'"[^"]*"')


def parameters(dsn: str, *, statement_timeout_s: float, lock_timeout_s: float) -> dict[str, Any]:
    scheme, slashes, rest = dsn.partition("://")
    try:
        given = conninfo_to_dict(scheme.lower() + slashes + rest if slashes else dsn)
    except psycopg.ProgrammingError as error:
        # What it quotes may be the password, or the whole address.
        why = _QUOTED.sub('"…"', str(error).strip())
        raise ConfigError(f'url = "{redacted(dsn)}": not a PostgreSQL address: {why}') from None
    if "@" in str(given.get("host") or ""):
        raise ConfigError(f'url = "{redacted(dsn)}": a host has no @; in a password it is written %40')
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
    # UTF-8 whatever the environment, the role, the database or the address says: only UTF-8 carries every payload.
    ours = {"client_encoding": "UTF8", "options": f"{options} {given.get('options') or ''}".rstrip()}
    return defaults | given | ours


def role_of(dsn: str) -> str:
    """The role that an address logs in as: the one it names, else the user of this process."""
    return str(conninfo_to_dict(dsn).get("user") or getpass.getuser())


def without_options(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name != "options"}


class Connector:
    """Opens connections, with our session settings where the server, or a pooler before it, lets us."""

    def __init__(self, params: dict[str, Any], answer_within_s: float) -> None:
        self._params, self._answer_within_s = params, answer_within_s
        self.pooled = False
        """A pooler refused or dropped our start-up settings: the server's own hold, and no session may be relied on."""

    def connect(self, *, patient: bool = False) -> Connection:
        """A new connection; a `patient` one waits for an answer as long as it takes, and prepares nothing."""
        given = self._given()
        try:
            conn = Connection.connect(**given, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            if not self._refused_options(given, error):
                raise unreachable(error) from error
            return self.connect(patient=patient)
        conn.answer_within_s = None if patient else self._answer_within_s
        if not patient:
            self._prepare_if_ours(conn)
        return conn

    async def aconnect(self) -> AsyncConnection:
        given = self._given()
        try:
            conn = await AsyncConnection.connect(**given, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            if not self._refused_options(given, error):
                raise unreachable(error) from error
            return await self.aconnect()
        conn.answer_within_s = self._answer_within_s
        self._prepare_if_ours(conn)
        return conn

    def _prepare_if_ours(self, conn: Connection | AsyncConnection) -> None:
        """Prepare statements where the session is ours. Behind a pooler the next call may meet another."""
        if conn.info.parameter_status("IntervalStyle") == "iso_8601":
            conn.prepare_threshold = 0
        else:
            self.pooled = True

    def _given(self) -> dict[str, Any]:
        return without_options(self._params) if self.pooled else self._params

    def _refused_options(self, given: Mapping[str, Any], error: psycopg.Error) -> bool:
        # PgBouncer answers unknown start-up parameters with a protocol violation;
        # libpq gives a failed connection no sqlstate to ask.
        refused = "options" in given and "startup parameter" in str(error)
        self.pooled = self.pooled or refused
        return refused


class ConnectionPool:
    """Idle connections of one process, at most `size` in use at once, for threads and for event loops.

    psycopg_pool does less of what is needed here: one pool serves threads or one event loop, does not outlive a
    fork, and keeps four threads of its own; a store serves threads and several loops at once, on both sides of a fork.
    """

    def __init__(self, connector: Connector, size: int, wait_s: float) -> None:
        self._connector, self._size, self._wait_s = connector, size, wait_s
        self._renew()

    def _renew(self) -> None:
        self._pid = os.getpid()
        self._idle: list[Connection] = []
        self._slots = threading.BoundedSemaphore(self._size)
        self._loops: dict[asyncio.AbstractEventLoop, tuple[list[AsyncConnection], asyncio.Semaphore]] = {}
        self.closed = False

    def _check(self) -> None:
        if self._pid != os.getpid():
            # After a fork the sockets are the parent's: forget them unclosed, closing would end the parent's sessions.
            self._inherited = (self._idle, self._loops)
            self._renew()
        if self.closed:
            raise StoreClosed(STORE)

    def _all_busy(self) -> StoreUnavailable:
        why = f"all {self._size} connections were busy for {self._wait_s:g} s; raise `max_connections`"
        return StoreUnavailable(STORE, why)

    def take(self, *, proven: bool = False) -> Connection:
        """An idle connection, or a new one. A `proven` one has just answered, or is new."""
        self._check()
        if not self._slots.acquire(timeout=self._wait_s):
            raise self._all_busy()
        try:
            while self._idle:
                conn = self._idle.pop()
                if not proven or conn.answers():
                    return conn
            return self._connector.connect()
        except BaseException:
            self._slots.release()
            raise

    def give(self, conn: Connection) -> None:
        if self.closed or conn.closed or conn.broken:
            conn.close()
        else:
            self._idle.append(conn)
        self._slots.release()

    async def atake(self, *, proven: bool = False) -> AsyncConnection:
        self._check()
        idle, slots = self._here()
        try:
            if slots.locked():
                async with asyncio.timeout(self._wait_s):
                    await slots.acquire()
            else:
                await slots.acquire()  # does not suspend: what is sent goes out before anything else runs here
        except TimeoutError:
            raise self._all_busy() from None
        try:
            while idle:
                conn = idle.pop()
                if not proven or await conn.answers():
                    return conn
            return await self._connector.aconnect()
        except BaseException:
            slots.release()
            raise

    async def agive(self, conn: AsyncConnection) -> None:
        idle, slots = self._here()
        if self.closed or conn.closed or conn.broken:
            await conn.close()
        else:
            idle.append(conn)
        slots.release()

    def forget_idle(self) -> None:
        """Close the idle ones: one connection broke, and what broke it seldom broke it alone."""
        while self._idle:
            self._idle.pop().close()

    async def aforget_idle(self) -> None:
        idle, _ = self._here()
        while idle:
            await idle.pop().close()

    def _here(self) -> tuple[list[AsyncConnection], asyncio.Semaphore]:
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            self._leave_ended_loops()
            found = self._loops[loop] = ([], asyncio.Semaphore(self._size))
        return found

    def _leave_ended_loops(self) -> None:
        """Nobody can await the end of a connection whose loop is closed: hang up."""
        for loop in [known for known in self._loops if known.is_closed()]:
            idle, _ = self._loops.pop(loop)
            _hang_up(idle)

    def close(self) -> None:
        """Close every idle connection, those of event loops too; one in use closes when it is given back."""
        self.closed = True
        self.forget_idle()
        for idle, _ in self._loops.values():
            _hang_up(idle)


def _hang_up(idle: list[AsyncConnection]) -> None:
    """Close without awaiting: their loop may be closed, or run elsewhere. An idle connection is nobody else's."""
    while idle:
        idle.pop().pgconn.finish()
