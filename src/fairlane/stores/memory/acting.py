"""What people do to jobs: cancel, fail, bury, reset; each with its audit record."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fairlane.core.job import ErrorClass
from fairlane.core.ops import AuditRecord, Bury, Cancel, Fail, JobAct, Reset
from fairlane.core.outcome import Failure
from fairlane.stores.memory.facts import FINAL_PLACES, Facts, Row, Try
from fairlane.stores.memory.moving import end_try, finish, later, own_failure, schedule, stop_waiting
from fairlane.stores.memory.settling import release
from fairlane.stores.memory.showing import job_of, status_of

Act = Cancel | Fail | Bury | Reset

_NOT_FOUND = JobAct(refused="not_found")


def cancel(facts: Facts, op: Cancel, now: datetime) -> JobAct:
    row = _find(facts, op)
    if row is None:
        return _NOT_FOUND
    if row.place in ("completed", "dead"):
        return JobAct(refused="not_allowed", job=job_of(row))
    lease = row.lease
    if row.place == "cancelled" or (lease is not None and lease.cancel_requested):
        return JobAct(job=job_of(row))
    before = _shown(row)
    if lease is None:
        stop_waiting(facts, row)
        row.last_try = None
        finish(facts, row, "cancelled", now)
    else:
        assert lease.worker is not None
        lease.cancel_requested = True
        facts.workers[lease.worker].asked_to_cancel.add(row.seq)
    return _done(facts, op, "job_cancel", row, before, now)


def fail(facts: Facts, op: Fail, now: datetime) -> JobAct:
    row = _find(facts, op)
    if row is None:
        return _NOT_FOUND
    if row.place in FINAL_PLACES:
        return JobAct(refused="not_allowed", job=job_of(row))
    before = _shown(row)
    due_at = None
    if op.retry_delay_s is not None and row.attempts + 1 < row.spec.max_attempts:
        due_at = later(now, op.retry_delay_s)
    error_class: ErrorClass = "non_retryable" if due_at is None else "retryable"
    cancel_requested = _end_by_hand(facts, row, own_failure(row, "FailedByHand", error_class, op.reason), now)
    row.attempts += 1
    row.suspect = False
    if due_at is None:
        finish(facts, row, "dead", now)
    elif cancel_requested:
        finish(facts, row, "cancelled", now)
    else:
        schedule(facts, row, due_at, awaits_retry=True)
    return _done(facts, op, "job_fail", row, before, now)


def bury(facts: Facts, op: Bury, now: datetime) -> JobAct:
    row = _find(facts, op)
    if row is None:
        return _NOT_FOUND
    if row.place in FINAL_PLACES:
        return JobAct(refused="not_allowed", job=job_of(row))
    before = _shown(row)
    _end_by_hand(facts, row, own_failure(row, "Buried", "non_retryable", op.reason), now)
    finish(facts, row, "dead", now)
    return _done(facts, op, "job_bury", row, before, now)


def reset(facts: Facts, op: Reset, now: datetime) -> JobAct:
    row = _find(facts, op)
    if row is None:
        return _NOT_FOUND
    lease = row.lease
    if lease is None or lease.worker is None:
        return JobAct(refused="not_allowed", job=job_of(row))
    before = _shown(row)
    release(facts, facts.workers[lease.worker], row, lease, now)
    return _done(facts, op, "job_reset", row, before, now)


def _find(facts: Facts, op: Act) -> Row | None:
    row = facts.ids.get(op.id)
    return row if row is not None and op.scope.admits(row.spec.tenant) else None


def _end_by_hand(facts: Facts, row: Row, failure: Failure, now: datetime) -> bool:
    """End its attempt, or record one for a job that only waited; returns whether a cancel had been asked for."""
    lease = row.lease
    if lease is None:
        stop_waiting(facts, row)
        row.attempt += 1
        end_try(facts, None, row, Try(row.attempt, None, 0, "", now, None, now), "failed_by_hand", now, failure)
        return False
    assert lease.worker is not None
    end_try(facts, facts.workers[lease.worker], row, lease, "failed_by_hand", now, failure)
    return lease.cancel_requested


def _shown(row: Row) -> dict[str, Any]:
    return {"status": status_of(row), "attempts": row.attempts}


def _done(facts: Facts, op: Act, action: str, row: Row, before: dict[str, Any], now: datetime) -> JobAct:
    target, tenant, after = f"job:{row.spec.id}", row.spec.tenant, _shown(row)
    record_act(facts, action, target, tenant, by=op.by, notes=op.notes, before=before, after=after, now=now)
    return JobAct(job=job_of(row))


def record_act(
    facts: Facts,
    action: str,
    target: str,
    tenant: str | None,
    *,
    by: str,
    notes: str | None,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    now: datetime,
) -> None:
    """Write one audit record."""
    facts.last_audit_id += 1
    facts.audit.append(
        AuditRecord(
            id=facts.last_audit_id,
            at=now,
            by=by,
            action=action,
            tenant=tenant,
            target=target,
            notes=notes,
            before=before,
            after=after,
        )
    )
