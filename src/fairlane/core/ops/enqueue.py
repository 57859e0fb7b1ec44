"""Enqueue: jobs in, receipts out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from fairlane.core.ids import JobId, Seq
from fairlane.core.job import JobSpec
from fairlane.core.limits import FullPolicy, Limit
from fairlane.core.ops.base import Op
from fairlane.core.ops.pauses import Pause

Disposition = Literal["created", "replayed", "duplicate", "conflict"]
"""created    a new job
replayed   this very id with this very content was there already (a lost reply, a replayed spool)
duplicate  another job holds the (tenant, idempotency key) or the (tenant, type, dedup key), or its key is taken and
           the job was to be discarded then
conflict   this id is taken by a job with other content; nothing was written for it
"""

Notify = Literal["if_waiting", "always", "never"]


class Receipt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one job of an `Enqueue`, in the order given."""

    disposition: Disposition
    id: JobId
    """The job that now stands for the request: its own, or for a duplicate the one that was there."""
    seq: Seq
    key: Literal["idempotency", "dedup", "job"] | None = None
    """For a duplicate: which key it met. Idempotency is looked at first, the job's own key last."""
    held: bool = False
    """Created, and held until its tenant has room."""


class LimitHit(Struct, frozen=True, kw_only=True):
    """A tenant's limit that a call ran into."""

    tenant: str
    queue: str
    cause: Literal["waiting", "payload_bytes"]
    limit: int
    found: int
    """Jobs counted before the call, up to the limit; or the size of the payload."""
    policy: FullPolicy
    """`reject` for a payload."""


class EnqueueResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    receipts: tuple[Receipt, ...] = ()
    """Empty when the store was full: then nothing at all was written. Those of `AlikeJobs` may be made when they are
    asked for: a sequence that is equal to the tuple."""
    full: bool = False
    depth: int | None = None
    """Jobs waiting (ready, scheduled and held) before this call, counted up to `capacity`; only with a capacity. Of
    spooled jobs: those in the spool."""
    refused: LimitHit | None = None
    """The tenant's limit that refused the call, the first in the order of the jobs. Nothing at all was written; there
    are no receipts and no hits."""
    paused: Pause | None = None
    """The pause that refused the call. Nothing at all was written; there are no receipts and no hits."""
    spooled: bool = False
    """The store is away: the jobs wait beside it, their `seq` is 0, and keys and limits are looked at when they are
    replayed."""
    hits: tuple[LimitHit, ...] = ()
    """Waiting limits run into with policy `warn` or `hold`, one for each tenant and queue, by tenant then queue."""


class Enqueue(Op[EnqueueResult], frozen=True, kw_only=True):
    """Put jobs in: ready if due, else scheduled; a job with a key that is due is held at it. One commit for all.

    Two jobs of one call with the same key: the first is created, the second is its duplicate. A job due
    at or before now is `ready` with `due_at` = its run-at, or now plus its delay if any. Content is compared
    by type, tenant, queue, priority, payload text, keys and parent. The id is looked at first, then the idempotency
    key, then the dedup key.

    A job whose queue, type or tenant is paused with `refuse` has the whole call refused, also where its id or keys are
    known: the first such job in the order given, and of its pauses the first by kind. This is looked at after the
    capacity, in the same transaction. Jobs of schedules and reprocessed dead letters are not refused: they wait.

    Tenants' limits (`limits` together with those kept in the store) are looked at after that. First, a job
    whose payload text is longer than its tenant's `payload_bytes` has the whole call refused. Then, for each tenant and
    queue with a `waiting` limit: its ready, scheduled, held and leased jobs are counted up to the limit, and of the
    jobs that this call would create (known ids and duplicates are none) those beyond it are over. Policy `reject`: the
    whole call is refused; `warn`: they are created all the same; `hold`: they are created in `held`. Counting is exact
    for calls one after another; calls at the same time may each miss what the other adds.

    A job with a key (`core.ops.job_keys`) whose `on_conflict` is not `wait` meets a conflict where the unfinished jobs
    with its key are as many as run at once, or more: those held at it, scheduled, ready or leased. `discard`: it is a
    duplicate of the oldest of them. `replace`: those of them that are not leased end cancelled, and the job is created;
    `cancel_running`: those that are leased are asked to cancel, too. Calls at the same time come one after another.
    """

    jobs: Sequence[JobSpec]
    """A tuple, or `AlikeJobs`."""
    capacity: int | None = None
    """Refuse the whole call when jobs waiting + len(jobs) would exceed this."""
    notify: Notify = "if_waiting"
    limits: tuple[Limit, ...] = ()
    """What the code allows to tenants; other kinds are passed over."""
    warns: bool = True
    """False: waiting limits that only warn need not be counted, and may be missing from `hits`. For callers that had
    them counted a moment ago."""
