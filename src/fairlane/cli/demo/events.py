"""What changed between two looks, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from fairlane.cli.demo.snapshot import Look, process_of
from fairlane.cli.output import shortened
from fairlane.client.app import Fairlane
from fairlane.core.breaker import Breaker
from fairlane.core.job import Job
from fairlane.core.ops import WorkerRecord
from fairlane.core.schedules.schedule import Schedule

GATHER_S = 1.0
"""Jobs that went well at once are told by the second: there are many."""

UNCHARGED = {"snoozed", "released", "lost"}


class Event(NamedTuple):
    who: str
    word: str
    says: str
    number: int = 1
    is_routine: bool = False

    def __str__(self) -> str:
        return f"{self.number} × {self.says}" if self.number > 1 else self.says


class Teller:
    def __init__(self, app: Fairlane) -> None:
        self._app = app
        self._jobs: dict[int, Job] = {}
        self._breakers: dict[str, Breaker] = {}
        self._schedules: dict[str, Schedule] = {}
        self._workers: dict[str, WorkerRecord] = {}
        self._went_well: Counter[tuple[str, str]] = Counter()
        self._told_s = 0.0

    def tell(self, look: Look, elapsed_s: float) -> list[Event]:
        """What happened since the last look, alike events in one."""
        told = Counter(self._all(look))
        events = [event._replace(number=number) for event, number in told.items()]
        self._jobs = {job.seq: job for job in look.jobs}
        self._breakers = {breaker.name: breaker for breaker in look.breakers}
        self._schedules = {schedule.spec.name: schedule for schedule in look.schedules}
        self._workers = {str(worker.id): worker for worker in look.workers}
        if elapsed_s - self._told_s >= GATHER_S:
            self._told_s = elapsed_s
            events += self.rest()
        return events

    def rest(self) -> list[Event]:
        """The jobs that went well and were not told yet."""
        gathered, self._went_well = self._went_well, Counter()
        return [
            Event(tenant, "completed", kind, number, is_routine=True) for (tenant, kind), number in gathered.items()
        ]

    def _all(self, look: Look) -> Iterator[Event]:
        yield from self._of_workers(look)
        yield from (Event(job.tenant, "enqueued", job.type) for job in look.jobs if job.seq not in self._jobs)
        yield from (event for job in look.jobs if (event := self._of_job(job)) is not None)
        yield from (event for breaker in look.breakers if (event := self._of_breaker(breaker, look)) is not None)
        for schedule in look.schedules:
            before = self._schedules.get(schedule.spec.name)
            if schedule.last_at is not None and (before is None or schedule.last_at != before.last_at):
                late = f"{schedule.spec.name} of {schedule.last_at:%H:%M} UTC, set up as missed, is made up for"
                yield Event("schedule", "fired", late)

    def _of_workers(self, look: Look) -> Iterator[Event]:
        for worker in look.workers:
            if str(worker.id) not in self._workers:
                yield Event("worker", "ready", f"process {process_of(worker)}, queues {', '.join(worker.queues)}")

    def _of_breaker(self, breaker: Breaker, look: Look) -> Event | None:
        before = self._breakers.get(breaker.name)
        if breaker.state == ("closed" if before is None else before.state):
            return None
        says = {
            "open": f"{breaker.name}, {breaker.failures} failures in a row: its jobs are snoozed",
            "half_open": f"{breaker.name}: one call is tried",
            "closed": f"{breaker.name}: the call went well, all may go on",
        }
        return Event("breaker", breaker.state.replace("_", " "), says[breaker.state])

    def _of_job(self, job: Job) -> Event | None:
        before = self._jobs.get(job.seq)
        if before is not None and (before.status, before.attempt, before.worker) == (
            job.status,
            job.attempt,
            job.worker,
        ):
            return None
        if job.status == "completed":
            if job.attempt > 1:
                return Event(job.tenant, "completed", f"{job.type} at attempt {job.attempt}")
            self._went_well[job.tenant, job.type] += 1
            return None
        if job.status == "dead":
            return Event(job.tenant, "dead", f"{job.type}: {shortened(job.last_error or '', 60)}")
        if job.status == "cancelled":
            return Event(job.tenant, "cancelled", job.type)
        if job.status == "failed" and (before is None or job.attempts > before.attempts):
            wait_s = (job.run_at - job.last_error_at).total_seconds() if job.last_error_at else 0.0
            why = shortened(job.last_error or "", 40)
            return Event(job.tenant, "failed", f"{job.type}: {why}; again in {wait_s:.1f} s")
        if job.status in {"pending", "failed"} and job.worker is None and job.attempt > 0:
            return self._given_back(job)
        return None

    def _given_back(self, job: Job) -> Event | None:
        detail = self._app.jobs.detail(job)
        if detail is None or not detail.attempts:
            return None
        last = detail.attempts[-1]
        if last.attempt != job.attempt or last.outcome not in UNCHARGED:
            return None
        return Event(job.tenant, last.outcome, job.type)
