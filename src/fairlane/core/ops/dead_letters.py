"""Dead letters: list and group them, try them again, or close them.

An act says by whom, and its audit record is written in the same commit: `before` and `after` are {"status",
"acknowledged_by"}.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from msgspec import Raw, Struct

from fairlane.core.ids import JobId, Seq
from fairlane.core.job import Attempt, DeadLetter, DeadLetterStatus, ErrorClass, Job
from fairlane.core.ops.base import COUNT_CAP, Act, Listing, Op, RefusalCode, Scope


class DeadLetterAct(Struct, frozen=True, kw_only=True, omit_defaults=True):
    refused: RefusalCode | None = None
    dead_letter: DeadLetter | None = None
    new_job: Job | None = None
    """Reprocess: the job that runs in its place."""
    repeated: bool = False
    """Reprocess: that job was there already; nothing was written."""


class _DeadLetterChange(Act[DeadLetterAct], frozen=True, kw_only=True):
    scope: Scope
    id: Seq


class Reprocess(_DeadLetterChange, frozen=True, kw_only=True):
    """Make a new job of a dead one: same type, tenant, queue, priority, payload, version, category, refs, headers,
    limits and correlation.

    Its idempotency key is `<old key>_retry_<n>`, n counting the reprocesses of this dead letter; no dedup key; its
    parent is the parent of the dead one; `created_by` = by. Allowed from `pending_review`; from `retried` only when the
    job made last ended dead or cancelled or is gone, else that job is returned, `repeated`. From `resolved` and
    `discarded`: not allowed. The letter becomes `retried`, closed by and at. Should the new key be taken by another
    job, n grows until one is free. `new_job_id` again, after a lost reply: `repeated`, however that job fared; the id
    of any other job: not allowed. With `payload` the new job has that one, the dead one keeps its own. With `delay_s`
    it is due that much later.

    Audit: `job_dlq_reprocess_requested` (`after` None), also where it is then not allowed, at each such call; then
    `job_dlq_reprocess_success` (`after` adds "new_job_id", and "payload_edited": true where the payload is another).
    """

    repeatable: ClassVar[bool] = True

    new_job_id: JobId
    payload: Raw | None = None
    """Exact JSON text, one object."""
    delay_s: float | None = None


class Discard(_DeadLetterChange, frozen=True, kw_only=True):
    """Close a dead letter, with notes, as not worth another try. From `pending_review` and `retried`.

    Audit: `job_dlq_discard`.
    """


class Resolve(_DeadLetterChange, frozen=True, kw_only=True):
    """Close a dead letter, with notes, as dealt with. From `pending_review` and `retried`. Audit: `job_dlq_resolve`."""


class Acknowledge(_DeadLetterChange, frozen=True, kw_only=True):
    """Record who looks after it. A flag, not a status: allowed in every status; the first name stays.

    Audit, the first time: `job_dlq_acknowledge`.
    """


class DeadLetterFilter(Struct, frozen=True, kw_only=True, omit_defaults=True):
    status: DeadLetterStatus | None = None
    acknowledged: bool | None = None
    queue: str | None = None
    type: str | None = None
    category: str | None = None
    error_class: ErrorClass | None = None
    error_type: str | None = None
    fingerprint: str | None = None
    correlation_id: str | None = None


class DeadLetterPage(Listing, Struct, frozen=True, kw_only=True):
    shown = ("dead_letters", "id", "status", "job.type", "job.tenant", "died_at", "error_type", "reason")

    dead_letters: tuple[DeadLetter, ...]
    next: Seq | None
    total: int
    """How many match on all pages, counted up to `cap`."""


class PageDeadLetters(Op[DeadLetterPage], frozen=True, kw_only=True):
    """Dead letters, newest (highest id) first."""

    scope: Scope
    where: DeadLetterFilter = DeadLetterFilter()
    before: Seq | None = None
    limit: int = 50
    cap: int = COUNT_CAP
    """How far all that match are counted; 0: not at all."""


class DeadLetterDetail(Struct, frozen=True, kw_only=True):
    dead_letter: DeadLetter
    attempts: tuple[Attempt, ...]


class GetDeadLetter(Op[DeadLetterDetail | None], frozen=True, kw_only=True):
    scope: Scope
    id: Seq


class DeadLetterGroup(Struct, frozen=True, kw_only=True):
    """Dead letters that failed alike."""

    fingerprint: str
    type: str
    error_type: str
    reason: str
    """Of the newest, like `type` and `error_type`."""
    count: int
    tenants: int
    first_at: datetime
    last_at: datetime
    """When the first and the last of them died."""
    newest: int
    """Id of the newest dead letter."""


class DeadLetterGroups(Struct, frozen=True, kw_only=True):
    groups: tuple[DeadLetterGroup, ...]
    """By count, highest first, then by fingerprint."""


class GroupDeadLetters(Op[DeadLetterGroups], frozen=True, kw_only=True):
    """Dead letters that match, newest 10,000 at most, put together by fingerprint."""

    scope: Scope
    where: DeadLetterFilter = DeadLetterFilter(status="pending_review")
    limit: int = 50
