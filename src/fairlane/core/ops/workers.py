"""Workers seen from outside, what running attempts say of themselves, and the figures workers keep."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from msgspec import Struct

from fairlane.core.ids import Seq, WorkerId
from fairlane.core.ops.base import Op
from fairlane.core.ops.turn import ReclaimResult, Start

LOG_LINES = 100
"""Newest log lines kept for each job."""


class Lapse(Op[ReclaimResult], frozen=True, kw_only=True):
    """A foreman saw its worker die: take all its leases back now, as for a lapsed heartbeat, and its row.

    `starts` are attempts the foreman knows had begun although the store may not: they are marked first, as in a Turn
    (`alone` as each says); those whose lease is gone are passed over. Leases by seq, however many.
    An unknown worker: nothing.
    """

    answer: ClassVar[object] = ReclaimResult

    worker: WorkerId
    starts: tuple[Start, ...] = ()


class WorkerRecord(Struct, frozen=True, kw_only=True):
    id: WorkerId
    name: str
    registered_at: datetime
    renewed_at: datetime
    expires_at: datetime
    queues: tuple[str, ...]
    types: tuple[str, ...]
    waiting: bool
    leases: int
    figures: dict[str, float]
    """What it last said of itself with `Renew.figures`: memory, lane utilisation, …"""


class Workers(Struct, frozen=True, kw_only=True):
    now: datetime
    workers: tuple[WorkerRecord, ...]


class ListWorkers(Op[Workers], frozen=True, kw_only=True):
    """Every registered worker, by (registered_at, id)."""

    answer: ClassVar[object] = Workers


class LogLine(Struct, frozen=True, kw_only=True):
    at: datetime
    attempt: int
    message: str


class Noted(Struct, frozen=True, kw_only=True):
    accepted: bool
    """False: the lease is gone; nothing was written."""


class Note(Op[Noted], frozen=True, kw_only=True):
    """What a running attempt says: progress (0 to 1) and log lines, guarded by its lease. Read with GetJob; removed with the job."""

    answer: ClassVar[object] = Noted
    repeatable: ClassVar[bool] = False

    worker: WorkerId
    seq: Seq
    attempt: int
    progress: float | None = None
    log: tuple[str, ...] = ()
    """Each kept as a LogLine of now; beyond LOG_LINES the oldest go."""


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
    """Add figures to the minutes they belong to. Idempotent by (worker, batch): a batch not above the worker's last is ignored; the first is 1.

    The last batch number lives with the worker's row: an unregistered worker's figures are not added.
    """

    answer: ClassVar[object] = StatsAdded

    worker: WorkerId
    batch: int
    rows: tuple[StatRow, ...]


class StatPage(Struct, frozen=True, kw_only=True):
    rows: tuple[StatRow, ...]
    """By minute, type, queue, tenant."""


StatsBy = Literal["type", "queue", "tenant"]


class ReadStats(Op[StatPage], frozen=True, kw_only=True):
    """The minutes from `since` to before `until`, at most `limit` rows, oldest first.

    With `step_s` they are summed: one row for each step with any, counted from `since` on, and each type, queue or tenant as `by` says (None: all
    together). Its `minute` is when the step begins; what is not told apart is "". `limit` counts the sums.
    """

    answer: ClassVar[object] = StatPage

    since: datetime
    until: datetime
    type: str | None = None
    queue: str | None = None
    tenant: str | None = None
    limit: int = 10_000
    step_s: int | None = None
    by: StatsBy | None = None
