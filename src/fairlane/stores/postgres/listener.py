"""Receives wake-ups by LISTEN on a connection of its own, replaced when it breaks; meanwhile polling finds the work."""

from __future__ import annotations

import asyncio
import selectors
import time
from contextlib import closing
from typing import Any

import psycopg
from psycopg import sql as quoting

from fairlane.core.clock import Clock, SystemClock
from fairlane.core.tracebacks import without_frames
from fairlane.stores.postgres.connection import Connection, without_options
from fairlane.stores.postgres.errors import unreachable

RETRY_S = 1.0
PROBE_EVERY_S = 20.0
PROBE_WITHIN_S = 5.0


class PostgresListener:
    """Listens from the moment it is made, so that nothing sent after that is missed."""

    address = None

    def __init__(self, params: dict[str, Any], channel: str, clock: Clock | None = None) -> None:
        self._params = without_options(params)
        self._channel = channel
        self._clock = clock or SystemClock()
        self._conn: Connection | None = None
        self._proof = ""
        self._heard_s = 0.0
        try:
            self._listen()
        except psycopg.Error as error:
            raise unreachable(error) from without_frames(error)

    def wait(self, timeout_s: float) -> bool:
        """True when woken; also after a reconnection, since a wake-up may have been missed meanwhile."""
        woken, conn = False, self._conn  # another thread may close it meanwhile
        try:
            if conn is None:
                self._listen()
                return True
            if self._clock.monotonic() - self._heard_s > PROBE_EVERY_S:
                self._probe(conn)
                woken = _hears(conn)  # what came with the answer
            woken = woken or (_is_spoken_to(conn, timeout_s) and _hears(conn))
        except psycopg.Error:
            self.close()
            time.sleep(min(timeout_s, RETRY_S))
            return False
        if woken:
            self._heard_s = self._clock.monotonic()
        return woken

    async def await_(self, timeout_s: float) -> bool:
        return await asyncio.get_running_loop().run_in_executor(None, self.wait, timeout_s)

    def prove(self) -> None:
        # By another connection: a transaction pooler would give back what this one sends to itself.
        try:
            with closing(Connection.connect(**self._params, autocommit=True, prepare_threshold=None)) as conn:
                conn.answer_within_s = PROBE_WITHIN_S
                conn.execute("select pg_notify(%s, '')", (self._proof,))
        except psycopg.Error as error:
            raise unreachable(error) from without_frames(error)

    def close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()

    def _listen(self) -> None:
        conn = Connection.connect(**self._params, autocommit=True, prepare_threshold=None)
        try:
            # A channel of its own for the proof: the other one would wake everybody.
            self._proof = f"{self._channel}_{conn.info.backend_pid}"
            for channel in (self._channel, self._proof):
                self._ask(conn, quoting.SQL("listen {}").format(quoting.Identifier(channel)))
        except BaseException:
            conn.close()
            raise
        self._conn = conn

    def _probe(self, conn: Connection) -> None:
        """A broken session looks like one that nobody notifies: ask the server."""
        self._ask(conn, quoting.SQL("select 1"))

    def _ask(self, conn: Connection, statement: quoting.SQL | quoting.Composed) -> None:
        conn.answer_within_s = PROBE_WITHIN_S
        conn.execute(statement)
        conn.answer_within_s = None
        self._heard_s = self._clock.monotonic()


def _is_spoken_to(conn: Connection, within_s: float) -> bool:
    """Asleep until then; psycopg's own wait wakes up ten times a second."""
    with selectors.DefaultSelector() as selector:
        selector.register(conn, selectors.EVENT_READ)
        return bool(selector.select(within_s))


def _hears(conn: Connection) -> bool:
    return any(True for _ in conn.notifies(timeout=0, stop_after=1))
