"""The facts a memory store keeps: rows, leases, attempts, dead letters, workers, what people set, and where each row is.

Rows and tries are kept out of the garbage collector's sight: they make no cycles, and its passes over a hundred thousand of
them doubled the time of a Turn.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Literal
from uuid import UUID

from msgspec import Struct

from fairlane.core.breaker import Breaker
from fairlane.core.ids import JobId, Seq, WorkerId
from fairlane.core.job import AttemptOutcome, DeadLetterStatus, JobSpec
from fairlane.core.limits import LimitKey, StoredLimit
from fairlane.core.ops import AuditRecord, LogLine, Pause, PauseKind, Renew, StatRow
from fairlane.core.outcome import Failure
from fairlane.core.schedules.schedule import Schedule
from fairlane.stores.memory.beside import Beside
from fairlane.stores.memory.census import Census, Running
from fairlane.stores.memory.lines import LineKey, Ready
from fairlane.stores.memory.rates import Logs
from fairlane.stores.memory.rules import Rules

Place = Literal["ready", "scheduled", "held", "leased", "completed", "dead", "cancelled"]
FinalPlace = Literal["completed", "dead", "cancelled"]
FINAL_PLACES = frozenset({"completed", "dead", "cancelled"})


class Try(Struct, gc=False):
    """One attempt: a lease while it lives, its record once it has ended."""

    attempt: int
    worker: WorkerId | None
    claim_no: int
    lane: str
    leased_at: datetime
    started_at: datetime | None
    deadline_at: datetime
    alone: bool = False
    cancel_requested: bool = False
    outcome: AttemptOutcome | None = None
    ended_at: datetime | None = None
    failure: Failure | None = None
    reason: str | None = None
    limited: bool = False
    """Under a limit on running: others may wait for its end."""


class Letter(Struct):
    """What people did about a dead job."""

    status: DeadLetterStatus = "pending_review"
    acknowledged_by: str | None = None
    acknowledged_at: datetime | None = None
    closed_by: str | None = None
    closed_at: datetime | None = None
    resolution_notes: str | None = None
    reprocess_count: int = 0
    reprocessed_as: JobId | None = None


class Row(Struct, gc=False):
    """A job: the request, its counters, and the facts of the place it is in."""

    spec: JobSpec
    seq: Seq
    type: str
    line: LineKey
    rank: int
    payload: str
    enqueued_at: datetime
    scheduled_at: datetime
    due_at: datetime
    place: Place = "ready"
    attempt: int = 0
    attempts: int = 0
    crashes: int = 0
    suspect: bool = False
    awaits_retry: bool = False
    lease: Try | None = None
    tries: tuple[Try, ...] = ()
    last_try: Try | None = None
    """The attempt that ended the job, if one did."""
    failure: Failure | None = None
    failed_at: datetime | None = None
    finished_at: datetime | None = None
    result: str | None = None
    letter: Letter | None = None

    @property
    def idempotency_key(self) -> str:
        return str(self.spec.id) if self.spec.idempotency_key is None else self.spec.idempotency_key

    @property
    def correlation_id(self) -> str:
        return str(self.spec.id) if self.spec.correlation_id is None else self.spec.correlation_id


class Said(Struct):
    """What the attempts of a job said of themselves."""

    progress: float | None = None
    log: tuple[LogLine, ...] = ()


class Worker:
    """A registered worker, what it said last, and what it holds."""

    def __init__(self, worker_id: WorkerId, now: datetime) -> None:
        self.id, self.registered_at = worker_id, now
        self.waiting = False
        self.last_batch = 0
        """Of its figures."""
        self.leases: dict[int, Row] = {}
        """By seq, in the order of the claims."""
        self.asked_to_cancel: set[Seq] = set()

    def renew(self, said: Renew, now: datetime, expires_at: datetime) -> None:
        self.said, self.renewed_at, self.expires_at = said, now, expires_at


class Scheduled:
    """Jobs that wait for their time: a heap, in which a job that left stays until it is met or too many have."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self._heap: list[tuple[datetime, int]] = []

    def add(self, row: Row) -> None:
        self.rows[row.seq] = row
        heappush(self._heap, (row.due_at, row.seq))

    def remove(self, row: Row) -> None:
        del self.rows[row.seq]
        if len(self._heap) > 2 * len(self.rows) + 64:
            self._heap = [(row.due_at, seq) for seq, row in self.rows.items()]
            heapify(self._heap)

    def next_due_at(self) -> datetime | None:
        while self._heap:
            due_at, seq = self._heap[0]
            row = self.rows.get(seq)
            if row is not None and row.due_at == due_at:
                return due_at
            heappop(self._heap)
        return None

    def pop(self) -> Row:
        """The next one due; there must be one."""
        self.next_due_at()
        return self.rows.pop(heappop(self._heap)[1])


