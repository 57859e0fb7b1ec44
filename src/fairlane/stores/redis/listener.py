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
from fairlane.errors import StoreUnavailable
from fairlane.stores.redis.connection import Connection, RedisConnector

RETRY_S = 1.0
PROBE_EVERY_S = 10.0


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
            if self._clock.monotonic() - self._heard_s > PROBE_EVERY_S:
                conn.send_command("PING", check_health=False)  # answered by a message, or by a broken connection
                self._heard_s = self._clock.monotonic()
            return self._hears(conn, timeout_s)
        except (their.RedisError, StoreUnavailable, OSError):
            self.close()
            time.sleep(min(timeout_s, RETRY_S))
            return False

    async def await_(self, timeout_s: float) -> bool:
        return await asyncio.get_running_loop().run_in_executor(None, self.wait, timeout_s)

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

    def _hears(self, conn: Connection, within_s: float) -> bool:
        """Whether a message comes, asleep until then. Answers to probes are none."""
        ends_s = self._clock.monotonic() + within_s
        woken = False
        while True:
            left_s = 0.0 if woken else max(ends_s - self._clock.monotonic(), 0.0)
            if not conn.can_read(timeout=0) and not _is_spoken_to(conn, left_s):
                return woken
            answer = conn.read_response()
            self._heard_s = self._clock.monotonic()
            woken = woken or answer[0] == b"message"


def _is_spoken_to(conn: Connection, within_s: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(cast("socket.socket", conn._sock), selectors.EVENT_READ)
        return bool(selector.select(within_s))
