"""What the oracle knows of each job: one record with everything in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from fairlane.core import job as values
from fairlane.core.outcome import Failure

LETTER_FACTS = ("acknowledged_by", "acknowledged_at", "closed_by", "closed_at", "resolution_notes", "reprocessed_as")


@dataclass
class Try:
    attempt: int
    worker: Any
    leased_at: datetime
    deadline_at: datetime | None = None
    claim_no: int = 0
    nth: int = 0
    lane: str = ""
    started_at: datetime | None = None
    alone: bool = False
    cancel: bool = False
    outcome: Any = None
    ended_at: Any = None
    failure: Failure | None = None
    note: str | None = None

    @property
    def failure_type(self) -> str | None:
        return self.failure.error_type if self.failure else None


@dataclass
class Record:
    spec: values.JobSpec
    seq: int
    place: str
    enqueued_at: datetime
    first_due: datetime
    due: datetime
    since: datetime | None = None  # what its due time counts from while it is scheduled; None: given as an instant
    attempt: int = 0
    attempts: int = 0
    crashes: int = 0
    suspect: bool = False
    awaits_retry: bool = False
    put_off: bool = False
    lease: Try | None = None
    tries: list[Try] = field(default_factory=list)
    last: Try | None = None  # the attempt that ended the job, if one did
    failure: Failure | None = None
    failed_at: datetime | None = None
    finished_at: datetime | None = None
    result: str | None = None
    letter: dict[str, Any] | None = None
    progress: float | None = None
    log: list[Any] = field(default_factory=list)
    steps: list[values.StepRecord] = field(default_factory=list)
    wait: dict[str, Any] | None = None  # the signal it came to wait for, and in which attempt
    band: int = 0  # this and the rank: as given, or what it has reached by aging
    rank: int = 0
    order: int = 0  # its place among the ordered jobs of its key
    at_key: bool = False  # held there
    let_in: bool = False  # it was, since it was last held there
    is_rated: bool = False  # under a rate

    def __post_init__(self) -> None:
        self.band, self.rank = self.spec.band, self.spec.rank
        self.order = self.order or self.seq
        if self.place == "ready":
            self.make_ready()

    def make_ready(self) -> None:
        """Ready, or held at its key."""
        self.at_key, self.let_in, self.is_rated = self.spec.key is not None, False, False
        self.place = "held" if self.at_key else "ready"

    @property
    def has_place(self) -> bool:
        """At its key."""
        is_kept = self.place == "scheduled" or bool(self.letter and self.letter["status"] == "pending_review")
        return self.let_in and (self.place in ("ready", "leased") or (self.spec.key.ordered and is_kept))

    def is_due(self, now: datetime) -> bool:
        """Of one that was held: also if it was due when it was enqueued, whatever the clock said then."""
        return self.due <= now or self.first_due <= self.enqueued_at

    @property
    def line(self) -> tuple[str, int, str]:
        return self.spec.queue, self.band, self.spec.tenant

    @property
    def key(self) -> tuple[int, datetime, int]:
        return self.rank, self.due, self.seq

    @property
    def status(self) -> Any:
        if self.place == "leased":
            return "processing" if self.lease.started_at else "pending"
        waits_for_retry = self.place == "scheduled" and self.awaits_retry
        waits = self.place in ("ready", "scheduled", "held", "waiting")
        return "failed" if waits_for_retry else "pending" if waits else self.place

    @property
    def idempotency_key(self) -> str:
        return str(self.spec.id) if self.spec.idempotency_key is None else self.spec.idempotency_key

    @property
    def correlation_id(self) -> str:
        return str(self.spec.id) if self.spec.correlation_id is None else self.spec.correlation_id

    @property
    def is_finished(self) -> bool:
        return self.place in values.FINAL

    def finish(self, place: str, at: datetime) -> None:
        self.place, self.finished_at, self.at_key = place, at, False
        if place == "dead":
            self.letter = dict.fromkeys(LETTER_FACTS) | {"status": "pending_review", "reprocess_count": 0}

    def end_try(self, outcome: str, at: datetime, failure: Failure | None = None) -> None:
        """Record how its attempt ended; one that only waited takes the next number for the record."""
        self.put_off = False
        if self.lease is None:
            self.attempt += 1
        ended = self.lease or Try(self.attempt, None, leased_at=at)
        ended.outcome, ended.ended_at, ended.failure = outcome, at, failure
        self.tries.append(ended)
        self.last, self.lease = self.lease, None
        if failure:
            self.failure, self.failed_at = failure, at


def span(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def own_failure(job_type: str, error_type: str, error_class: Any, message: str) -> Failure:
    fingerprint = sha256(f"{job_type}:{error_type}".encode()).hexdigest()[:16]
    return Failure(error_class=error_class, error_type=error_type, message=message, fingerprint=fingerprint)
