"""Listens for the store's wake-ups in a thread. A wake-up is a hint; polling finds what it misses."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial

from fairlane.client.logs import GuardedLogger
from fairlane.core.ids import WorkerId
from fairlane.errors import FairlaneError
from fairlane.stores.base import Listener, Store
from fairlane.worker.services import keep_thread

log = GuardedLogger("fairlane.worker")

WAIT_S = 0.5
RETRY_S = 5.0
"""Between two tries to listen at a store that cannot be reached."""


class WakeUpListener:
    """Calls `wake` on the loop for every wake-up, until closed."""

    def __init__(self, store: Store, worker: WorkerId, wake: Callable[[], None]) -> None:
        self._store, self._worker, self._wake = store, worker, wake
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: Listener | None = None
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._is_proven = False
        """A wake-up was received, or sent to itself: a worker that knows that they arrive polls less often."""

    @property
    def address(self) -> str | None:
        """Registered with the heartbeat, where the store needs one."""
        return None if self._listener is None else self._listener.address

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            self._listener = await asyncio.to_thread(self._store.listener, self._worker)
        except FairlaneError as error:
            log.warning("no wake-ups for now, polling only: %s", error)
        listen = partial(keep_thread, "the wake-up listener", self._listen, is_ending=self._closed.is_set, log=log)
        self._thread = threading.Thread(target=listen, name="fairlane-wakeups", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 2 * WAIT_S)
        if self._listener is not None:
            await asyncio.to_thread(self._listener.close)

    def _listen(self) -> None:
        assert self._loop is not None
        while not self._closed.is_set():
            if self._listener is None:
                try:
                    self._listener = self._store.listener(self._worker)
                except FairlaneError:
                    self._closed.wait(RETRY_S)
                    continue
            try:
                is_woken = self._listener.wait(WAIT_S)
            except FairlaneError:
                self._closed.wait(RETRY_S)
                continue
            if not (is_woken or self._is_proven):
                self._is_proven = True
                with contextlib.suppress(FairlaneError):
                    self._listener.prove()
            if is_woken and not self._closed.is_set():
                self._is_proven = True
                try:
                    self._loop.call_soon_threadsafe(self._wake)
                except RuntimeError:
                    self._closed.set()  # the loop is closed
