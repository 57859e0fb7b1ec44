"""Events of this process are told, more often while somebody watches."""

from __future__ import annotations

from datetime import datetime

from fairlane.worker.duties.report import Report
from fairlane.worker.telling import Teller

WATCHED_EVERY_S = 1.0
EVERY_S = 3.0


class EventFlusher:
    name = "teller"

    def __init__(self, teller: Teller) -> None:
        self._teller = teller

    async def run_once(self, now: datetime) -> Report:
        told = await self._teller.flush()
        return Report(done=told, next_s=WATCHED_EVERY_S if self._teller.is_watched else EVERY_S)
