"""Stops attempts past their timeout, and releases prefetched jobs that are paused or find no slot. No timer per job."""

from __future__ import annotations

import asyncio

from fairlane.client.logs import GuardedLogger
from fairlane.core.ids import LeaseKey
from fairlane.core.job import Lease
from fairlane.core.ops import ListPauses
from fairlane.core.ops.turn import START_BY_S
from fairlane.errors import StoreError, StoreUnavailable
from fairlane.worker.state import WorkerState

log = GuardedLogger("fairlane.worker")

WATCH_S = 0.1
"""Seconds between checks, while anything runs or waits for a slot."""
PAUSES_S = 1.5
"""Seconds between looks at the pauses, while jobs are held."""
HELD_S = 2.0
"""How long a prefetched job waits for a slot here: another worker may have one free."""


class Watchdog:
    def __init__(self, state: WorkerState) -> None:
        self._state = state
        self._reported: set[LeaseKey] = set()

    async def run(self) -> None:
        while True:
            if not self._state.busy():
                self._state.begun.clear()
                await self._state.begun.wait()
            await asyncio.sleep(WATCH_S)
            self.run_once(self._state.monotonic())

    def run_once(self, now_s: float) -> None:
        for lane in self._state.lanes:
            oldest = min(lane.held, key=lambda lease: lease.deadline_at, default=None)
            if oldest is not None and self._state.left_s(oldest, now_s) < START_BY_S - HELD_S:
                lane.is_clogged = True
                self._state.give_back(lane, lambda _: True)
            while lane.calls and now_s - (lane.calls[0].ready_s or now_s) > HELD_S:
                lane.is_clogged = True
                lane.calls.popleft().give_back()
        for slot in self._state.slots:
            lease = slot.lease
            if lease is None:
                continue
            ran_s = now_s - slot.began_s
            if ran_s > slot.timeout_s:
                slot.stop("timeout")
            if ran_s > 2 * slot.timeout_s and lease.key not in self._reported:
                # The store buries it as stuck; only the foreman can end it, with the whole process.
                self._reported.add(lease.key)
                log.error("job %s (%s) ignores its timeout of %g s", lease.id, lease.type, slot.timeout_s)


class PauseMonitor:
    """Releases held jobs of paused queues, types and tenants. A Turn applies pauses by itself."""

    def __init__(self, state: WorkerState) -> None:
        self._state = state

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PAUSES_S)
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
