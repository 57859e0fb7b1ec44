"""The weigher: what this worker's lanes need to share fairly and to claim ahead with care: tenants' weights, and the limits people set."""

from __future__ import annotations

from datetime import datetime

from fairlane.core.ops import ListLimits, ReadWeights
from fairlane.worker.duties.report import Report
from fairlane.worker.state import Desk

EVERY_S = 3.0


class Weigher:
    name = "weigher"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._started: int | None = None

    async def run_once(self, now: datetime) -> Report:
        desk = self._desk
        if desk.started == self._started and not desk.busy():
            return Report(next_s=EVERY_S)  # nothing was shared since
        self._started = desk.started
        store = desk.app.runtime.access
        weights = (await store.arun(ReadWeights())).weights
        for state in desk.lanes:
            state.planner.accounts.weigh(weights)
        desk.limits.learn((await store.arun(ListLimits())).limits)
        return Report(done=len(weights), next_s=EVERY_S)
