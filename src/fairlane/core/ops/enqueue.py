"""Putting jobs in."""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from fairlane.core.ids import JobId, Seq
from fairlane.core.job import JobSpec
from fairlane.core.ops.base import Op

Disposition = Literal["created", "replayed", "duplicate", "conflict"]
"""created    a new job
replayed   this very id with this very content was there already (a lost reply, a replayed spool)
duplicate  another job holds the (tenant, idempotency key) or the (tenant, type, dedup key)
conflict   this id is taken by a job with other content; nothing was written for it
"""

Notify = Literal["if_waiting", "always", "never"]


class Receipt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one job of an `Enqueue`, in the order given."""

    disposition: Disposition
    id: JobId
    """The job that now stands for the request: its own, or for a duplicate the one that was there."""
    seq: Seq
    key: Literal["idempotency", "dedup"] | None = None
    """For a duplicate: which key it met. Idempotency is looked at first."""


class EnqueueResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    receipts: tuple[Receipt, ...] = ()
    """Empty when the store was full: then nothing at all was written."""
    full: bool = False
    depth: int | None = None
    """Jobs waiting (ready and scheduled) before this call, counted up to `capacity`; only where a capacity was given."""


class Enqueue(Op[EnqueueResult], frozen=True, kw_only=True):
    """Put jobs in: ready if due, else scheduled. One commit for all of them.

    Two jobs of one call with the same key: the first is created, the second is its duplicate. A job due
    at or before now is `ready` with `due_at` = its run-at, or now plus its delay if any. Content is compared
    by type, tenant, queue, priority, payload text, keys and parent. The id is looked at first, then the idempotency key, then the dedup key.
    """

    answer: ClassVar[object] = EnqueueResult

    jobs: tuple[JobSpec, ...]
    capacity: int | None = None
    """Refuse the whole call when jobs waiting + len(jobs) would exceed this."""
    notify: Notify = "if_waiting"
