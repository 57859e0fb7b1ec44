"""psycopg connections that do not wait for ever.

A server's statement timeout is of no use when its answer never arrives: a router that forgot the connection, a frozen
proxy. Keepalives do not help where something in between answers them.
"""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

from fairlane.core.clock import SystemClock
from fairlane.stores.postgres.translating import NoAnswer

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
