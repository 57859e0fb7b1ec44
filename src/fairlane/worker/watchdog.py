"""The watchdog: looks at what runs now and then, and asks what has run too long to stop. No timer per job.

What was claimed ahead and finds no slot goes back, too: other workers may have one.
"""

from __future__ import annotations

import asyncio
import logging

from fairlane.core.ops.turn import START_BY_S
from fairlane.worker.state import Desk

log = logging.getLogger("fairlane.worker")

WATCH_S, IDLE_S = 0.1, 0.25
"""How often it looks while anything runs or waits for a slot, and while nothing does."""
HELD_S = 2.0
"""So long a job claimed ahead waits for a slot here."""


class Watchdog:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._reported: set[tuple[int, int]] = set()

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S if self._desk.busy() else IDLE_S)
            self.run_once(self._desk.monotonic())

    def run_once(self, now_s: float) -> None:
        for state in self._desk.lanes:
            ahead = [lease for lease in state.held if not lease.started]
            oldest = min(ahead, key=lambda lease: lease.deadline_at, default=None)
            if oldest is not None and self._desk.left_s(oldest, now_s) < START_BY_S - HELD_S:
                state.is_clogged = True
                self._desk.give_back(state, lambda lease: not lease.started)
        for slot in self._desk.slots:
            lease = slot.lease
            if lease is None:
                continue
            ran_s = now_s - slot.began_s
            if ran_s > slot.timeout_s:
                slot.stop("timeout", now_s)
            if ran_s > 2 * slot.timeout_s and (lease.seq, lease.attempt) not in self._reported:
                # The store buries it as stuck; here only the process could be ended, which is the foreman's to do.
                self._reported.add((lease.seq, lease.attempt))
                log.error("job %s (%s) ignores its timeout of %g s", lease.id, lease.type, slot.timeout_s)

    def stuck(self, now_s: float) -> int:
        """Attempts past twice their timeout: their slots are lost until the process is recycled."""
        return sum(
            1 for slot in self._desk.slots if slot.lease is not None and now_s - slot.began_s > 2 * slot.timeout_s
        )
