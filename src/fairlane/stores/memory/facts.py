"""The facts a memory store keeps: rows, leases, attempts, dead letters, workers, and where each row is."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Literal
from uuid import UUID

from fairlane.core.ids import JobId, Seq, WorkerId
from fairlane.core.job import AttemptOutcome, DeadLetterStatus, JobSpec
from fairlane.core.ops import AuditRecord
from fairlane.core.outcome import Failure
from fairlane.stores.memory.lines import LineKey, Ready

Place = Literal["ready", "scheduled", "leased", "completed", "dead", "cancelled"]
FinalPlace = Literal["completed", "dead", "cancelled"]
FINAL_PLACES = frozenset({"completed", "dead", "cancelled"})


class Try:
    """One attempt: a lease while it lives, its record once it has ended."""

    __slots__ = (
        "alone",
        "attempt",
        "cancel_requested",
        "claim_no",
        "deadline_at",
        "ended_at",
        "failure",
        "lane",
        "leased_at",
        "outcome",
        "reason",
        "started_at",
        "worker",
    )

    def __init__(
        self,
        attempt: int,
        worker: WorkerId | None,
        claim_no: int,
        lane: str,
        leased_at: datetime,
        started_at: datetime | None,
        deadline_at: datetime,
    ) -> None:
        self.attempt, self.worker, self.claim_no, self.lane = attempt, worker, claim_no, lane
        self.leased_at, self.started_at, self.deadline_at = leased_at, started_at, deadline_at
        self.alone = self.cancel_requested = False
        self.outcome: AttemptOutcome | None = None
        self.ended_at: datetime | None = None
        self.failure: Failure | None = None
        self.reason: str | None = None


class Letter:
    """What people did about a dead job."""

    def __init__(self) -> None:
        self.status: DeadLetterStatus = "pending_review"
        self.acknowledged_by: str | None = None
        self.acknowledged_at: datetime | None = None
        self.closed_by: str | None = None
        self.closed_at: datetime | None = None
        self.resolution_notes: str | None = None
        self.reprocess_count = 0
        self.reprocessed_as: JobId | None = None


class Row:
    """A job: the request, its counters, and the facts of the place it is in."""

    __slots__ = (
        "attempt",
        "attempts",
        "awaits_retry",
        "crashes",
        "due_at",
        "enqueued_at",
        "failed_at",
        "failure",
        "finished_at",
        "last_try",
        "lease",
        "letter",
        "line",
        "payload",
        "place",
        "rank",
        "result",
        "scheduled_at",
        "seq",
        "spec",
        "suspect",
        "tries",
        "type",
    )

    def __init__(self, spec: JobSpec, seq: Seq, payload: str, due_at: datetime, now: datetime) -> None:
        self.spec, self.seq, self.payload, self.type = spec, seq, payload, spec.type
        self.line: LineKey = (spec.queue, spec.band, spec.tenant)
        self.rank = spec.rank
        self.place: Place = "ready"
        self.enqueued_at, self.scheduled_at, self.due_at = now, due_at, due_at
        self.attempt = self.attempts = self.crashes = 0
        self.suspect = self.awaits_retry = False
        self.lease: Try | None = None
        self.tries: tuple[Try, ...] = ()
        self.last_try: Try | None = None
        """The attempt that ended the job, if one did."""
        self.failure: Failure | None = None
        self.failed_at: datetime | None = None
        self.finished_at: datetime | None = None
        self.result: str | None = None
        self.letter: Letter | None = None

    @property
    def idempotency_key(self) -> str:
        return str(self.spec.id) if self.spec.idempotency_key is None else self.spec.idempotency_key

    @property
    def correlation_id(self) -> str:
        return str(self.spec.id) if self.spec.correlation_id is None else self.spec.correlation_id


class Worker:
    """A registered worker, and what it holds."""

    def __init__(self, worker_id: WorkerId, expires_at: datetime) -> None:
        self.id, self.expires_at = worker_id, expires_at
        self.waiting = False
        self.leases: dict[int, Row] = {}
        """By seq, in the order of the claims."""
        self.asked_to_cancel: set[Seq] = set()


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


class Facts:
    """All of a store's tables. A row is in exactly one of ready, scheduled, a worker's leases, or finished."""

    def __init__(self) -> None:
        self.last_seq = self.last_audit_id = 0
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
        self.letters: dict[int, Row] = {}
        self.finished: list[tuple[datetime, int]] = []
        """A heap of the completed and cancelled, for retention."""
        self.closed: list[tuple[datetime, int]] = []
        """A heap of closed dead letters; one closed again is in it again."""
        self.ended: defaultdict[tuple[str, FinalPlace], int] = defaultdict(int)
        """How many are there, by tenant and how they ended."""
        self.workers: dict[UUID, Worker] = {}
        self.audit: list[AuditRecord] = []
