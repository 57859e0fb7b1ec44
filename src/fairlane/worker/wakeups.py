"""Listens for the store's wake-ups in a thread. A wake-up is a hint; polling finds what it misses."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from fairlane.core.ids import WorkerId
from fairlane.errors import FairlaneError
from fairlane.stores.base import Listener, Store

log = logging.getLogger("fairlane.worker")

WAIT_S = 0.5


class WakeUpListener:
    """Calls `wake` on the loop for every wake-up, until closed."""

    def __init__(self, store: Store, worker: WorkerId, wake: Callable[[], None]) -> None:
        self._store, self._worker, self._wake = store, worker, wake
        self._listener: Listener | None = None
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    async def start(self) -> str | None:
        """Start listening; returns the address to register, where the store needs one."""
        loop = asyncio.get_running_loop()
        try:
            self._listener = await asyncio.to_thread(self._store.listener, self._worker)
        except FairlaneError as error:
            log.warning("no wake-ups for now, polling only: %s", error)
            return None
        self._thread = threading.Thread(
            target=self._listen, args=(loop, self._listener), name="fairlane-wakeups", daemon=True
        )
        self._thread.start()
        return self._listener.address

    async def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 2 * WAIT_S)
        if self._listener is not None:
            await asyncio.to_thread(self._listener.close)

    def _listen(self, loop: asyncio.AbstractEventLoop, listener: Listener) -> None:
        while not self._closed.is_set():
            if listener.wait(WAIT_S) and not self._closed.is_set():
                try:
                    loop.call_soon_threadsafe(self._wake)
                except RuntimeError:
                    return  # the loop is closed
