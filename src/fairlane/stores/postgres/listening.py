"""Wake-ups by LISTEN, on a connection of their own. A broken one is replaced; until then polling finds the work."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from psycopg import sql as quoting

from fairlane.stores.postgres.connecting import without_options


class PostgresListener:
    address = None

    def __init__(self, params: dict[str, Any], channel: str) -> None:
        self._params = without_options(params)
        self._channel = channel
        self._conn: psycopg.Connection[Any] | None = None

    def wait(self, timeout_s: float) -> bool:
        """True when woken; also after a reconnection, since a wake-up may have been missed meanwhile."""
        try:
            if self._conn is None:
                self._conn = psycopg.connect(**self._params, autocommit=True, prepare_threshold=None)
                self._conn.execute(quoting.SQL("listen {}").format(quoting.Identifier(self._channel)))
                return True
            return any(True for _ in self._conn.notifies(timeout=timeout_s, stop_after=1))
        except psycopg.Error:
            self.close()
            raise

    async def await_(self, timeout_s: float) -> bool:
        return await asyncio.get_running_loop().run_in_executor(None, self.wait, timeout_s)

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None
