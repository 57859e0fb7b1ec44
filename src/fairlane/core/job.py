"""What a job is: the request, the lease, the record people read.

JobSpec     what a client asks for; immutable once enqueued
Lease       the right to run one attempt, with everything a runner needs
Job         the job as people see it, put together from its facts
Attempt     how one attempt ended
StepRecord  one durable step that a job's code has behind it
DeadLetter  a job that ended dead, waiting for a person

Priorities are whole numbers, smaller first, with names for the usual ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal
from uuid import UUID

from msgspec import Raw, Struct

from fairlane.core.ids import SYSTEM_TENANT, JobId, OfLease, Seq, WorkerId
from fairlane.core.job_keys import JobKey
from fairlane.errors import InvalidOption, UnknownPriority

Status = Literal["pending", "processing", "completed", "failed", "dead", "cancelled"]
"""Derived from the facts, for people. `failed` means: failed, and waiting for its retry."""

STATUSES: tuple[Status, ...] = ("pending", "processing", "completed", "failed", "dead", "cancelled")
FINAL: frozenset[Status] = frozenset({"completed", "dead", "cancelled"})

PriorityScope = Literal["queue", "tenant"]
"""Whose line a priority orders: the whole queue's, or only the tenant's own."""

ErrorClass = Literal["transient", "retryable", "non_retryable", "rate_limited"]
ERROR_CLASSES: tuple[ErrorClass, ...] = ("transient", "retryable", "non_retryable", "rate_limited")

DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 5
DEFAULT_MAX_ATTEMPTS = 5
DEFAULT_TIMEOUT_S = 300.0


OWN_HEADERS = "fairlane-"
"""How the names of headers begin that Fairlane writes; nobody else may."""
PRIORITY_HEADER = "fairlane-priority"
"""The header that keeps a priority's label with the job: jobs without one pay nothing for it."""


class JobSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request to run one task once. A store keeps it exactly as given."""

    id: JobId
    type: str
    payload: Raw
    """Exact JSON text, one object."""
    payload_version: int = 1
    tenant: str = SYSTEM_TENANT
    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    priority_scope: PriorityScope = "queue"
    category: str | None = None
    idempotency_key: str | None = None
    """None means the job's own id: unique already, so it needs no row in the key table."""
    dedup_key: str | None = None
    correlation_id: str | None = None
    """None means the job's own id."""
    parent_id: JobId | None = None
    created_by: str | None = None
    refs: dict[str, int | str] = {}
    """The ids of the objects the job works on."""
    headers: dict[str, str] = {}
    """Carried along untouched: trace context and the like."""
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout_s: float | None = None
    """None: the worker's setting for the task or the queue."""
    retry: Raw | None = None
    """A retry policy given at the enqueue call, as JSON."""
    run_at: datetime | None = None
    delay_s: float | None = None
    """Seconds from the store's now; `run_at` wins where both are given."""
    key: JobKey | None = None
    """The key whose places it waits for."""

    @property
    def band(self) -> int:
        """The queue-wide part of the priority: the lowest band is claimed first."""
        return self.priority if self.priority_scope == "queue" else 0

    @property
    def rank(self) -> int:
        """The part of the priority that orders only the tenant's own jobs."""
        return 0 if self.priority_scope == "queue" else self.priority


class Lease(OfLease, Struct, frozen=True, gc=False):
    """Attempt `attempt` of a job belongs to one worker until `deadline_at`.

    One is made for every claimed job, by position: that takes a fifth of the time of keywords.
    """

    seq: Seq
    id: JobId
    attempt: int
    """Grows at every claim, started or not."""
    claim_no: int
    """Of the Turn that claimed it. With the worker, `seq` and `attempt` the fence: see `LeaseKey`."""
    attempts: int
    """Charged runs that have failed before this one."""
    crashes: int
    suspect: bool
    """The last started attempt ended with its process: run this one alone."""
    started: bool
    """False: prefetched, still pending, has to be reported when it starts."""
    lane: str
    type: str
    tenant: str
    queue: str
    band: int
    rank: int
    due_at: datetime
    leased_at: datetime
    deadline_at: datetime
    enqueued_at: datetime
    max_attempts: int
    payload_version: int = 1
    priority: int = DEFAULT_PRIORITY
    timeout_s: float | None = None
    category: str | None = None
    idempotency_key: str | None = None
    correlation_id: str | None = None
    parent_id: JobId | None = None
    created_by: str | None = None
    refs: dict[str, int | str] = {}
    headers: dict[str, str] = {}
    retry: Raw | None = None
    payload: str = "{}"
    """JSON text exactly as enqueued; decoded only where one bad row cannot hurt the others."""
    unreadable: str | None = None
    """Why the store could not read this job's row: nothing is run of it, and it is dead-lettered with the reason."""


AttemptOutcome = Literal["completed", "failed", "dead", "cancelled", "snoozed", "released", "lost", "failed_by_hand"]
"""`lost`: its worker died or overran. `released`: given back unstarted or interrupted, not charged."""


class Attempt(Struct, frozen=True, kw_only=True):
    """How one attempt ended. A prefetched attempt that never started has no `started_at`."""

    attempt: int
    outcome: AttemptOutcome
    worker: WorkerId | None
    leased_at: datetime
    expires_at: datetime | None
    """When its lease would have ended; None: it had none, or older code has recorded it."""
    started_at: datetime | None
    ended_at: datetime
    error_class: ErrorClass | None = None
    error_type: str | None = None
    error_message: str | None = None
    traceback: str | None = None


