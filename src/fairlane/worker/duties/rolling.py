"""The roller: jobs enqueued are added to the figures of their minutes, each once."""

from __future__ import annotations

from datetime import datetime

from fairlane.client.store_access import StoreAccess
from fairlane.core.ops import RollUpEnqueued
from fairlane.worker.duties.report import Report

EVERY_S = 30.0
STEP = 5000


class Roller:
    name = "roll_up"

    def __init__(self, store: StoreAccess) -> None:
        self._store = store

    async def run_once(self, now: datetime) -> Report:
        jobs = (await self._store.arun(RollUpEnqueued(limit=STEP))).jobs
        return Report(done=jobs, next_s=0 if jobs >= STEP else EVERY_S)
