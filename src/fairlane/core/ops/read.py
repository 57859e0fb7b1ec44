"""What people and programs ask. Reading changes nothing and is always bounded: a page holds 1 to MAX_PAGE, whatever its `limit`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Literal

from msgspec import Struct

from fairlane.core.ids import JobId, Seq
from fairlane.core.job import Attempt, DeadLetter, DeadLetterStatus, ErrorClass, Job, Status
from fairlane.core.ops.base import Op, Scope
from fairlane.core.ops.workers import LogLine

MAX_PAGE = 200


class JobDetail(Struct, frozen=True, kw_only=True):
    job: Job
    attempts: tuple[Attempt, ...]
    """By attempt number, oldest first."""
    progress: float | None = None
    """What an attempt of it said last; a later attempt that says none leaves it."""
    log: tuple[LogLine, ...] = ()
    """Oldest first."""


class GetJob(Op["JobDetail | None"], frozen=True, kw_only=True):
    answer: ClassVar[object] = JobDetail | None

    scope: Scope
    id: JobId


class JobFilter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every given field must match what `Job` shows; within `statuses` any. From: at or after; before: strictly."""

    statuses: tuple[Status, ...] = ()
    queue: str | None = None
    type: str | None = None
    category: str | None = None
    correlation_id: str | None = None
    parent_id: JobId | None = None
    created_by: str | None = None
    idempotency_key: str | None = None
    enqueued_from: datetime | None = None
    enqueued_before: datetime | None = None


class JobPage(Struct, frozen=True, kw_only=True):
    jobs: tuple[Job, ...]
    next: Seq | None
    """Pass as `before` for the next page; None: there is none."""


class PageJobs(Op[JobPage], frozen=True, kw_only=True):
    """Jobs, newest (highest seq) first. A job that is there throughout appears exactly once over all pages."""

    answer: ClassVar[object] = JobPage

    scope: Scope
    where: JobFilter = JobFilter()
    before: Seq | None = None
    limit: int = 50


class DeadLetterFilter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    status: DeadLetterStatus | None = None
    acknowledged: bool | None = None
    queue: str | None = None
    type: str | None = None
    error_class: ErrorClass | None = None
    error_type: str | None = None
    fingerprint: str | None = None
    correlation_id: str | None = None


class DeadLetterPage(Struct, frozen=True, kw_only=True):
    dead_letters: tuple[DeadLetter, ...]
    next: Seq | None
    total: int
    """How many match on all pages, counted up to COUNT_CAP."""


class PageDeadLetters(Op[DeadLetterPage], frozen=True, kw_only=True):
    """Dead letters, newest (highest id) first."""

    answer: ClassVar[object] = DeadLetterPage

    scope: Scope
    where: DeadLetterFilter = DeadLetterFilter()
    before: Seq | None = None
    limit: int = 50


class DeadLetterDetail(Struct, frozen=True, kw_only=True):
    dead_letter: DeadLetter
    attempts: tuple[Attempt, ...]


class GetDeadLetter(Op["DeadLetterDetail | None"], frozen=True, kw_only=True):
    answer: ClassVar[object] = DeadLetterDetail | None

    scope: Scope
    id: Seq


COUNT_CAP = 100_000
"""Counts stop here: the cap itself means "that many or more"."""


class QueueStats(Struct, frozen=True, kw_only=True):
    queue: str
    pending: int
    """Ready, held, scheduled for the first time or snoozed, and prefetched."""
    ready: int
    scheduled: int
    """Everything in `scheduled`, awaiting retry or not."""
    processing: int
    failed: int
    """Failed and waiting for their retry."""
    oldest_due_at: datetime | None
    """The earliest due time among the ready."""
    held: int = 0
    """Kept back until their tenant has room."""


class Stats(Struct, frozen=True, kw_only=True):
    now: datetime
    queues: tuple[QueueStats, ...]
    """Queues with unfinished jobs, by name."""
    completed: int
    dead: int
    cancelled: int
    dead_letters: dict[str, int]
    """By dead-letter status, those with any."""


StatsPart = Literal["queues", "ended", "dead_letters"]


class GetStats(Op[Stats], frozen=True, kw_only=True):
    """Counts by queue and status, all of one moment: every number is the true one, or `cap` where that is higher."""

    answer: ClassVar[object] = Stats

    scope: Scope
    cap: int = COUNT_CAP
    rough: bool = False
    """A queue's number over `cap` is an estimate instead, never below `cap`. Of one tenant's dead letters only those are counted that
    are among the newest `cap` of their status. For who asks often: without "ended" the cost goes with the queues and with the tenants
    that wait in them, not with the jobs."""
    parts: tuple[StatsPart, ...] = ("queues", "ended", "dead_letters")
    """What is counted: queues, jobs by how they ended, dead letters. The rest is 0 or empty."""


class AuditRecord(Struct, frozen=True, kw_only=True):
    id: int
    at: datetime
    by: str
    action: str
    tenant: str | None
    target: str
    """`job:<uuid>` or `dead_letter:<id>`."""
    notes: str | None
    before: dict[str, Any] | None
    """Like `after` JSON values; an instant is text in UTC with six digits of microseconds: "2026-03-01T12:00:00.000000Z"."""
    after: dict[str, Any] | None


class AuditPage(Struct, frozen=True, kw_only=True):
    records: tuple[AuditRecord, ...]
    next: int | None


class PageAudit(Op[AuditPage], frozen=True, kw_only=True):
    """Audit records, newest first."""

    answer: ClassVar[object] = AuditPage

    scope: Scope
    action: str | None = None
    target: str | None = None
    before: int | None = None
    limit: int = 50
