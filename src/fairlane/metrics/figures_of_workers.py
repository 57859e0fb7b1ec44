"""Counters out of what workers say of themselves: each counts from its own start, and goes."""

from __future__ import annotations

from fairlane.core.ids import WorkerId
from fairlane.core.ops import Workers

PAYLOAD = "payload.under_"
COUNTERS = ("fast_lane.long", "schedules.fired")


class WorkerTally:
    """Adds what each worker's figures grew by. A worker seen for the first time after the first look counts from 0."""

    def __init__(self) -> None:
        self._seen: dict[WorkerId, dict[str, float]] = {}
        self._has_begun = False
        self.totals: dict[str, float] = dict.fromkeys(COUNTERS, 0.0)
        self.payloads: dict[int, float] = {}
        """Attempts by size of payload: how many were under so many characters, and not under half of that."""

    def take_in(self, workers: Workers) -> None:
        now = {worker.id: worker.figures for worker in workers.workers}
        for worker, figures in now.items():
            before = self._seen.get(worker, {})
            for name, value in figures.items():
                if name in self.totals or name.startswith(PAYLOAD):
                    self._add(name, max(value - before.get(name, 0.0), 0.0) if self._has_begun else 0.0)
        self._seen, self._has_begun = now, True

    def _add(self, name: str, grown: float) -> None:
        if name in self.totals:
            self.totals[name] += grown
        elif (size := name.removeprefix(PAYLOAD)).isdecimal():
            self.payloads[int(size)] = self.payloads.get(int(size), 0.0) + grown
