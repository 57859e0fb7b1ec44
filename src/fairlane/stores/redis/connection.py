"""Opens connections to a Redis or Valkey server and keeps them between calls, for threads and for event loops."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import hiredis
import redis.asyncio.connection as asynchronous
import redis.asyncio.retry
import redis.backoff
import redis.connection as synchronous
import redis.exceptions as their
import redis.retry

from fairlane.core.tracebacks import without_frames
from fairlane.errors import ConfigError
from fairlane.stores.redis.errors import STORE, unreachable
from fairlane.stores.url import redacted

Connection = synchronous.AbstractConnection
AsyncConnection = asynchronous.AbstractConnection
NO_ADDRESS = (
    "not a Redis address: expected redis://user:password@host:port/database. "
    "In a password write / # ? [ ] as %2F %23 %3F %5B %5D"
)
_DATABASE = re.compile(r"/?\d*/?")
_CLIENT_NAME = re.compile(r"[!-~]+")


class RedisConnector:
    """Knows where the server is; follows when a cluster has moved our slot to another node."""

    store = STORE

    def __init__(self, url: str, *, connect_timeout_s: float, answer_within_s: float) -> None:
        try:
            parts = urlsplit(url)
            number = parts.port
            is_cut = "@" in parts.path + parts.query.partition("=")[0] + parts.fragment
            if is_cut and (number is not None or parts.scheme != "unix"):
                raise ValueError
            if parts.scheme != "unix" and not _DATABASE.fullmatch(parts.path):  # redis-py would take database 0
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
            "encoding": "utf-8",
            "decode_responses": False,  # scripts answer with bytes
            "socket_connect_timeout": connect_timeout_s,
            "socket_timeout": answer_within_s,
            "client_name": self._given.get("client_name", "fairlane"),
        }
        if not _CLIENT_NAME.fullmatch(self._given["client_name"]):
            raise ConfigError(f'url = "{redacted(url)}": expected a client_name of printable ASCII without blanks')
        if self._class is not synchronous.UnixDomainSocketConnection:
            self._given.setdefault("socket_keepalive", True)
        self._node: tuple[str, int] | None = None
        try:
            self._make(synchronous, None)
        except TypeError:
            options = ", ".join(name for name, _ in parse_qsl(parts.query, keep_blank_values=True))
            raise ConfigError(
                f'url = "{redacted(url)}": expected options of a redis-py connection behind the ?, got {options}'
            ) from None
        except (ValueError, their.RedisError) as error:
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
                raise unreachable(error) from without_frames(error)
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
                raise unreachable(error) from without_frames(error)
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

    def answers(self, conn: Connection) -> bool:
        try:
            ask(conn, "PING")
        except (their.RedisError, OSError):
            conn.disconnect()
            return False
        return True

    async def aanswers(self, conn: AsyncConnection) -> bool:
        try:
            await aask(conn, "PING")
        except (their.RedisError, OSError):
            await conn.disconnect(nowait=True)
            return False
        return True

    def end(self, conn: Connection) -> None:
        conn.disconnect()

    async def aend(self, conn: AsyncConnection) -> None:
        await conn.disconnect(nowait=True)

    def hang_up(self, conn: AsyncConnection, loop: asyncio.AbstractEventLoop) -> None:
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


_pack: Any = hiredis.pack_command


def ask(conn: Connection, *command: bytes | str | int) -> Any:
    """What the server answers to a command."""
    conn.send_packed_command([_pack(command)], check_health=False)
    return conn.read_response()


async def aask(conn: AsyncConnection, *command: bytes | str | int) -> Any:
    """The same, past redis-py's own layers: they pack in Python, and took half of the time of an enqueue."""
    packed, writer, parser = _pack(command), conn._writer, cast("Any", conn._parser)
    if writer is None:
        raise their.ConnectionError("the connection is closed")
    try:
        async with asyncio.timeout(conn.socket_timeout):
            writer.write(packed)
            await writer.drain()
            answer = await parser.read_response()
    except BaseException as error:
        await conn.disconnect(nowait=True)
        if isinstance(error, TimeoutError):
            raise their.TimeoutError(f"no answer within {conn.socket_timeout:g} s") from None
        if isinstance(error, OSError):
            raise their.ConnectionError(str(error)) from without_frames(error)
        raise
    if isinstance(answer, their.ResponseError):
        raise answer
    return answer


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


def _abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
