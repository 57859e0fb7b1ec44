"""Schedules as values: a cron line, the job it enqueues, and the rules for missed and overlapping firings.

`firing_of` says which nominal times of a due schedule fire, with which jobs, and when it is due again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal

from msgspec import Raw, Struct

from fairlane.core.ids import SYSTEM_TENANT, JobId
from fairlane.core.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, DEFAULT_QUEUE, JobSpec, PriorityScope
from fairlane.core.schedules.cron import Cron

CatchUp = Literal["none", "latest", "all"]
"""Of several firings that came due unseen (no worker ran): none is made up for, the latest, or all up to a limit.
A single firing that is late by less than its own interval is made in any case: it was not missed, only late."""

Overlap = Literal["allow", "skip", "queue"]
"""When the job of the last firing is unfinished: fire all the same, skip this firing, or fire once that job has ended.
"""

ScheduleSource = Literal["code", "person"]


class ScheduleSpec(Struct, frozen=True, kw_only=True):
    """What a schedule says. The same words declared again change nothing."""

    name: str
    type: str
    cron: str
    timezone: str = "UTC"
    payload: str = "{}"
    """JSON text, one object."""
    payload_version: int = 1
    tenant: str = SYSTEM_TENANT
    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    category: str | None = None
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout_s: float | None = None
    catch_up: CatchUp = "latest"
    catch_up_limit: int = 10
    overlap: Overlap = "allow"


class Schedule(Struct, frozen=True, kw_only=True):
    """A schedule and where it stands."""

    spec: ScheduleSpec
    source: ScheduleSource
    next_at: datetime | None
    """The next nominal time; None: it never fires again."""
    last_at: datetime | None = None
    """The newest nominal time fired or skipped."""
    last_job_id: JobId | None = None
    paused_at: datetime | None = None
    declared_at: datetime


SCHEDULE_HEADER = "fairlane-schedule"
NOMINAL_HEADER = "fairlane-nominal-time"
"""Headers of a fired job: the schedule's name, and the time it stands for, which is not when it ran."""


class Firing(Struct, frozen=True):
    nominal: tuple[datetime, ...]
    """A job for each of these."""
    fired_at: datetime
    """The newest nominal time that is dealt with."""
    next_at: datetime | None


def firing_of(schedule: Schedule, cron: Cron, now: datetime) -> Firing:
    """How a due schedule moves on at `now`, by its catch-up policy.

    A worker whose clock is behind the store's still fires what the store says is due.
    """
    spec, expected = schedule.spec, schedule.next_at
    assert expected is not None
    now = max(now, expected)
    limit = spec.catch_up_limit if spec.catch_up == "all" else 1
    due = cron.latest(max(limit, 2), _since(schedule, cron, expected), now)
    next_at = cron.next_after(now)
    if not due:
        return Firing((), expected, next_at)
    if len(due) == 1:
        return Firing(due, due[-1], next_at)
    if spec.overlap == "queue":
        # One at a time: the next is due at once, and waits in the store until the job of this one has ended.
        made = due[-limit:]
        return Firing(made[:1], made[0], made[1] if len(made) > 1 else next_at)
    if spec.catch_up == "none":
        return Firing((), due[-1], next_at)
    # All at once they would overlap each other, which `skip` rules out.
    return Firing(due[-1:] if spec.overlap == "skip" else due[-limit:], due[-1], next_at)


def nominal_key(name: str, nominal: datetime) -> str:
    """The idempotency key of a firing: one job for each nominal time, whoever fires it and however often."""
    return f"schedule:{name}:{nominal_text(nominal)}"


def nominal_text(nominal: datetime) -> str:
    return nominal.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def job_of(
    spec: ScheduleSpec,
    id: JobId,
    *,
    nominal: datetime | None,
    priority_scope: PriorityScope = "queue",
    refs: Mapping[str, int | str] | None = None,
) -> JobSpec:
    """The job a schedule enqueues; without a nominal time, one beside its timetable."""
    headers = {SCHEDULE_HEADER: spec.name}
    if nominal is not None:
        headers[NOMINAL_HEADER] = nominal_text(nominal)
    return JobSpec(
        id=id,
        type=spec.type,
        payload=Raw(spec.payload.encode()),
        payload_version=spec.payload_version,
        tenant=spec.tenant,
        queue=spec.queue,
        priority=spec.priority,
        priority_scope=priority_scope,
        category=spec.category,
        idempotency_key=None if nominal is None else nominal_key(spec.name, nominal),
        created_by=f"schedule:{spec.name}",
        refs=dict(refs or {}),
        headers=headers,
        max_attempts=spec.max_attempts,
        timeout_s=spec.timeout_s,
    )


def _since(schedule: Schedule, cron: Cron, expected: datetime) -> datetime:
    """Where to begin: at `next_at`; if the zone's rules have changed since and it is no nominal time any more, behind
    the last one.
    """
    if schedule.last_at is None or cron.fires_at(expected):
        return expected
    return schedule.last_at + timedelta(microseconds=1)
