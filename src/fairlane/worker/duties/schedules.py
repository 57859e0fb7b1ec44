"""Fires due schedules, and registers the schedules that the application's code declares."""

from __future__ import annotations

from datetime import datetime

from fairlane.client.admin.schedules import MAX_LISTED, scheduled_job
from fairlane.client.app import Fairlane
from fairlane.client.logs import GuardedLogger
from fairlane.core.ops import Check, DeclareSchedules, Fire, Fired, ListSchedules, Planned
from fairlane.core.schedules import Schedule, ScheduleSpec, Timetable, firing_of, timetable_of
from fairlane.errors import BadInput
from fairlane.worker.duties.loop import StepReport, until_minute_s

log = GuardedLogger("fairlane.worker")

EVERY_S = 10.0
"""Seconds between looks when none is due earlier: a schedule that was added meanwhile waits no longer."""
STEP = 100
"""Schedules fired in one step."""


class DueSchedules:
    """Makes the jobs of due schedules. Any number of workers may fire at once: each nominal time makes one job.

    By the store's clock: a worker whose clock is wrong fires neither early nor twice.
    """

    name = "schedules"

    def __init__(self, app: Fairlane) -> None:
        self._app = app
        self._timetables: dict[ScheduleSpec, Timetable | None] = {}
        self.fired = 0
        """Jobs this process has made for schedules."""

    async def run_once(self, now: datetime) -> StepReport:
        store = self._app.runtime.access
        found = await store.arun(ListSchedules(due=True, limit=STEP))
        due, jobs, moved = found.schedules, 0, False
        waits_s = [EVERY_S, until_minute_s(now), *(() if found.next_s is None else (found.next_s,))]
        if due:
            at = (await store.arun(Check())).now
            for schedule in due:
                timetable = self._timetable(schedule.spec)
                if timetable is None:
                    continue
                fired = await self._fire(schedule, timetable, at)
                jobs += len(fired.job_ids)
                moved = moved or fired.outcome in {"fired", "skipped"}
                next_at = timetable.next_after(at)
                if next_at is not None:
                    waits_s.append((next_at - at).total_seconds())
        self.fired += jobs
        # A full page of due schedules: there may be more.
        more = moved and len(due) == STEP
        return StepReport(done=jobs, next_s=0 if more else min(waits_s))

    async def set_back(self) -> int:
        """After the store's clock was set back: let those that would wait for the wrong future fire at their next time.

        A nominal time that has fired in that future makes no second job: its idempotency key is taken.
        """
        store, moved = self._app.runtime.access, 0
        schedules = (await store.arun(ListSchedules(limit=MAX_LISTED))).schedules
        now = (await store.arun(Check())).now  # after what was read: who fires meanwhile moves the schedule on
        for schedule in schedules:
            timetable, expected = self._timetable(schedule.spec), schedule.next_at
            next_at = None if timetable is None else timetable.next_after(now)
            if expected is not None and next_at is not None and next_at < expected and schedule.paused_at is None:
                fire = Fire(name=schedule.spec.name, expected_at=expected, jobs=(), fired_at=None, next_at=next_at)
                moved += (await store.arun(fire)).outcome == "fired"
        return moved

    async def _fire(self, schedule: Schedule, timetable: Timetable, now: datetime) -> Fired:
        spec, expected = schedule.spec, schedule.next_at
        assert expected is not None
        firing = firing_of(schedule, timetable, now)
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

    def _timetable(self, spec: ScheduleSpec) -> Timetable | None:
        """None: written directly by SQL or by a newer Fairlane. Logged once, and left to a worker that can read it."""
        if spec not in self._timetables:
            if len(self._timetables) > MAX_LISTED:
                self._timetables.clear()
            try:
                self._timetables[spec] = timetable_of(spec)
            except BadInput as error:
                log.error("schedule %s cannot be read and does not fire: %s", spec.name, error)  # noqa: TRY400
                self._timetables[spec] = None
        return self._timetables[spec]


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
        planned = tuple(Planned(spec=spec, next_at=timetable_of(spec).next_after(at)) for spec in specs)
        declared = await app.runtime.access.arun(
            DeclareSchedules(schedules=planned, prune=app.runtime.settings.prune_schedules)
        )
        for what in ("added", "changed", "removed"):
            if names := getattr(declared, what):
                log.info("schedules %s: %s", what, ", ".join(names))
        return StepReport(done=len(declared.added + declared.changed + declared.removed), next_s=None)
