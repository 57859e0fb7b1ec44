"""The firer: due schedules make their jobs. Any number of workers may fire at once; each nominal time makes one job."""

from __future__ import annotations

import logging
from datetime import datetime

from fairlane.client.admin.schedules import scheduled_job
from fairlane.client.app import Fairlane
from fairlane.core.ops import Check, Fire, Fired, ListSchedules
from fairlane.core.schedules.cron import Cron
from fairlane.core.schedules.schedule import Schedule, firing_of
from fairlane.errors import BadInput
from fairlane.worker.duties.report import Report, until_minute_s

log = logging.getLogger("fairlane.worker")

EVERY_S = 10.0
STEP = 100
"""Schedules fired in one step."""


class Firer:
    """Time is the store's: a worker whose clock is wrong fires neither early nor twice."""

    name = "firer"

    def __init__(self, app: Fairlane) -> None:
        self._app = app
        self._crons: dict[tuple[str, str], Cron] = {}
        self._unreadable: set[tuple[str, str, str]] = set()
        self.fired = 0
        """Jobs this process has made of schedules."""

    async def run_once(self, now: datetime) -> Report:
        store = self._app.runtime.access
        due = (await store.arun(ListSchedules(due=True, limit=STEP))).schedules
        jobs, moved = 0, False
        if due:
            at = (await store.arun(Check())).now
            for schedule in due:
                fired = await self._fire(schedule, at)
                if fired is not None:
                    jobs += len(fired.job_ids)
                    moved = moved or fired.outcome in {"fired", "skipped"}
        self.fired += jobs
        # Moved on and still due: one of a queue of firings, or more than one step holds.
        more = moved and len(due) == STEP
        return Report(done=jobs, next_s=0 if more else min(EVERY_S, until_minute_s(now)))

    async def _fire(self, schedule: Schedule, now: datetime) -> Fired | None:
        spec, expected = schedule.spec, schedule.next_at
        assert expected is not None
        try:
            cron = self._cron(spec.cron, spec.timezone)
        except BadInput as error:
            # Written straight by SQL, or by a newer Fairlane: said once, and left to whoever can read it.
            if (spec.name, spec.cron, spec.timezone) not in self._unreadable:
                self._unreadable.add((spec.name, spec.cron, spec.timezone))
                log.error("schedule %s cannot be read and does not fire: %s", spec.name, error)  # noqa: TRY400
            return None
        firing = firing_of(schedule, cron, now)
        fired = await self._app.runtime.access.arun(
            Fire(
                name=spec.name,
                expected_at=expected,
                jobs=tuple(scheduled_job(self._app.runtime, spec, nominal) for nominal in firing.nominal),
                fired_at=firing.fired_at,
                next_at=firing.next_at,
            )
        )
        if fired.outcome == "skipped":
            log.info("schedule %s skipped %s: its last job is unfinished", spec.name, firing.fired_at)
        elif fired.outcome == "fired" and not firing.nominal:
            log.info("schedule %s makes up for nothing missed until %s", spec.name, firing.fired_at)
        return fired

    def _cron(self, line: str, timezone: str) -> Cron:
        found = self._crons.get((line, timezone))
        if found is None:
            if len(self._crons) > 1000:
                self._crons.clear()
            found = self._crons[line, timezone] = Cron(line, timezone)
        return found
