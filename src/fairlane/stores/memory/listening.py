"""Wake-ups inside one process: from any thread, to threads and event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Condition


class MemoryListener:
    """Waits until an enqueue wakes its worker. A wake-up that came before the wait is not lost."""

    address: str | None = None

    def __init__(self, on_close: Callable[[MemoryListener], None]) -> None:
        self._on_close = on_close
        self._changed = Condition()
        self._woken = self._closed = False
        self._sleepers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._rouse()

    def wait(self, timeout_s: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._woken or self._closed, timeout_s)
            return self._consume()

    async def await_(self, timeout_s: float) -> bool:
        sleeper = (asyncio.get_running_loop(), asyncio.Event())
        with self._changed:
            if self._woken or self._closed:
                return self._consume()
            self._sleepers.add(sleeper)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(sleeper[1].wait(), timeout_s)
        finally:
            with self._changed:
                self._sleepers.discard(sleeper)
        with self._changed:
            return self._consume()

    def close(self) -> None:
        """End every wait on it."""
        with self._changed:
            self._closed = True
            self._rouse()
        self._on_close(self)

    def _rouse(self) -> None:
        self._changed.notify_all()
        for loop, event in self._sleepers:
            with suppress(RuntimeError):  # its loop is closed: nobody waits there any more
                loop.call_soon_threadsafe(event.set)

    def _consume(self) -> bool:
        woken, self._woken = self._woken and not self._closed, False
        return woken
