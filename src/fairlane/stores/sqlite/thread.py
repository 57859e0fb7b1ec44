"""The one thread in which a SQLite store runs what asynchronous callers ask for."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

EXIT_TRIES, EXIT_PAUSE_S = 1_000, 0.000_1


class StoreThread:
    """Runs one call after another, so that those of one process wait here and not for the file's lock.

    It starts at the first call. It ends before the process forks, as a fork copies no threads and may copy a lock in
    use; the next call starts it again, in parent and child. (tests/unit/test_sqlite_fork.py)
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._system_id: int | None = None
        _threads.add(self)

    def submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        while True:
            pool = self._pool = self._pool or ThreadPoolExecutor(1, "fairlane-sqlite", self._begin)
            try:
                return loop.run_in_executor(pool, work)
            except RuntimeError:
                if self._pool is pool:
                    raise
                # Another thread forks and has just ended this one.

    def end(self) -> None:
        """Wait for the calls at hand, then end."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True)

    def end_before_fork(self) -> None:
        """End, and wait until the system has ended the thread, too: Python 3.12 joins it a moment before, and then warns."""
        if self._pool is None:
            return
        self.end()
        for _ in range(EXIT_TRIES):
            if not os.path.exists(f"/proc/self/task/{self._system_id}"):
                return
            time.sleep(EXIT_PAUSE_S)

    def _begin(self) -> None:
        self._system_id = threading.get_native_id()


_threads: weakref.WeakSet[StoreThread] = weakref.WeakSet()


def _before_fork() -> None:
    for thread in list(_threads):
        thread.end_before_fork()


os.register_at_fork(before=_before_fork)
