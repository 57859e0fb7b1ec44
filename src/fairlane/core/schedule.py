"""Schedules as values: a cron line, what it enqueues, and what happens to firings that were missed or overlap."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from fairlane.core.ids import SYSTEM_TENANT, JobId
from fairlane.core.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, DEFAULT_QUEUE

CatchUp = Literal["none", "latest", "all"]
"""Of several firings that came due unseen (no worker ran): none is made up for, the latest, or all up to a limit.
A single firing that is late by less than its own interval is made in any case: it was not missed, only late."""

Overlap = Literal["allow", "skip", "queue"]
"""When the job of the last firing is unfinished: fire all the same, skip this firing, or fire once that job has ended."""

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
