"""Stops attempts past their timeout, and releases prefetched jobs that find no slot here. No timer per job."""

from __future__ import annotations

import asyncio

from fairlane.client.logs import GuardedLogger
from fairlane.core.ids import LeaseKey
from fairlane.core.ops.turn import START_BY_S
from fairlane.worker.state import WorkerState

log = GuardedLogger("fairlane.worker")

WATCH_S = 0.1
"""Seconds between checks, while anything runs or waits for a slot."""
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
