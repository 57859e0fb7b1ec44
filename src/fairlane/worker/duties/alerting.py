"""The watcher's place among the duties: one of all workers looks at a time, and each notices a store that is away."""

from __future__ import annotations

from datetime import datetime

from fairlane.alerts import AlertDuty
from fairlane.client.app import Fairlane
from fairlane.worker.duties.report import Report


class AlertKeeper:
    name = "alerts"

    def __init__(self, app: Fairlane) -> None:
        self._duty = AlertDuty(app)

    async def run_once(self, now: datetime) -> Report:
        return Report(next_s=await self._duty.step())
