"""The promoter: scheduled jobs whose time has come are made ready, also while every slot here is taken."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from fairlane.client.store_access import StoreAccess
from fairlane.core.ops import Promote
from fairlane.core.ops.turn import PROMOTE_LIMIT
from fairlane.worker.duties.report import Report

EVERY_S = 5.0


class Promoter:
    name = "promoter"

    def __init__(
        self, store: StoreAccess, wake: Callable[[], None], turned_within: Callable[[float], bool] = lambda _: False
    ) -> None:
        self._store, self._wake, self._turned_within = store, wake, turned_within

    async def run_once(self, now: datetime) -> Report:
        if self._turned_within(EVERY_S):
            return Report(next_s=EVERY_S)  # every Turn promotes
        promoted = (await self._store.arun(Promote())).count
        if promoted:
            self._wake()
        return Report(done=promoted, next_s=0 if promoted >= PROMOTE_LIMIT else EVERY_S)
