"""Jobs: read them, list them, ask why one waits, and change one by hand.

A change by hand says by whom, and its audit record is written in the same commit: `before` and `after` are {"status",
"attempts"}. A page holds 1 to MAX_PAGE, whatever its `limit`.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from msgspec import Struct

from fairlane.core.ids import JobId, Seq, WorkerId
from fairlane.core.job import Attempt, Job, SignalWait, Status, StepRecord
from fairlane.core.limits import Limit, LimitKind, Rate
from fairlane.core.ops.base import Act, Listing, Op, RefusalCode, Scope
from fairlane.core.ops.job_keys import KeyUse
from fairlane.core.ops.pauses import Pause


class JobAct(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of an act on a job. A refused act changed nothing and wrote no audit record."""

    refused: RefusalCode | None = None
    job: Job | None = None
    """The job after the act; for `not_allowed`, as it is."""


class _JobChange(Act[JobAct], frozen=True, kw_only=True):
    scope: Scope
    id: JobId


class Cancel(_JobChange, frozen=True, kw_only=True):
    """End a waiting job as cancelled; ask a leased one to stop (its status stays until its attempt ends).

    Cancelling a cancelled job, or one already asked to stop, is fine and writes nothing. Audit: `job_cancel`.
    """


class Fail(_JobChange, frozen=True, kw_only=True):
    """Fail an unfinished job by hand, charging one attempt.

    With `retry_delay_s` and attempts left: scheduled at now + delay. Otherwise: dead. A leased job loses its lease and
    its attempt is recorded `failed_by_hand`; a waiting one takes the next attempt number for such a record, with no
    worker, leased and ended now. Error type `FailedByHand`, class `retryable` when delay and attempts let it run again,
    else `non_retryable`; message = `reason`. A cancel asked for earlier makes it end cancelled instead of scheduled.
    Clears `suspect`. Audit: `job_fail`.
    """

    words: ClassVar[tuple[str, ...]] = ("by", "notes", "reason")

    reason: str
    retry_delay_s: float | None = None


class Bury(_JobChange, frozen=True, kw_only=True):
    """Send an unfinished job to the dead letters now, uncharged. Error type `Buried`, class `non_retryable`.

    Its attempt is recorded as for `Fail`. Audit: `job_bury`.
    """

    words: ClassVar[tuple[str, ...]] = ("by", "notes", "reason")

    reason: str


class Reset(_JobChange, frozen=True, kw_only=True):
    """Take a leased job from its worker by hand: ready again with the due time it had, uncharged.

    Its attempt is recorded `released`.
    If a cancel was asked for it ends cancelled. Not allowed from anywhere else. Audit: `job_reset`.
    """


class FreePlace(_JobChange, frozen=True, kw_only=True):
    """Give up the place that a job has at its key: the next one is let in, also while this one goes on.

    Not allowed for a job that has none. Audit: `job_place_free`.
    """


LOG_LINES = 100
"""Newest log lines kept for each job."""


class LogLine(Struct, frozen=True, kw_only=True):
    at: datetime
    attempt: int
    message: str


class Noted(Struct, frozen=True, kw_only=True):
    accepted: bool
    """False: the lease is gone; nothing was written."""


class Note(Op[Noted], frozen=True, kw_only=True):
    """Record progress (0 to 1) and log lines of a running attempt, guarded by its lease.

    Read with GetJob; removed with the job.
    """

    repeatable: ClassVar[bool] = False

    worker: WorkerId
    seq: Seq
    attempt: int
    claim_no: int
    progress: float | None = None
    log: tuple[str, ...] = ()
    """Each kept as a LogLine of now; beyond LOG_LINES the oldest go."""


