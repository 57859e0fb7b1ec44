"""Taking back what nobody is working on any more, and making due what has waited long enough."""

from __future__ import annotations

from datetime import datetime

from fairlane.core.ops import MAX_CRASHES, Promote, Promoted, Reclaim, Reclaimed, ReclaimResult
from fairlane.core.ops.turn import ReclaimCause
from fairlane.stores.memory.facts import Facts, FinalPlace, Row, Worker
from fairlane.stores.memory.moving import end_try, finish, give_back_tokens, make_ready, own_failure


def promote(facts: Facts, op: Promote, now: datetime) -> Promoted:
    count = promote_due(facts, op.limit, now)
    return Promoted(count=count, next_due_at=facts.scheduled.next_due_at())


def promote_due(facts: Facts, limit: int, now: datetime) -> int:
    count = 0
    while count < limit:
        due_at = facts.scheduled.next_due_at()
        if due_at is None or due_at > now:
            break
        make_ready(facts, facts.scheduled.pop())
        count += 1
    return count


def reclaim(facts: Facts, op: Reclaim, now: datetime) -> ReclaimResult:
    reclaimed = reclaim_lapsed(facts, op.limit, now)
    overdue = sorted(
        (row.seq, row, holder)
        for holder in facts.workers.values()
        for row in holder.leases.values()
        if row.lease is not None and row.lease.deadline_at <= now
    )
    for _, row, holder in overdue[: max(op.limit - len(reclaimed), 0)]:
        started = row.lease is not None and row.lease.started_at is not None
        reclaimed.append(take_back(facts, holder, row, "deadline_passed" if started else "start_by_passed", now))
    return ReclaimResult(reclaimed=tuple(reclaimed))


def reclaim_lapsed(facts: Facts, limit: int, now: datetime) -> list[Reclaimed]:
    """Take back the leases of workers whose heartbeat lapsed, at most `limit`."""
    reclaimed: list[Reclaimed] = []
    lapsed = [worker for worker in facts.workers.values() if worker.expires_at <= now]
    for holder in sorted(lapsed, key=lambda worker: (worker.expires_at, worker.id)):
        if len(reclaimed) >= limit:
            break
        rows = [holder.leases[seq] for seq in sorted(holder.leases)[: limit - len(reclaimed)]]
        reclaimed += [take_back(facts, holder, row, "worker_gone", now) for row in rows]
        if not holder.leases:
            del facts.workers[holder.id]
    return reclaimed


def take_back(
    facts: Facts, holder: Worker, row: Row, cause: ReclaimCause, now: datetime, *, started: bool = False
) -> Reclaimed:
    """End a lease its worker has lost; `started` where the lease does not say so and somebody else knows."""
    lease = row.lease
    assert lease is not None
    became: FinalPlace | None = "cancelled" if lease.cancel_requested else None
    failure = None
    started = started or lease.started_at is not None
    if not started:
        give_back_tokens(facts, row, lease)
    if cause == "deadline_passed":
        became = became or "dead"
        row.attempts += 1
        failure = own_failure(row, "JobStuck", "transient", "Job exceeded timeout threshold")
    elif cause == "worker_gone" and started:
        row.suspect = True
        row.crashes += lease.alone
        failure = own_failure(row, "WorkerLost", "transient", "its worker is gone")
        if became is None and lease.alone and row.crashes >= MAX_CRASHES:
            became = "dead"
            message = f"its process died {row.crashes} times while it ran alone"
            failure = own_failure(row, "Crashed", "transient", message)
    end_try(facts, holder, row, lease, "released" if cause == "start_by_passed" else "lost", now, failure)
    if became is None:
        make_ready(facts, row)
        facts.wakes = True
    else:
        finish(facts, row, became, now)
    return Reclaimed(
        seq=row.seq,
        id=row.spec.id,
        attempt=lease.attempt,
        worker=holder.id,
        cause=cause,
        became="ready" if became is None else became,  # type: ignore[arg-type]  # reclaiming completes nothing
    )
