"""Fires due schedules, and registers the schedules that the application's code declares."""

from __future__ import annotations

from datetime import datetime

from fairlane.client.admin.schedules import MAX_LISTED, scheduled_job
from fairlane.client.app import Fairlane
from fairlane.client.logs import GuardedLogger
from fairlane.core.ops import Check, DeclareSchedules, Fire, Fired, ListSchedules, Planned
from fairlane.core.schedules import Cron, Schedule, firing_of
from fairlane.errors import BadInput
from fairlane.worker.duties.loop import StepReport, until_minute_s

log = GuardedLogger("fairlane.worker")

EVERY_S = 10.0
STEP = 100
"""Schedules fired in one step."""


class DueSchedules:
    """Makes the jobs of due schedules. Any number of workers may fire at once: each nominal time makes one job.

    By the store's clock: a worker whose clock is wrong fires neither early nor twice.
    """

    name = "schedules"

    def __init__(self, app: Fairlane) -> None:
        self._app = app
        self._crons: dict[tuple[str, str], Cron] = {}
        self._unreadable: set[tuple[str, str, str]] = set()
        self.fired = 0
        """Jobs this process has made for schedules."""

    async def run_once(self, now: datetime) -> StepReport:
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
        # A full page of due schedules: there may be more.
        more = moved and len(due) == STEP
        return StepReport(done=jobs, next_s=0 if more else min(EVERY_S, until_minute_s(now)))

    async def set_back(self) -> int:
        """After the store's clock was set back: let those that would wait for the wrong future fire at their next time.

        A nominal time that has fired in that future makes no second job: its idempotency key is taken.
        """
        store, moved = self._app.runtime.access, 0
        schedules = (await store.arun(ListSchedules(limit=MAX_LISTED))).schedules
        now = (await store.arun(Check())).now  # after what was read: who fires meanwhile moves the schedule on
        for schedule in schedules:
            cron, expected = schedule.cron, schedule.next_at
            next_at = None if cron is None else cron.next_after(now)
            if expected is not None and next_at is not None and next_at < expected and schedule.paused_at is None:
                fire = Fire(name=schedule.spec.name, expected_at=expected, jobs=(), fired_at=None, next_at=next_at)
                moved += (await store.arun(fire)).outcome == "fired"
        return moved

    async def _fire(self, schedule: Schedule, now: datetime) -> Fired | None:
        spec, expected = schedule.spec, schedule.next_at
        assert expected is not None
        try:
            cron = self._cron(spec.cron, spec.timezone)
        except BadInput as error:
            # Written directly by SQL or by a newer Fairlane: logged once, and left to a worker that can read it.
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
            log.info("schedule %s skipped the times it missed until %s", spec.name, firing.fired_at)
        return fired

    def _cron(self, line: str, timezone: str) -> Cron:
        found = self._crons.get((line, timezone))
        if found is None:
            if len(self._crons) > 1000:
                self._crons.clear()
            found = self._crons[line, timezone] = Cron(line, timezone)
        return found


class ScheduleDeclarations:
    """Registers the schedules declared in the application's code, once for each start."""

    name = "code_schedules"

    def __init__(self, app: Fairlane) -> None:
        self._app = app

    async def run_once(self, now: datetime) -> StepReport:
        app, specs = self._app, tuple(self._app.runtime.schedules.values())
        if not specs and not app.runtime.settings.prune_schedules:
            return StepReport(next_s=None)
        at = (await app.runtime.access.arun(Check())).now
        planned = tuple(Planned(spec=spec, next_at=Cron(spec.cron, spec.timezone).next_after(at)) for spec in specs)
        declared = await app.runtime.access.arun(
            DeclareSchedules(schedules=planned, prune=app.runtime.settings.prune_schedules)
        )
        for what in ("added", "changed", "removed"):
            if names := getattr(declared, what):
                log.info("schedules %s: %s", what, ", ".join(names))
        return StepReport(done=len(declared.added + declared.changed + declared.removed), next_s=None)