StepKind = Literal["call", "sleep", "wait"]
"""`call`: a function was called. `sleep`: it gave its slot back for a while. `wait`: it waited for a signal."""


class StepRecord(Struct, frozen=True, kw_only=True):
    """A durable step that a job's code has behind it: a later attempt gets its result and does not repeat it."""

    n: int
    """Its place among the steps of the job, from 1."""
    kind: StepKind
    name: str
    """Of a wait: the signal's."""
    key: str
    """The key of the signal; empty for the other kinds."""
    attempt: int
    """The attempt that recorded it, or went to sleep or to wait."""
    at: datetime
    """When it was recorded; a sleep: when it began."""
    ran_s: float | None = None
    """How long the call ran."""
    result: str | None = None
    """JSON text: what the call returned, or the signal's data."""
    until: datetime | None = None
    """When a sleep ends."""
    signal: UUID | None = None
    """The signal that ended a wait; None: no wait, or it ended without one, at its timeout."""


class SignalWait(Struct, frozen=True, kw_only=True):
    """The signal that a job waits for, and gave its slot back meanwhile."""

    n: int
    """The step it waits in."""
    name: str
    key: str
    until: datetime
    """When it goes on without the signal."""


class Job(Struct, frozen=True, kw_only=True):
    """A job as people see it. `status` and the instants are derived from its facts."""

    seq: Seq
    id: JobId
    type: str
    status: Status
    tenant: str
    queue: str
    priority: int
    category: str | None
    payload: str
    payload_version: int
    idempotency_key: str
    dedup_key: str | None
    correlation_id: str
    parent_id: JobId | None
    created_by: str | None
    refs: dict[str, int | str]
    headers: dict[str, str]
    attempt: int
    attempts: int
    crashes: int
    max_attempts: int
    timeout_s: float | None
    enqueued_at: datetime
    scheduled_at: datetime
    """When it was first due."""
    run_at: datetime
    """When it is, or was last, due."""
    started_at: datetime | None
    """When its live attempt, or the one that ended it, started."""
    finished_at: datetime | None
    worker: WorkerId | None
    """Who holds its lease now, or held it at the end."""
    cancel_requested: bool
    """Leased, and asked to stop."""
    result: str | None
    """JSON text."""
    error_class: ErrorClass | None
    error_type: str | None
    last_error: str | None
    last_error_at: datetime | None
    key: str | None = None
    """The key whose places it waits for."""

    @property
    def priority_label(self) -> str | None:
        """The label its priority was given by; None: it was a number, or the default."""
        return self.headers.get(PRIORITY_HEADER)

    def __repr__(self) -> str:
        error = "" if self.error_type is None else f", {self.error_type}"
        tried = f"{self.attempts} of {self.max_attempts} attempts failed{error}" if self.attempts else "never failed"
        return f"<Job {self.seq} {self.id} {self.type} of {self.tenant}: {self.status}, {tried}>"


DeadLetterStatus = Literal["pending_review", "retried", "resolved", "discarded"]
DEAD_LETTER_STATUSES: tuple[DeadLetterStatus, ...] = ("pending_review", "retried", "resolved", "discarded")


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A job that ended dead, and what people did about it. Its `id` is the job's `seq`."""

    id: Seq
    job: Job
    status: DeadLetterStatus
    reason: str
    """The error message, its first 2,000 characters."""
    error_class: ErrorClass
    error_type: str
    fingerprint: str
    """Alike for failures that are alike: groups them for review."""
    died_at: datetime
    acknowledged_by: str | None
    acknowledged_at: datetime | None
    closed_by: str | None
    closed_at: datetime | None
    resolution_notes: str | None
    """The notes of the act that closed it last."""
    reprocess_count: int
    reprocessed_as: JobId | None
    """The newest job made from it."""

    def __repr__(self) -> str:
        what = f"{self.status}, {self.error_type}: {self.reason}"
        return f"<DeadLetter {self.id} {self.job.type} of {self.job.tenant}: {what}>"


HIGHEST_NUMBER = 32_767
DEFAULT_LABELS: Mapping[str, int] = {"high": 0, "normal": 5, "low": 10}


class Priorities:
    """The labels an application uses for its priorities."""

    def __init__(self, labels: Mapping[str, int] = DEFAULT_LABELS) -> None:
        given: list[tuple[object, object]] = list(labels.items())
        for label, number in given:
            if not isinstance(label, str) or not label or label.lstrip("-").isdigit():
                raise InvalidOption("priority label", label, "a word, such as high")
            _check_number(f'priority "{label}"', number)
        self._labels = dict(labels)

    @property
    def labels(self) -> Mapping[str, int]:
        return dict(self._labels)

    def resolve(self, priority: str | int) -> int:
        """The number a label or a number stands for."""
        if isinstance(priority, str):
            if priority not in self._labels:
                raise UnknownPriority(priority, self._labels)
            return self._labels[priority]
        return _check_number("priority", priority)


def _check_number(option: str, number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= HIGHEST_NUMBER:
        raise InvalidOption(option, number, f"a label, or a whole number from 0 to {HIGHEST_NUMBER}")
    return number
