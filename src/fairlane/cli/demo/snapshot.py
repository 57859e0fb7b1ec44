"""Reads the store back: how each tenant, worker, breaker and schedule stands, all in one look."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import NamedTuple

from fairlane.client.app import Fairlane
from fairlane.core.breaker import Breaker
from fairlane.core.job import STATUSES, Job
from fairlane.core.ops import WorkerRecord
from fairlane.core.schedules.schedule import Schedule


class Look(NamedTuple):
    now: datetime
    """The store's."""
    jobs: tuple[Job, ...] = ()
    workers: tuple[WorkerRecord, ...] = ()
    breakers: tuple[Breaker, ...] = ()
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
