"""Reads the store back: jobs, workers, breakers and schedules in one look, and what changed between two looks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from fairlane.cli.output import shortened
from fairlane.client.app import Fairlane
from fairlane.core.breaker import BreakerRecord
from fairlane.core.job import STATUSES, Job
from fairlane.core.ops import WorkerRecord
from fairlane.core.schedules import Schedule


class Look(NamedTuple):
    now: datetime
    """The store's."""
    jobs: tuple[Job, ...] = ()
    workers: tuple[WorkerRecord, ...] = ()
    breakers: tuple[BreakerRecord, ...] = ()
    schedules: tuple[Schedule, ...] = ()

    def counts(self, tenant: str | None = None) -> dict[str, int]:
        found = Counter(job.status for job in self.jobs if tenant in (None, job.tenant))
        return {status: found[status] for status in STATUSES}

    def running(self, worker: WorkerRecord) -> dict[str, int]:
        """What it runs, by type."""
        return Counter(job.type for job in self.jobs if job.worker == worker.id and job.status == "processing")


def look_at(app: Fairlane) -> Look:
    at_work = app.workers.list()
    return Look(
        now=at_work.now,
        jobs=all_jobs(app),
        workers=at_work.workers,
        breakers=app.breakers.list(),
        schedules=app.schedules.list(),
    )


def all_jobs(app: Fairlane) -> tuple[Job, ...]:
    """Every job, oldest first."""
    found: list[Job] = []
    before: int | None = None
    while True:
        page = app.jobs.list(limit=200, before=before)
        found += page.jobs
        before = page.next
        if before is None:
            return tuple(reversed(found))


def process_of(worker: WorkerRecord) -> str:
    """A worker's name is `host:pid`."""
    return worker.name.rpartition(":")[2]


GATHER_S = 1.0
"""Jobs that succeed at once are many, so they are shown together once a second."""

UNCHARGED = {"snoozed", "released", "lost"}


class DemoEvent(NamedTuple):
    who: str
    word: str
    says: str
    number: int = 1
    is_routine: bool = False

    def __str__(self) -> str:
        return f"{self.number} × {self.says}" if self.number > 1 else self.says


class EventLog:
    """What happened since the last look."""

    def __init__(self, app: Fairlane) -> None:
        self._app = app
        self._jobs: dict[int, Job] = {}
        self._breakers: dict[str, BreakerRecord] = {}
        self._schedules: dict[str, Schedule] = {}
        self._workers: dict[str, WorkerRecord] = {}
        self._went_well: Counter[tuple[str, str]] = Counter()
        self._shown_s = 0.0

    def seen(self, look: Look, elapsed_s: float) -> list[DemoEvent]:
        """The events since the last look, equal ones combined."""
        changes = Counter(self._all(look))
        events = [event._replace(number=number) for event, number in changes.items()]
        self._jobs = {job.seq: job for job in look.jobs}
        self._breakers = {breaker.name: breaker for breaker in look.breakers}
        self._schedules = {schedule.spec.name: schedule for schedule in look.schedules}
        self._workers = {str(worker.id): worker for worker in look.workers}
        if elapsed_s - self._shown_s >= GATHER_S:
            self._shown_s = elapsed_s
            events += self.rest()
        return events

    def rest(self) -> list[DemoEvent]:
        """The successful jobs not shown yet."""
        gathered, self._went_well = self._went_well, Counter()
        return [
            DemoEvent(tenant, "completed", kind, number, is_routine=True) for (tenant, kind), number in gathered.items()
        ]

    def _all(self, look: Look) -> Iterator[DemoEvent]:
        yield from self._of_workers(look)
        yield from (DemoEvent(job.tenant, "enqueued", job.type) for job in look.jobs if job.seq not in self._jobs)
        yield from (event for job in look.jobs if (event := self._of_job(job)) is not None)
        yield from (event for breaker in look.breakers if (event := self._of_breaker(breaker, look)) is not None)
        for schedule in look.schedules:
            before = self._schedules.get(schedule.spec.name)
            if schedule.last_at is not None and (before is None or schedule.last_at != before.last_at):
                late = f"{schedule.spec.name} of {schedule.last_at:%H:%M} UTC, set up as missed, is made up for"
                yield DemoEvent("schedule", "fired", late)

    def _of_workers(self, look: Look) -> Iterator[DemoEvent]:
        for worker in look.workers:
            if str(worker.id) not in self._workers:
                yield DemoEvent("worker", "ready", f"process {process_of(worker)}, queues {', '.join(worker.queues)}")

    def _of_breaker(self, breaker: BreakerRecord, look: Look) -> DemoEvent | None:
        before = self._breakers.get(breaker.name)
        if breaker.state == ("closed" if before is None else before.state):
            return None
        says = {
            "open": f"{breaker.name}, {breaker.failures} failures in a row: its jobs are snoozed",
            "half_open": f"{breaker.name}: one trial call runs",
            "closed": f"{breaker.name}: the trial call succeeded, jobs run again",
        }
        return DemoEvent("breaker", breaker.state.replace("_", " "), says[breaker.state])

    def _of_job(self, job: Job) -> DemoEvent | None:
        before = self._jobs.get(job.seq)
        if before is not None and (before.status, before.attempt, before.worker) == (
            job.status,
            job.attempt,
            job.worker,
        ):
            return None
        if job.status == "completed":
            if job.attempt > 1:
                return DemoEvent(job.tenant, "completed", f"{job.type} at attempt {job.attempt}")
            self._went_well[job.tenant, job.type] += 1
            return None
        if job.status == "dead":
            return DemoEvent(job.tenant, "dead", f"{job.type}: {shortened(job.last_error or '', 60)}")
        if job.status == "cancelled":
            return DemoEvent(job.tenant, "cancelled", job.type)
        if job.status == "failed" and (before is None or job.attempts > before.attempts):
            wait_s = (job.run_at - job.last_error_at).total_seconds() if job.last_error_at else 0.0
            why = shortened(job.last_error or "", 40)
            return DemoEvent(job.tenant, "failed", f"{job.type}: {why}; again in {wait_s:.1f} s")
        if job.status in {"pending", "failed"} and job.worker is None and job.attempt > 0:
            return self._given_back(job)
        return None

    def _given_back(self, job: Job) -> DemoEvent | None:
        detail = self._app.jobs.detail(job)
        if detail is None or not detail.attempts:
            return None
        last = detail.attempts[-1]
        if last.attempt != job.attempt or last.outcome not in UNCHARGED:
            return None
        return DemoEvent(job.tenant, last.outcome, job.type)
