"""A duty that one of all workers does at a time: who takes it in the store goes on with it, the others have nothing to do."""

from __future__ import annotations

from datetime import datetime

from fairlane.client.store_access import StoreAccess
from fairlane.core.ops import TakeDuty
from fairlane.worker.duties.report import Duty, Report


class OnceForAll:
    """Every step is safe to repeat: this only spares the store a hundred workers that look for the same work."""

    def __init__(self, duty: Duty, store: StoreAccess, every_s: float) -> None:
        self.name, self._duty, self._store, self._every_s = duty.name, duty, store, every_s
        self._has_more = False

    async def run_once(self, now: datetime) -> Report:
        if not self._has_more:
            taken = await self._store.arun(TakeDuty(name=self.name, every_s=self._every_s))
            if not taken.taken:
                return Report(next_s=self._every_s)
            # By the store's clock: a machine whose own runs ahead must not remove what is still young.
            now = taken.now
        self._has_more = False  # if this step fails, it is anybody's again
        report = await self._duty.run_once(now)
        self._has_more = report.next_s == 0
        return report
