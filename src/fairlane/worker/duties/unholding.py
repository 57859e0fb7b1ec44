"""The unholder: jobs held at a tenant's limit go on once there is room."""

from __future__ import annotations

from datetime import datetime

from fairlane.core.ops import ListLimits, Unhold
from fairlane.worker.duties.report import Report
from fairlane.worker.state import Desk

EVERY_S = 1.0
SELDOM_S = 30.0
"""While no limit says that anything is to be held."""
STEP = 1000


class Unholder:
    name = "unholder"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def run_once(self, now: datetime) -> Report:
        store, limits = self._desk.app.runtime.access, self._desk.app.limits.declared
        freed = (await store.arun(Unhold(limits=limits, limit=STEP))).count
        if freed:
            self._desk.wake()
            return Report(done=freed, next_s=0 if freed >= STEP else EVERY_S)
        holds = any(limit.when_full == "hold" for limit in limits) or any(
            stored.limit.when_full == "hold" for stored in (await store.arun(ListLimits())).limits
        )
        return Report(next_s=EVERY_S if holds else SELDOM_S)
