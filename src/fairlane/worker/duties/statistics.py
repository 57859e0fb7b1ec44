"""Duties over the attempts of this process: flushes their sums to the store, and logs long ones on fast lanes."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import datetime

from fairlane.client.logs import GuardedLogger
from fairlane.client.store_access import StoreAccess
from fairlane.core.attempt_sums import LONG_S, AttemptStatistics
from fairlane.core.clock import Clock
from fairlane.core.ids import WorkerId
from fairlane.core.ops import AddStats, StatRow
from fairlane.errors import FairlaneError
from fairlane.worker.duties.loop import StepReport, until_minute_s
from fairlane.worker.state import WorkerState

log = GuardedLogger("fairlane.worker")

EVERY_S = 15.0
BATCH = 500
FINISH_S = 3.0
"""A stopping worker waits at most this long for its statistics."""
KEPT_BATCHES = 100
"""While the store is unreachable; beyond that the oldest batches are dropped."""


class StatisticsFlush:
    """A batch that got no answer is sent again under its number, and counts once."""

    name = "statistics"

    def __init__(self, store: StoreAccess, worker: WorkerId, statistics: AttemptStatistics, clock: Clock) -> None:
        self._store, self._worker, self.statistics, self._clock = store, worker, statistics, clock
        self._began = clock.now()
        """When the current sums began: they belong to this minute."""
        self._batches: deque[AddStats] = deque()
        self._number = 0

    async def run_once(self, now: datetime) -> StepReport:
        self._gather(now)
        written = 0
        while self._batches:
            await self._store.arun(self._batches[0])
            written += len(self._batches.popleft().rows)
        return StepReport(done=written, next_s=min(EVERY_S, until_minute_s(now)))

    async def finish(self) -> None:
        """Write the rest, if the store can be reached."""
        try:
            async with asyncio.timeout(FINISH_S):
                await self.run_once(self._clock.now())
        except (FairlaneError, TimeoutError) as error:
            log.warning("the last statistics of this worker are lost: %s", error)

    def _gather(self, now: datetime) -> None:
        rows = self.statistics.take(self._began.replace(second=0, microsecond=0))
        self._began = now
        for at in range(0, len(rows), BATCH):
            self._number += 1
            self._batches.append(self._batch(rows[at : at + BATCH]))
        while len(self._batches) > KEPT_BATCHES:
            lost = self._batches.popleft()
            log.warning(
                "statistics of %s are dropped: the store has been unreachable for too long", lost.rows[0].minute
            )

    def _batch(self, rows: list[StatRow]) -> AddStats:
        return AddStats(worker=self._worker, batch=self._number, rows=tuple(rows))


FAST_LANE_S = 1.0


class FastLane:
    """Fast lanes are the prompt ones: their slots are reserved for short jobs."""

    name = "fast_lane"

    def __init__(self, state: WorkerState) -> None:
        self._state = state
        self._lanes = frozenset(lane.name for lane in state.config.lanes if lane.prompt)
        self._reported: set[tuple[int, int]] = set()
        self.seen = 0
        """Attempts that ran longer than LONG_S on a fast lane."""

    async def run_once(self, now: datetime) -> StepReport:
        before, now_s, running = self.seen, self._state.monotonic(), set()
        for slot in self._state.slots:
            lease = slot.lease
            if lease is not None and now_s - slot.began_s > LONG_S:
                running.add((lease.seq, lease.attempt))
                self._report(lease.seq, lease.attempt, lease.lane, lease.type)
        ended = self._state.statistics.long
        while ended:
            long = ended.popleft()
            self._report(long.seq, long.attempt, long.lane, long.type)
        self._reported &= running
        return StepReport(done=self.seen - before, next_s=FAST_LANE_S)

    def _report(self, seq: int, attempt: int, lane: str, type: str) -> None:
        if lane not in self._lanes or (seq, attempt) in self._reported:
            return
        self._reported.add((seq, attempt))
        self.seen += 1
        log.warning(
            "job %d (%s) has run longer than %g s on the fast lane %s: give its task a queue of a slower lane",
            seq,
            type,
            LONG_S,
            lane,
        )
