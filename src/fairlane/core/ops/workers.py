"""Workers: their heartbeat, the end of one, a list of them and of their exceptions, and duties one does for all."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from msgspec import Struct, field

from fairlane.core.ids import JobId, WorkerId
from fairlane.core.job import ErrorClass
from fairlane.core.ops.base import Listing, Op, Scope
from fairlane.core.ops.turn import ReclaimResult, Start

LEASE_S = 15.0


class Renewed(Struct, frozen=True, kw_only=True):
    now: datetime
    expires_at: datetime
    fresh: bool
    """True: the row was new. A worker that thought it was known has lost all its leases."""


class Renew(Op[Renewed], frozen=True, kw_only=True):
    """Register a worker, or keep its heartbeat alive for another `lease_s`. It has lapsed once `expires_at` <= now."""

    worker: WorkerId
    lease_s: float = LEASE_S
    name: str = ""
    """Host, process id and the like, for people."""
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    wake_address: str | None = None
    """Where this worker can be woken on stores without a channel of their own."""
    figures: dict[str, float] = field(default_factory=dict)
    """What it says of itself, for people: memory, lane utilisation, … Replaces what it said before."""


class Retired(Struct, frozen=True, kw_only=True):
    released: int


class Retire(Op[Retired], frozen=True, kw_only=True):
    """Take a worker's row away and give all its leases back, uncharged, recorded as `released`.

    A job that was asked to cancel ends cancelled. Fine to repeat.
    """

    worker: WorkerId


class Lapse(Op[ReclaimResult], frozen=True, kw_only=True):
    """A foreman saw its worker die: take all its leases back now, as for a lapsed heartbeat, and its row.

    `starts` are attempts the foreman knows had begun although the store may not: they are marked first, as in a Turn
    (`alone` as each says); those whose lease is gone are passed over. Leases by seq, however many. For an unknown
    worker nothing is done.
    """

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


class Workers(Listing, Struct, frozen=True, kw_only=True):
    shown = ("workers", "name", "leases", "waiting", "queues", "registered_at", "renewed_at")

    now: datetime
    workers: tuple[WorkerRecord, ...]


class ListWorkers(Op[Workers], frozen=True, kw_only=True):
    """Every registered worker, by (registered_at, id)."""


MOST_EXCEPTIONS = 20
"""The newest exceptions that are kept for each worker."""


class CaughtException(Struct, frozen=True, kw_only=True):
    """What one attempt raised, without secrets. Its traceback is kept with the attempt, in the store."""

    id: JobId
    task: str = ""
    """Empty in a report of a worker that runs older code: there `type` is the task."""
    tenant: str
    attempt: int
    type: str
    """The exception's class."""
    error: str
    error_class: ErrorClass
    is_final: bool
    """The job died of this exception."""
    at: datetime


class ExceptionsReported(Struct, frozen=True, kw_only=True):
    accepted: bool
    """False: the worker is not registered; nothing was written."""


class ReportExceptions(Op[ExceptionsReported], frozen=True, kw_only=True):
    """Keep a worker's newest exceptions instead of those it reported before, until its row goes."""

    worker: WorkerId
    exceptions: tuple[CaughtException, ...]
    """Oldest first; of more than MOST_EXCEPTIONS the newest are kept."""


class WorkerException(Struct, frozen=True, kw_only=True):
    worker: WorkerId
    name: str | None
    """Of the worker: host and process id. None: hidden from a tenant."""
    caught: CaughtException


class WorkerExceptions(Struct, frozen=True, kw_only=True):
    exceptions: tuple[WorkerException, ...]


class ListExceptions(Op[WorkerExceptions], frozen=True, kw_only=True):
    """The exceptions that registered workers reported: newest first, then by worker, job and attempt."""

    scope: Scope
    limit: int | None = None
    """How many at most; None: all of them."""


class DutyTaken(Struct, frozen=True, kw_only=True):
    taken: bool
    """True for one caller in each `every_s`; everybody else has nothing to do."""
    now: datetime


class TakeDuty(Op[DutyTaken], frozen=True, kw_only=True):
    """Take a duty that is done once in a while, however many processes there are.

    Granted where it was last taken `every_s` ago or longer, or never.
    """

    repeatable: ClassVar[bool] = False

    name: str
    every_s: float
