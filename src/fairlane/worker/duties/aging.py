"""The ager: in queues that ask for it, jobs that have waited long move up, so that low priority does not wait for ever."""

from __future__ import annotations

from datetime import datetime

from fairlane.client.app import Fairlane
from fairlane.core.ops import Age
from fairlane.worker.duties.report import Report

STEP = 1000
LONGEST_S = 60.0


class Ager:
    name = "ager"

    def __init__(self, app: Fairlane) -> None:
        self._app = app
        self._spans = {
            name: policy.aging_s for name, policy in app.runtime.settings.queues.items() if policy.aging_s is not None
        }

    async def run_once(self, now: datetime) -> Report:
        if not self._spans:
            return Report(next_s=None)
        counts = [
            (await self._app.runtime.access.arun(Age(queue=queue, every_s=every_s, limit=STEP))).count
            for queue, every_s in self._spans.items()
        ]
        # Twice in each span: nobody moves up later than by half a span.
        rest_s = min(LONGEST_S, *(every_s / 2 for every_s in self._spans.values()))
        return Report(done=sum(counts), next_s=0 if max(counts) >= STEP else rest_s)