class JobDetail(Struct, frozen=True, kw_only=True):
    """A job with its attempts, its progress and its log lines."""

    job: Job
    attempts: tuple[Attempt, ...]
    """By attempt number, oldest first."""
    progress: float | None = None
    """What an attempt of it said last; a later attempt that says none leaves it."""
    log: tuple[LogLine, ...] = ()
    """Oldest first."""
    steps: tuple[StepRecord, ...] = ()
    """Its durable steps so far, by `n`."""
    waits_for: SignalWait | None = None
    """The signal it waits for now, in `scheduled`."""


class GetJob(Op[JobDetail | None], frozen=True, kw_only=True):
    scope: Scope
    id: JobId


class JobStatus(Struct, frozen=True, kw_only=True):
    """How a job stands, without its payload and its history."""

    status: Status
    type: str
    run_at: datetime
    finished_at: datetime | None = None
    error_type: str | None = None
    last_error: str | None = None
    result: str | None = None


def status_of(job: Job) -> JobStatus:
    return JobStatus(**{name: getattr(job, name) for name in JobStatus.__struct_fields__})


class GetStatus(Op[JobStatus | None], frozen=True, kw_only=True):
    """What GetJob says of one job in these fields, at the same cost however long its history is."""

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
    started_before: datetime | None = None
    """Running now, in an attempt that started before this."""


class JobPage(Listing, Struct, frozen=True, kw_only=True):
    shown = ("jobs", "seq", "id", "type", "status", "tenant", "queue", "attempts", "enqueued_at", "last_error")

    jobs: tuple[Job, ...]
    next: Seq | None
    """Pass as `before` for the next page; None: there is none."""


class PageJobs(Op[JobPage], frozen=True, kw_only=True):
    """Jobs, newest (highest seq) first. A job that is there throughout appears exactly once over all pages."""

    scope: Scope
    where: JobFilter = JobFilter()
    before: Seq | None = None
    limit: int = 50


WaitPlace = Literal["ready", "scheduled", "held", "leased", "completed", "dead", "cancelled"]


class LimitState(Struct, frozen=True, kw_only=True):
    """One limit a job is under, and how far it is used."""

    kind: LimitKind
    name: str
    queue: str
    running: int | None
    """Allowed; None: no limit."""
    leases: int
    """Leases counted under it now; 0 where `running` is None."""
    rate: Rate | None
    starts: int
    """Claims counted in the rate's last period; 0 where `rate` is None."""
    free_at: datetime | None
    """When the rate, or the pause, lets the next one through; None: now."""


class Waiting(Struct, frozen=True, kw_only=True):
    """The facts about a job's waiting. Counts stop at TENANT_COUNT_CAP."""

    now: datetime
    job: Job
    place: WaitPlace
    ahead: int = 0
    """Ready: jobs before it in its own line."""
    more_urgent: int = 0
    """Ready: jobs of its queue in more urgent bands."""
    tenants: int = 0
    """Ready: other tenants with ready jobs in its queue and band."""
    pauses: tuple[Pause, ...] = ()
    """Those that concern it, by kind."""
    limits: tuple[LimitState, ...] = ()
    """Those with a running limit, a rate or a pause that lasts, in the order of `keys_of`; unfinished jobs only."""
    waiting_limit: int | None = None
    """Its tenant's `waiting` limit in its queue."""
    workers: int = 0
    """Live workers that serve its queue (or name none)."""
    knowing: int = 0
    """Of these, workers that know its type (or name none)."""
    waits_for: SignalWait | None = None
    """The signal it waits for, in `scheduled`."""
    suspect: bool = False
    """Its last started attempt ended with its process: it runs alone."""
    worker_until: datetime | None = None
    """Leased: when its worker counts as lost unless it renews."""
    key: KeyUse | None = None
    """Unfinished, and it has a key: how far that is used."""
    key_ahead: int | None = None
    """Jobs before it at its key; None: it is not held there."""


class Why(Op[Waiting | None], frozen=True, kw_only=True):
    """Why a job waits. None: no such job in this scope."""

    scope: Scope
    id: JobId
    limits: tuple[Limit, ...] = ()
