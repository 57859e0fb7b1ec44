"""Events of this process are told, more often while somebody watches."""

from __future__ import annotations

from datetime import datetime

from fairlane.worker.duties.report import Report
from fairlane.worker.state import Desk

WATCHED_EVERY_S = 1.0
EVERY_S = 3.0


class EventFlusher:
    name = "teller"

    def __init__(self, desk: Desk) -> None:
        self._desk, self._teller = desk, desk.teller
        self._ended: int | None = None

    async def run_once(self, now: datetime) -> Report:
        if self._desk.ended == self._ended and not self._teller.has_untold:
            return Report(next_s=EVERY_S)  # nothing happened that anybody could want to hear
        self._ended = self._desk.ended
        told = await self._teller.flush()
        return Report(done=told, next_s=WATCHED_EVERY_S if self._teller.is_watched else EVERY_S)
