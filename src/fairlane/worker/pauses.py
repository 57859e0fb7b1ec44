"""Releases prefetched jobs of paused queues, types and tenants."""

from __future__ import annotations

import asyncio

from fairlane.client.logs import GuardedLogger
from fairlane.core.job import Lease
from fairlane.core.ops import ListPauses
from fairlane.errors import StoreError, StoreUnavailable
from fairlane.worker.state import WorkerState

log = GuardedLogger("fairlane.worker")

CHECK_S = 1.5


class PauseMonitor:
    """Reads the pauses only while jobs are held: a Turn applies pauses by itself."""

    def __init__(self, state: WorkerState) -> None:
        self._state = state

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await self.run_once()
            except StoreUnavailable as error:
                self._state.outage.failed(error)
            except StoreError as error:
                log.warning("pauses could not be read: %s", error)

    async def run_once(self) -> int:
        """Release held jobs that are paused; how many."""
        state = self._state
        if not any(lane.held for lane in state.lanes):
            return 0
        paused = {(pause.kind, pause.name) for pause in (await state.app.runtime.store.arun(ListPauses())).pauses}

        def is_paused(lease: Lease) -> bool:
            return not paused.isdisjoint(
                (("queue", lease.queue), ("type", lease.type), ("tenant", lease.tenant)),
            )

        count = 0
        for lane in state.lanes:
            unwanted = sum(map(is_paused, lane.held))
            if unwanted:
                state.give_back(lane, is_paused)
            count += unwanted
        return count
