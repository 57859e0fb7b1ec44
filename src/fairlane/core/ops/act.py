"""What people do to jobs and dead letters. Every act says by whom, and writes its audit record in the same commit.

An audit record's `before` and `after` are {"status", "attempts"} for a job, {"status", "acknowledged_by"} for a dead letter.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Raw, Struct

from fairlane.core.ids import JobId, Seq
from fairlane.core.job import DeadLetter, Job
from fairlane.core.ops.base import Act, Scope

RefusalCode = Literal["not_found", "not_allowed"]
"""not_found    no such thing in this scope; a foreign tenant's counts as none
not_allowed  the thing is there, but in a place this act does not start from
"""


class JobAct(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an act on a job came to. A refused act changed nothing and wrote no audit record."""

    refused: RefusalCode | None = None
    job: Job | None = None
    """The job after the act; for `not_allowed`, as it is."""


class _JobChange(Act[JobAct], frozen=True, kw_only=True):
    answer: ClassVar[object] = JobAct

    scope: Scope
    id: JobId


class Cancel(_JobChange, frozen=True, kw_only=True):
    """End a waiting job as cancelled; ask a leased one to stop (its status stays until its attempt ends).

    Cancelling a cancelled job, or one already asked to stop, is fine and writes nothing. Audit: `job_cancel`.
    """


class Fail(_JobChange, frozen=True, kw_only=True):
    """Fail an unfinished job by hand, charging one attempt.

    With `retry_delay_s` and attempts left: scheduled at now + delay. Otherwise: dead. A leased job loses its lease and its attempt
    is recorded `failed_by_hand`; a waiting one takes the next attempt number for such a record, with no worker, leased and ended now.
    Error type `FailedByHand`, class `retryable` when delay and attempts let it run again, else `non_retryable`; message = `reason`. A cancel asked for
    earlier makes it end cancelled instead of scheduled. Clears `suspect`. Audit: `job_fail`.
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
    """Take a leased job from its worker by hand: ready again with the due time it had, uncharged, its attempt recorded `released`.

    If a cancel was asked for it ends cancelled. Not allowed from anywhere else. Audit: `job_reset`.
    """


class DeadLetterAct(Struct, frozen=True, kw_only=True, omit_defaults=True):
    refused: RefusalCode | None = None
    dead_letter: DeadLetter | None = None
    new_job: Job | None = None
    """Reprocess: the job that runs in its place."""
    repeated: bool = False
    """Reprocess: that job was there already; nothing was written."""


class _DeadLetterChange(Act[DeadLetterAct], frozen=True, kw_only=True):
    answer: ClassVar[object] = DeadLetterAct

    scope: Scope
    id: Seq


class Reprocess(_DeadLetterChange, frozen=True, kw_only=True):
    """Make a new job of a dead one: same type, tenant, queue, priority, payload, version, category, refs, headers, limits and correlation.

    Its idempotency key is `<old key>_retry_<n>`, n counting the reprocesses of this dead letter; no dedup key; its parent is the parent of
    the dead one; `created_by` = by. Allowed from `pending_review`; from `retried` only when the job made last ended dead or cancelled or
    is gone, else that job is returned, `repeated`. From `resolved` and `discarded`: not allowed. The letter becomes `retried`, closed by and at.
    Should the new key be taken by another job, n grows until one is free. `new_job_id` again, after a lost reply: `repeated`, however that job
    fared; the id of any other job: not allowed. Audit: `job_dlq_reprocess_requested` (`after` None), then `job_dlq_reprocess_success`
    (`after` adds "new_job_id", and "payload_edited": true where the payload is another). With `payload` the new job has that one, the dead one keeps
    its own. With `delay_s` it is due so much later.
    """

    repeatable: ClassVar[bool] = True

    new_job_id: JobId
    payload: Raw | None = None
    """Exact JSON text, one object."""
    delay_s: float | None = None


class Discard(_DeadLetterChange, frozen=True, kw_only=True):
    """Close a dead letter, with notes, as not worth another try. From `pending_review` and `retried`. Audit: `job_dlq_discard`."""


class Resolve(_DeadLetterChange, frozen=True, kw_only=True):
    """Close a dead letter, with notes, as dealt with. From `pending_review` and `retried`. Audit: `job_dlq_resolve`."""


class Acknowledge(_DeadLetterChange, frozen=True, kw_only=True):
    """Say who looks after it. A flag, not a status: allowed in any; the first name stays. Audit: `job_dlq_acknowledge` (the first time)."""