class Held:
    """Jobs kept back until their tenant has room in their queue, oldest first."""

    def __init__(self) -> None:
        self.count = 0
        self.lines: dict[tuple[str, str], dict[int, Row]] = {}
        """By queue and tenant, then by seq. New jobs alone are held, so they come in its order."""

    def add(self, row: Row) -> None:
        self.lines.setdefault((row.spec.queue, row.spec.tenant), {})[row.seq] = row
        self.count += 1

    def remove(self, row: Row) -> None:
        key = row.spec.queue, row.spec.tenant
        del self.lines[key][row.seq]
        if not self.lines[key]:
            del self.lines[key]
        self.count -= 1


class Tenant(Struct):
    """What is known of a tenant that was seen, or that somebody set."""

    seen_at: datetime
    weight: float = 1.0
    tier: str | None = None


class Facts:
    """All of a store's tables. A row is in exactly one of ready, scheduled, held, a worker's leases, or finished."""

    def __init__(self) -> None:
        self.last_seq = self.last_audit_id = 0
        self.beside = Beside()
        self.clear()

    def clear(self) -> None:
        """Forget everything but the numbers already given."""
        self.rows: dict[int, Row] = {}
        """By seq, in its order."""
        self.ids: dict[UUID, Row] = {}
        self.idempotency: dict[tuple[str, str], Row] = {}
        self.dedup: dict[tuple[str, str, str], Row] = {}
        self.ready = Ready()
        self.scheduled = Scheduled()
        self.held = Held()
        self.letters: dict[int, Row] = {}
        self.finished: list[tuple[datetime, int]] = []
        """A heap of the completed and cancelled, for retention."""
        self.closed: list[tuple[datetime, int]] = []
        """A heap of closed dead letters; one closed again is in it again."""
        self.ended: defaultdict[tuple[str, FinalPlace], int] = defaultdict(int)
        """How many are there, by tenant and how they ended."""
        self.workers: dict[UUID, Worker] = {}
        self.audit: list[AuditRecord] = []
        self.notes: dict[int, Said] = {}
        """By seq of the job."""
        self.breakers: dict[str, Breaker] = {}
        self.schedules: dict[str, Schedule] = {}
        self.paused: dict[PauseKind, dict[str, Pause]] = {"queue": {}, "tenant": {}, "type": {}}
        self.limits: dict[LimitKey, StoredLimit] = {}
        self.rules: dict[int, Rules] = {}
        """What was put together of them and of those given with operations, by the identity of these: see `room.rules_for`."""
        self.claims = Logs()
        """Counted by rates."""
        self.tokens = Logs()
        """Counted by tenants' enqueue rates."""
        self.tenants: dict[str, Tenant] = {}
        self.census: Census | None = None
        """None: nobody has asked yet. So for `running`, too."""
        self.running: Running | None = None
        self.wakes = False
        """The operation at hand made something possible: waiting workers should look again."""
        self.freed: list[Row] = []
        """Whose leases under running limits the operation at hand has ended: as `wakes`, unless it takes their places again."""
        self.stats: dict[tuple[datetime, str, str, str], StatRow] = {}
        """By minute, type, queue, tenant."""
        self.beside.clear(self.last_seq)
