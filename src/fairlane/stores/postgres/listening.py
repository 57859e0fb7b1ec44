"""Wake-ups by LISTEN, on a connection of their own. A broken one is replaced; until then polling finds the work."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg
from psycopg import sql as quoting

from fairlane.stores.postgres.connecting import unreachable, without_options

RETRY_S = 1.0


class PostgresListener:
    """Listens from the moment it is made, so that nothing sent after that is missed."""

    address = None

    def __init__(self, params: dict[str, Any], channel: str) -> None:
        self._params = without_options(params)
        self._channel = channel
        self._conn: psycopg.Connection[Any] | None = None
        try:
            self._listen()
        except psycopg.Error as error:
            raise unreachable(error) from error

    def wait(self, timeout_s: float) -> bool:
        """True when woken; also after a reconnection, since a wake-up may have been missed meanwhile."""
        try:
            if self._conn is None:
                self._listen()
                return True
            return any(True for _ in self._conn.notifies(timeout=timeout_s, stop_after=1))
        except psycopg.Error:
            self.close()
            time.sleep(min(timeout_s, RETRY_S))
            return False

    async def await_(self, timeout_s: float) -> bool:
        return await asyncio.get_running_loop().run_in_executor(None, self.wait, timeout_s)

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _listen(self) -> None:
        conn = psycopg.connect(**self._params, autocommit=True, prepare_threshold=None)
        try:
            conn.execute(quoting.SQL("listen {}").format(quoting.Identifier(self._channel)))
        except BaseException:
            conn.close()
            raise
        self._conn = conn
