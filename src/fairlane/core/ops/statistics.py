"""Statistics: counts of this moment by queue and status, and figures by the minute."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from fairlane.core.ids import WorkerId
from fairlane.core.ops.base import COUNT_CAP, Op, Scope


class QueueStats(Struct, frozen=True, kw_only=True):
    queue: str
    pending: int = 0
    """Ready, held, scheduled for the first time or snoozed, and prefetched."""
    ready: int = 0
    scheduled: int = 0
    """Everything in `scheduled`, awaiting retry or not."""
    processing: int = 0
    failed: int = 0
    """Failed and waiting for their retry."""
    oldest_due_at: datetime | None = None
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
    pending_types: dict[str, int] = {}
    """Pending jobs by type, those with any. Not capped: exact while `cap`, and at least 1,000, are ready, scheduled or
    held; above, an estimate from a part of them."""


StatsPart = Literal["queues", "ended", "dead_letters", "types"]


class GetStats(Op[Stats], frozen=True, kw_only=True):
    """Counts by queue and status, all of one moment: every number is the true one, or `cap` where that is higher."""

    scope: Scope
    cap: int = COUNT_CAP
    rough: bool = False
    """A queue's number over `cap` is an estimate instead, never below `cap`. Of one tenant's dead letters only those
    are counted that are among the newest `cap` of their status. For who asks often: without "ended" the cost goes with
    the queues and with the tenants that wait in them, not with the jobs."""
    parts: tuple[StatsPart, ...] = ("queues", "ended", "dead_letters")
    """What is counted: queues, jobs by how they ended, dead letters, pending jobs by type. The rest is 0 or empty."""


class StatRow(Struct, frozen=True, kw_only=True):
    """Attempts of one type, queue and tenant that ended in one minute. Sums, so that rows add up."""

    minute: datetime
    type: str
    queue: str
    tenant: str
    enqueued: int = 0
    completed: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0
    wait_us: int = 0
    """Due to start, summed over first starts of due jobs."""
    run_us: int = 0
    wait_buckets: dict[int, int] = {}
    """Counts by power of two of milliseconds: bucket b holds spans under 2**b ms."""
    run_buckets: dict[int, int] = {}


class StatsAdded(Struct, frozen=True, kw_only=True):
    added: bool
    """False: this batch was there already."""


class AddStats(Op[StatsAdded], frozen=True, kw_only=True):
    """Add figures to the minutes they belong to.

    Idempotent by (worker, batch): a batch not above the worker's last is ignored; the first is 1. The last batch number
    lives with the worker's row: an unregistered worker's figures are not added.
    """

    worker: WorkerId
    batch: int
    rows: tuple[StatRow, ...]


class StatPage(Struct, frozen=True, kw_only=True):
    rows: tuple[StatRow, ...]
    """By minute, type, queue, tenant."""


StatsBy = Literal["type", "queue", "tenant"]


class ReadStats(Op[StatPage], frozen=True, kw_only=True):
    """The minutes from `since` to before `until`, at most `limit` rows, oldest first.

    With `step_s` they are summed: one row for each step with any, counted from `since` on, and each type, queue or
    tenant as `by` says (None: all together). Its `minute` is when the step begins; a name that is not distinguished is
    "". `limit` counts the sums.
    """

    since: datetime
    until: datetime
    type: str | None = None
    queue: str | None = None
    tenant: str | None = None
    limit: int = 10_000
    step_s: int | None = None
    by: StatsBy | None = None


class EnqueuedLine(Struct, frozen=True, kw_only=True):
    tenant: str
    queue: str
    jobs: int


class EnqueuedLines(Struct, frozen=True, kw_only=True):
    lines: tuple[EnqueuedLine, ...]
    """By tenant, queue."""
    last: int
    """The highest number of all jobs; 0: there is none."""


class ReadEnqueued(Op[EnqueuedLines], frozen=True, kw_only=True):
    """Where jobs with numbers above `after` were enqueued, whatever became of them: of the last `limit` numbers.

    A lower number may still be on its way to its commit: ask again from an earlier `last`.
    """

    after: int = 0
    limit: int = 1000


class RolledUp(Struct, frozen=True, kw_only=True):
    jobs: int
    """How many jobs were counted now; as many as `limit`: there are more."""


class RollUpEnqueued(Op[RolledUp], frozen=True, kw_only=True):
    """Add jobs enqueued since the last time to the figures of their minutes (`StatRow.enqueued`), each exactly once.

    By seq, at most `limit`.
    Only jobs enqueued at least `settled_s` ago, and none behind one that is younger: a lower number may still be on its
    way to its commit.
    """

    settled_s: float = 30.0
    limit: int = 5000
