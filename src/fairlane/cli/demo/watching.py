"""Reads the store back: what changed since the last look, and how each tenant stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from fairlane.cli.words import instant, shortened
from fairlane.client.app import Fairlane
from fairlane.core.job import STATUSES, Job


class Event(NamedTuple):
    tenant: str
    word: str
    says: str


class Look(NamedTuple):
    """The store at one moment."""

    jobs: tuple[Job, ...]
    events: tuple[Event, ...]

    def counts(self, tenant: str | None = None) -> dict[str, int]:
        found = Counter(job.status for job in self.jobs if tenant in (None, job.tenant))
        return {status: found[status] for status in STATUSES}


class Watcher:
    def __init__(self, app: Fairlane) -> None:
        self._app = app
        self._seen: dict[int, Job] = {}

    def look(self) -> Look:
        jobs = all_jobs(self._app)
        events = [*self._enqueued(jobs), *(event for job in jobs if (event := self._changed(job)) is not None)]
        self._seen = {job.seq: job for job in jobs}
        return Look(jobs, tuple(events))

    def _enqueued(self, jobs: tuple[Job, ...]) -> Iterator[Event]:
        new = Counter((job.tenant, job.type) for job in jobs if job.seq not in self._seen)
        for (tenant, kind), number in new.items():
            yield Event(tenant, "enqueued", f"{number} × {kind}" if number > 1 else kind)

    def _changed(self, job: Job) -> Event | None:
        before = self._seen.get(job.seq)
        status = "pending" if before is None else before.status
        if job.status == "failed" and (before is None or job.attempts > before.attempts):
            wait_s = (job.run_at - job.last_error_at).total_seconds() if job.last_error_at else 0.0
            why = shortened(f"{job.error_type}: {job.last_error}", 70)
            return Event(job.tenant, "failed", f"{job.type}: {why}; again in {wait_s:.1f} s")
        if job.status == "dead" and status != "dead":
            return Event(job.tenant, "dead", f"{job.type}: {shortened(job.last_error or '', 70)}")
        if job.status == "completed" and status != "completed":
            tries = f" at attempt {job.attempt}" if job.attempt > 1 else ""
            return Event(job.tenant, "completed", f"{job.type}{tries}")
        if job.status == "cancelled" and status != "cancelled":
            return Event(job.tenant, "cancelled", job.type)
        if job.status == "pending" and job.attempt > 0 and status == "processing":
            detail = self._app.detail(job)
            ended = detail.attempts[-1].outcome if detail is not None and detail.attempts else "released"
            return Event(job.tenant, ended, f"{job.type}, due {instant(job.run_at)}")
        return None


def all_jobs(app: Fairlane) -> tuple[Job, ...]:
    """Every job, oldest first."""
    found: list[Job] = []
    before: int | None = None
    while True:
        page = app.jobs(limit=200, before=before)
        found += page.jobs
        before = page.next
        if before is None:
            return tuple(reversed(found))
