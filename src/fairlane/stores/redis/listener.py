"""Receives wake-ups by SUBSCRIBE on a connection of its own, replaced when it breaks; polling finds the work too."""

from __future__ import annotations

import asyncio
import selectors
import socket
import time
from typing import cast

import redis.exceptions as their

from fairlane.core.clock import Clock, SystemClock
from fairlane.core.ids import WorkerId
from fairlane.core.tracebacks import without_frames
from fairlane.errors import StoreUnavailable
from fairlane.stores.redis.connection import Connection, RedisConnector

RETRY_S = 1.0
PROBE_EVERY_S = 10.0
PROBE_WITHIN_S = 5.0


class RedisListener:
    """Subscribed from the moment it is made, so that nothing sent after that is missed."""

    address = None

    def __init__(self, connector: RedisConnector, tag: str, worker: WorkerId, clock: Clock | None = None) -> None:
        self._connector, self._channel = connector, f"{tag}:wake:{worker.hex}"
        self._clock = clock or SystemClock()
        self._conn: Connection | None = None
        self._heard_s = 0.0
        self._subscribe()

    def wait(self, timeout_s: float) -> bool:
        """True when woken; also after a reconnection, since a wake-up may have been missed meanwhile."""
        conn = self._conn  # another thread may close it meanwhile
        try:
            if conn is None:
                self._subscribe()
                return True
            is_due = self._clock.monotonic() - self._heard_s > PROBE_EVERY_S
            return (is_due and self._probe(conn)) or self._hears(conn, timeout_s)
        except (their.RedisError, StoreUnavailable, OSError):
            self.close()
            time.sleep(min(timeout_s, RETRY_S))
            return False

    async def await_(self, timeout_s: float) -> bool:
        return await asyncio.get_running_loop().run_in_executor(None, self.wait, timeout_s)

    def prove(self) -> None:
        conn = self._connector.connect()
        try:
            conn.send_command("PUBLISH", self._channel, "", check_health=False)
            conn.read_response()
        except (their.RedisError, OSError) as error:
            raise StoreUnavailable("redis", str(error)) from without_frames(error)
        finally:
            conn.disconnect()

    def close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.disconnect()

    def _subscribe(self) -> None:
        conn = self._connector.connect()
        try:
            conn.send_command("SUBSCRIBE", self._channel, check_health=False)
            conn.read_response()
        except BaseException:
            conn.disconnect()
            raise
        self._conn, self._heard_s = conn, self._clock.monotonic()

    def _probe(self, conn: Connection) -> bool:
        """A broken connection looks like one that nobody publishes to: ask the server. True: a message came, too."""
        conn.send_command("PING", check_health=False)
        woken = False
        while _is_spoken_to(conn, PROBE_WITHIN_S):
            if self._read(conn) == b"pong":
                return woken
            woken = True
        raise their.TimeoutError("the server does not answer")

    def _hears(self, conn: Connection, within_s: float) -> bool:
        """Whether a message comes, asleep until then."""
        if not _is_spoken_to(conn, within_s):
            return False
        self._read(conn)
        while conn.can_read(timeout=0):
            self._read(conn)
        return True

    def _read(self, conn: Connection) -> bytes:
        kind: bytes = conn.read_response()[0]
        self._heard_s = self._clock.monotonic()
        return kind


def _is_spoken_to(conn: Connection, within_s: float) -> bool:
    if conn.can_read(timeout=0):
        return True
    with selectors.DefaultSelector() as selector:
        selector.register(cast("socket.socket", conn._sock), selectors.EVENT_READ)
        return bool(selector.select(within_s))
