"""Opens connections to a Redis or Valkey server and keeps them between calls, for threads and for event loops."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import redis.asyncio.connection as asynchronous
import redis.asyncio.retry
import redis.backoff
import redis.connection as synchronous
import redis.exceptions as their
import redis.retry

from fairlane.errors import ConfigError, StoreClosed, StoreUnavailable
from fairlane.stores.redis.errors import STORE, unreachable
from fairlane.stores.url import redacted

Connection = synchronous.AbstractConnection
AsyncConnection = asynchronous.AbstractConnection
NO_ADDRESS = (
    "not a Redis address: expected redis://user:password@host:port/database. "
    "In a password write / # ? [ ] as %2F %23 %3F %5B %5D"
)


class RedisConnector:
    """Knows where the server is; follows when a cluster has moved our slot to another node."""

    def __init__(self, url: str, *, connect_timeout_s: float, answer_within_s: float) -> None:
        try:
            parts = urlsplit(url)
            number = parts.port
            is_cut = "@" in parts.path + parts.query.partition("=")[0] + parts.fragment
            if is_cut and (number is not None or parts.scheme != "unix"):
                raise ValueError
        except ValueError:  # its text may hold a part of the password
            raise ConfigError(f'url = "{redacted(url)}": {NO_ADDRESS}') from None
        try:
            self._given: dict[str, Any] = dict(synchronous.parse_url(url))
        except ValueError as error:
            raise ConfigError(f'url = "{redacted(url)}": not a Redis address: {error}') from None
        self._class: type[Any] = self._given.pop("connection_class", synchronous.Connection)
        self._given |= {
            "protocol": 2,
            "socket_connect_timeout": connect_timeout_s,
            "socket_timeout": answer_within_s,
            "client_name": self._given.get("client_name", "fairlane"),
        }
        if self._class is not synchronous.UnixDomainSocketConnection:
            self._given.setdefault("socket_keepalive", True)
        self._node: tuple[str, int] | None = None
        try:
            self._make(synchronous, None)
        except (TypeError, ValueError, their.RedisError) as error:
            raise ConfigError(f'url = "{redacted(url)}": {error}') from None

    def move_to(self, host: str, port: int) -> None:
        """Connect to this node of the cluster from now on; without a host: another port of the one we know."""
        known = self._node[0] if self._node else self._given.get("host", "localhost")
        self._node = (host if host not in ("", "?") else known, port)

    def connect(self) -> Connection:
        while True:
            node = self._node
            conn: Connection = self._make(synchronous, redis.retry.Retry(redis.backoff.NoBackoff(), 0))
            try:
                conn.connect()
            except (their.RedisError, OSError) as error:
                if self._has_left(node):
                    continue
                raise unreachable(error) from error
            return conn

    async def aconnect(self) -> AsyncConnection:
        while True:
            node = self._node
            retry = redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0)
            conn: AsyncConnection = self._make(asynchronous, retry)
            try:
                async with _limited(conn):
                    await conn.connect()
            except (their.RedisError, OSError) as error:
                if self._has_left(node):
                    continue
                raise unreachable(error) from error
            return conn

    def _make(self, library: Any, retry: Any) -> Any:
        if self._node is None:
            return getattr(library, self._class.__name__)(**self._given, retry=retry)
        there = {name: value for name, value in self._given.items() if name != "path"}
        there |= {"host": self._node[0], "port": self._node[1]}
        kind = self._class if self._class is synchronous.SSLConnection else synchronous.Connection
        return getattr(library, kind.__name__)(**there, retry=retry)

    def _has_left(self, node: tuple[str, int] | None) -> bool:
        """A node that served our slot cannot be reached: the address given may know its successor."""
        if node is None:
            return False
        self._node = None
        return True


class ConnectionKeeper:
    """Idle connections of one process, at most `size` in use at once, on both sides of a fork.

    The pools of redis-py serve threads or one event loop; a store serves threads and several loops at once.
    """

    def __init__(self, connector: RedisConnector, size: int, wait_s: float) -> None:
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
            # After a fork the sockets are the parent's: forget them unclosed.
            self._inherited = (self._idle, self._loops)
            self._renew()
        if self.closed:
            raise StoreClosed(STORE)

    def _all_busy(self) -> StoreUnavailable:
        return StoreUnavailable(STORE, f"all {self._size} connections were busy for {self._wait_s:g} s", "is busy")

    def take(self, *, proven: bool = False) -> Connection:
        """An idle connection, or a new one. A `proven` one has just answered, or is new."""
        self._check()
        if not self._slots.acquire(timeout=self._wait_s):
            raise self._all_busy()
        try:
            while self._idle:
                conn = self._idle.pop()
                if not proven or _answers(conn):
                    return conn
            return self._connector.connect()
        except BaseException:
            self._slots.release()
            raise

    def give(self, conn: Connection, *, broken: bool = False) -> None:
        if self.closed or broken:
            conn.disconnect()
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
                if not proven or await _aanswers(conn):
                    return conn
            return await self._connector.aconnect()
        except BaseException:
            slots.release()
            raise

    async def agive(self, conn: AsyncConnection, *, broken: bool = False) -> None:
        idle, slots = self._here()
        if self.closed or broken:
            await conn.disconnect(nowait=True)
        else:
            idle.append(conn)
        slots.release()

    def forget_idle(self) -> None:
        """Close the idle ones: one connection broke, and what broke it seldom broke it alone."""
        while self._idle:
            self._idle.pop().disconnect()

    async def aforget_idle(self) -> None:
        idle, _ = self._here()
        while idle:
            await idle.pop().disconnect(nowait=True)

    def move_to(self, host: str, port: int) -> None:
        self._connector.move_to(host, port)

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
            for conn in self._loops.pop(loop)[0]:
                _hang_up(conn, loop)

    def close(self) -> None:
        self.closed = True
        self.forget_idle()
        for loop, (idle, _) in self._loops.items():
            while idle:
                _hang_up(idle.pop(), loop)
        self._loops.clear()

    async def aclose(self) -> None:
        self.close()
        await asyncio.sleep(0)  # transports of this loop end when it goes on: it may be closed after this


async def ask(conn: AsyncConnection, *command: bytes | str | int) -> Any:
    """What the server answers to a command."""
    async with _limited(conn):
        await conn.send_packed_command(conn.pack_command(*command), check_health=False)
        return await conn.read_response()


@asynccontextmanager
async def _limited(conn: AsyncConnection) -> AsyncIterator[None]:
    """Wait for the server no longer than the connection's own limit.

    redis-py limits what it sends by `asyncio.wait_for`, which on Python 3.11 loses a cancellation that comes just then.
    """
    within_s, conn.socket_timeout = conn.socket_timeout, None
    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError:
        await conn.disconnect(nowait=True)
        raise their.TimeoutError(f"no answer within {within_s:g} s") from None
    finally:
        conn.socket_timeout = within_s


def _hang_up(conn: AsyncConnection, loop: asyncio.AbstractEventLoop) -> None:
    """End a connection without awaiting it, also where its loop runs in another thread or never again."""
    writer, conn._writer, conn._reader = conn._writer, None, None
    if writer is None:
        return
    if loop.is_closed():
        # A loop of uvloop has closed its sockets with itself; one of asyncio leaves them open.
        transport: Any = writer.transport
        inner = getattr(getattr(transport, "_ssl_protocol", None), "_transport", transport)
        if (sock := getattr(inner, "_sock", None)) is not None:
            inner._sock, inner._closing = None, True
            sock.close()
    elif loop.is_running() and loop is not _running_loop():
        loop.call_soon_threadsafe(_abort, writer)
    else:
        _abort(writer)


def _abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _answers(conn: Connection) -> bool:
    """Whether the server is still at the other end; closes the connection if not."""
    try:
        conn.send_command("PING", check_health=False)
        conn.read_response()
    except (their.RedisError, OSError):
        conn.disconnect()
        return False
    return True


async def _aanswers(conn: AsyncConnection) -> bool:
    try:
        await ask(conn, "PING")
    except (their.RedisError, OSError):
        await conn.disconnect(nowait=True)
        return False
    return True
