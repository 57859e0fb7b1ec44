"""Takes back leases that nobody works on any more."""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

from fairlane.core.ids import JobId, Seq, WorkerId
from fairlane.core.job import ErrorClass
from fairlane.core.ops import MAX_CRASHES, Reclaim, Reclaimed, ReclaimResult
from fairlane.core.ops.turn import ReclaimCause
from fairlane.core.outcome import Failure
from fairlane.stores.sqlite.facts import (
    Counters,
    Ended,
    WaitingJob,
    done_by,
    drop_leases,
    finish,
    make_ready,
    open_dead_letter,
    record,
)
from fairlane.stores.sqlite.limits.rates import give_back
from fairlane.stores.sqlite.transaction import Transaction, change

_LEASE = """
select l.seq, j.id, j.type, j.tenant, l.worker, l.attempt, l.attempts, l.crashes, l.suspect, l.due_at, l.leased_at,
  l.started_at, l.alone, l.cancel_requested, l.aged
from fairlane_lease l cross join fairlane_job j on j.seq = l.seq
"""
_LAPSED = "select id from fairlane_worker where expires_at <= ? order by expires_at, id"
_OF_WORKER = f"{_LEASE} where l.worker = ? order by l.seq limit ?"
_OF_NOBODY = f"{_LEASE} where l.worker not in (select id from fairlane_worker) order by l.seq limit ?"  # noqa: S608
_PAST_DEADLINE = f"{_LEASE} where l.deadline_at <= ? order by l.seq limit ?"


class Abandoned(NamedTuple):
    seq: int
    id: bytes
    type: str
    tenant: str
    worker: bytes
    attempt: int
    attempts: int
    crashes: int
    suspect: int
    due_at: int
    leased_at: int
    started_at: int | None
    alone: int
    cancel_requested: int
    aged: int | None


def own_failure(job_type: str, error_type: str, error_class: ErrorClass, message: str) -> Failure:
    """A failure no task code raised; alike for all jobs of one type."""
    fingerprint = sha256(f"{job_type}:{error_type}".encode()).hexdigest()[:16]
    return Failure(error_class=error_class, error_type=error_type, message=message, fingerprint=fingerprint)


def reclaim_lapsed(tx: Transaction, limit: int) -> list[Reclaimed]:
    """Take back leases of lapsed workers, oldest heartbeat first; their rows go with their last lease."""
    reclaimed: list[Reclaimed] = []
    for (worker,) in tx.db.execute(_LAPSED, (tx.now,)):
        room = limit - len(reclaimed)
        if room <= 0:
            break
        held = tx.db.execute(_OF_WORKER, (worker, room + 1))
        reclaimed += [take_back(tx, Abandoned._make(row), "worker_gone") for row in held[:room]]
        if len(held) <= room:
            tx.db.execute("delete from fairlane_worker where id = ?", (worker,))
    return reclaimed


def reclaim_all_of(tx: Transaction, worker: bytes) -> list[Reclaimed]:
    """Take back every lease of a worker that is known to be gone, and its row."""
    held = tx.db.execute(_OF_WORKER, (worker, -1))
    reclaimed = [take_back(tx, Abandoned._make(row), "worker_gone") for row in held]
    tx.db.execute("delete from fairlane_worker where id = ?", (worker,))
    return reclaimed


@change
def reclaim(tx: Transaction, op: Reclaim) -> ReclaimResult:
    reclaimed = [
        take_back(tx, Abandoned._make(row), "worker_gone") for row in tx.db.execute(_OF_NOBODY, (max(op.limit, 0),))
    ]
    reclaimed += reclaim_lapsed(tx, op.limit - len(reclaimed))
    overdue = tx.db.execute(_PAST_DEADLINE, (tx.now, max(op.limit - len(reclaimed), 0)))
    for lease in map(Abandoned._make, overdue):
        cause: ReclaimCause = "start_by_passed" if lease.started_at is None else "deadline_passed"
        reclaimed.append(take_back(tx, lease, cause))
    return ReclaimResult(reclaimed=tuple(reclaimed))


def take_back(
    tx: Transaction, lease: Abandoned, cause: ReclaimCause, ended_at: int | None = None, *, started: bool = False
) -> Reclaimed:
    """End a lease its worker has lost; `started` where the lease does not say so and somebody else knows."""
    attempts, crashes, suspect = lease.attempts, lease.crashes, lease.suspect
    status = "cancelled" if lease.cancel_requested else None
    failure = None
    if cause == "worker_gone" and (started or lease.started_at is not None):
        suspect, crashes = 1, crashes + lease.alone
        failure = own_failure(lease.type, "WorkerLost", "transient", "its worker is gone")
        if status is None and lease.alone and crashes >= MAX_CRASHES:
            message = f"its process died {MAX_CRASHES} times while it ran alone"
            status, failure = "dead", own_failure(lease.type, "Crashed", "transient", message)
    elif cause == "deadline_passed":
        attempts += 1
        status = status or "dead"
        failure = own_failure(lease.type, "JobStuck", "transient", "Job exceeded timeout threshold")
    outcome = "released" if cause == "start_by_passed" else "lost"
    ended = Ended(
        lease.attempt,
        outcome,
        lease.worker,
        lease.leased_at,
        lease.started_at,
        tx.now if ended_at is None else ended_at,
    )
    counters = Counters(lease.attempt, attempts, crashes, suspect, lease.aged)
    if failure is not None:
        ended = ended.because(failure)
    if lease.started_at is None and not started:
        give_back(tx, [lease.seq])
    drop_leases(tx, [lease.seq])
    if status is None:
        record(tx, [(lease.seq, ended)])
        make_ready(tx, [WaitingJob(lease.seq, lease.due_at, counters)])
        tx.gave_back = True
    else:
        if status == "dead" and failure is not None:
            open_dead_letter(tx, lease.seq, failure, ended.ended_at)
        finish(tx, [done_by(ended, lease.seq, status, lease.due_at, counters, lease.cancel_requested)])
    return Reclaimed(
        seq=Seq(lease.seq),
        id=JobId(UUID(bytes=lease.id)),
        attempt=lease.attempt,
        worker=WorkerId(UUID(bytes=lease.worker)),
        cause=cause,
        became="ready" if status is None else "dead" if status == "dead" else "cancelled",
        type=lease.type,
        tenant=lease.tenant,
    )
