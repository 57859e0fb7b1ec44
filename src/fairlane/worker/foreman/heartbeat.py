"""Keeps a worker's heartbeat: from the foreman's process, so that nothing the worker does can hold it up."""

from __future__ import annotations

import asyncio
import logging
import socket

from fairlane.core.clock import Clock
from fairlane.core.ops import Renew
from fairlane.stores.base import Store
from fairlane.worker.foreman.process import WorkerProcess

log = logging.getLogger("fairlane.foreman")

RETRY_S = 0.5


class Renewer:
    """Renews one worker every third of its lease, and at once when it has something new to say."""

    def __init__(self, store: Store, clock: Clock, process: WorkerProcess) -> None:
        self._store, self._clock, self._process = store, clock, process
        self._every_s = process.setup.config.lease_s / 3
        self._has_failed = False
        self._is_ended = False

    def end(self) -> None:
        """No heartbeat is sent after this one: a late one would register again who has just been signed off."""
        self._is_ended = True
        self._process.news.set()

    async def renew_until_ended(self) -> None:
        news = self._process.news
        while not self._is_ended:
            news.clear()
            pause_s = self._every_s if await self.run_once() else min(RETRY_S, self._every_s)
            try:
                async with asyncio.timeout(pause_s):
                    await news.wait()
            except TimeoutError:
                continue

    async def run_once(self) -> bool:
        """One heartbeat; whether it reached the store."""
        process, sent_s = self._process, self._clock.monotonic()
        try:
            async with asyncio.timeout(self._every_s):
                answer = await self._store.arun(self._heartbeat())
        except Exception as error:  # noqa: BLE001 - a service loop: no error of one heartbeat may end all of them
            if not self._has_failed:
                log.warning(
                    "worker %d: its heartbeat did not reach the store, trying again: %s",
                    process.pid,
                    error or "no answer",
                )
            self._has_failed = True
            return False
        if self._has_failed:
            log.warning("worker %d: its heartbeat reaches the store again", process.pid)
        self._has_failed = False
        process.renewed(sent_s, answer)
        return True

    def _heartbeat(self) -> Renew:
        process = self._process
        assert process.hello is not None
        return Renew(
            worker=process.worker,
            lease_s=process.setup.config.lease_s,
            name=f"{socket.gethostname()}:{process.pid}",
            queues=process.hello.queues,
            types=process.hello.types,
            wake_address=process.tick.wake_address,
            figures=process.tick.figures,
        )
