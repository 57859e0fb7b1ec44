"""The fast lane's watcher: a job that runs long where only short ones belong is reported, once."""

from __future__ import annotations

import logging
from datetime import datetime

from fairlane.worker.duties.report import Report
from fairlane.worker.state import Desk
from fairlane.worker.statistics import LONG_S

log = logging.getLogger("fairlane.worker")

EVERY_S = 1.0


class FastLaneWatcher:
    """Fast lanes are the prompt ones: their slots are kept for work that is over soon."""

    name = "fast_lane"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._lanes = frozenset(lane.name for lane in desk.config.lanes if lane.prompt)
        self._reported: set[tuple[int, int]] = set()
        self.seen = 0
        """Attempts that ran longer than LONG_S on a fast lane."""

    async def run_once(self, now: datetime) -> Report:
        before, now_s, running = self.seen, self._desk.monotonic(), set()
        for slot in self._desk.slots:
            lease = slot.lease
            if lease is not None and now_s - slot.began_s > LONG_S:
                running.add((lease.seq, lease.attempt))
                self._report(lease.seq, lease.attempt, lease.lane, lease.type)
        ended = self._desk.statistics.long
        while ended:
            long = ended.popleft()
            self._report(long.seq, long.attempt, long.lane, long.type)
        self._reported &= running
        return Report(done=self.seen - before, next_s=EVERY_S)

    def _report(self, seq: int, attempt: int, lane: str, type: str) -> None:
        if lane not in self._lanes or (seq, attempt) in self._reported:
            return
        self._reported.add((seq, attempt))
        self.seen += 1
        log.warning(
            "job %d (%s) has run longer than %g s on the fast lane %s: give it a queue of the general lane",
            seq,
            type,
            LONG_S,
            lane,
        )
