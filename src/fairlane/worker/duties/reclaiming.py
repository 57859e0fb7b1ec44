"""The reclaimer: jobs of lost workers run again, jobs past twice their timeout are buried."""

from __future__ import annotations

import logging
from datetime import datetime

from fairlane.client.store_access import StoreAccess
from fairlane.core.ops import AddEvents, Reclaim
from fairlane.core.ops.turn import RECLAIM_LIMIT
from fairlane.worker.duties.report import Report
from fairlane.worker.events import losses

log = logging.getLogger("fairlane.worker")

EVERY_S = 10.0


class Reclaimer:
    name = "reclaimer"

    def __init__(self, store: StoreAccess) -> None:
        self._store = store

    async def run_once(self, now: datetime) -> Report:
        reclaimed = (await self._store.arun(Reclaim())).reclaimed
        for lease in reclaimed:
            log.warning(
                "attempt %d of job %s was taken from worker %s (%s): the job is %s",
                lease.attempt,
                lease.id,
                lease.worker,
                lease.cause,
                lease.became,
            )
        if events := losses(reclaimed):
            await self._store.arun(AddEvents(events=events))
        return Report(done=len(reclaimed), next_s=0 if len(reclaimed) >= RECLAIM_LIMIT else EVERY_S)
