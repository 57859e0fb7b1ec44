"""The flusher: what this process's attempts came to is added to the store's figures, minute by minute."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from datetime import datetime

from fairlane.client.store_access import StoreAccess
from fairlane.core.clock import Clock
from fairlane.core.ids import WorkerId
from fairlane.core.ops import AddStats, StatRow
from fairlane.errors import FairlaneError
from fairlane.worker.duties.report import Report, until_minute_s
from fairlane.worker.statistics import Statistics

log = logging.getLogger("fairlane.worker")

EVERY_S = 15.0
BATCH = 500
FINISH_S = 3.0
"""Nobody waits longer than this for figures when a worker leaves."""
KEPT_BATCHES = 100
"""While the store is away; past that the oldest figures are dropped."""


class Flusher:
    """A batch that got no answer is sent again under its number, and counts once."""

    name = "flusher"

    def __init__(self, store: StoreAccess, worker: WorkerId, statistics: Statistics, clock: Clock) -> None:
        self._store, self._worker, self.statistics, self._clock = store, worker, statistics, clock
        self._began = clock.now()
        """When the sums that are being made began: they are of this minute."""
        self._batches: deque[AddStats] = deque()
        self._number = 0

    async def run_once(self, now: datetime) -> Report:
        self._gather(now)
        written = 0
        while self._batches:
            await self._store.arun(self._batches[0])
            written += len(self._batches.popleft().rows)
        return Report(done=written, next_s=min(EVERY_S, until_minute_s(now)))

    async def finish(self) -> None:
        """Write what is left, if the store can be reached."""
        try:
            async with asyncio.timeout(FINISH_S):
                await self.run_once(self._clock.now())
        except (FairlaneError, TimeoutError) as error:
            log.warning("the last figures of this worker are lost: %s", error)

    def _gather(self, now: datetime) -> None:
        rows = self.statistics.take(self._began.replace(second=0, microsecond=0))
        self._began = now
        for at in range(0, len(rows), BATCH):
            self._number += 1
            self._batches.append(self._batch(rows[at : at + BATCH]))
        while len(self._batches) > KEPT_BATCHES:
            lost = self._batches.popleft()
            log.warning("figures of %s are dropped: the store has been away too long", lost.rows[0].minute)

    def _batch(self, rows: list[StatRow]) -> AddStats:
        return AddStats(worker=self._worker, batch=self._number, rows=tuple(rows))
