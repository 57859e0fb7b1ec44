"""Rows as people see them."""

from __future__ import annotations

from fairlane.core.job import Attempt, DeadLetter, Job, Status
from fairlane.stores.memory.facts import FINAL_PLACES, Row


def status_of(row: Row) -> Status:
    match row.place:
        case "ready" | "held":
            return "pending"
        case "scheduled":
            return "failed" if row.awaits_retry else "pending"
        case "leased":
            return "processing" if row.lease is not None and row.lease.started_at is not None else "pending"
        case final:
            return final


def job_of(row: Row) -> Job:
    spec, failure = row.spec, row.failure
    lease = row.last_try if row.place in FINAL_PLACES else row.lease
    return Job(
        seq=row.seq,
        id=spec.id,
        type=spec.type,
        status=status_of(row),
        tenant=spec.tenant,
        queue=spec.queue,
        priority=spec.priority,
        category=spec.category,
        payload=row.payload,
        payload_version=spec.payload_version,
        idempotency_key=row.idempotency_key,
        dedup_key=spec.dedup_key,
        correlation_id=row.correlation_id,
        parent_id=spec.parent_id,
        created_by=spec.created_by,
        refs=spec.refs.copy(),
        headers=spec.headers.copy(),
        attempt=row.attempt,
        attempts=row.attempts,
        crashes=row.crashes,
        max_attempts=spec.max_attempts,
        timeout_s=spec.timeout_s,
        enqueued_at=row.enqueued_at,
        scheduled_at=row.scheduled_at,
        run_at=row.due_at,
        started_at=None if lease is None else lease.started_at,
        finished_at=row.finished_at,
        worker=None if lease is None else lease.worker,
        cancel_requested=row.lease is not None and row.lease.cancel_requested,
        result=row.result,
        error_class=None if failure is None else failure.error_class,
        error_type=None if failure is None else failure.error_type,
        last_error=None if failure is None else failure.message,
        last_error_at=row.failed_at,
    )


def attempts_of(row: Row) -> tuple[Attempt, ...]:
    attempts = []
    for ended in row.tries:
        assert ended.outcome is not None
        assert ended.ended_at is not None
        failure = ended.failure
        attempts.append(
            Attempt(
                attempt=ended.attempt,
                outcome=ended.outcome,
                worker=ended.worker,
                leased_at=ended.leased_at,
                started_at=ended.started_at,
                ended_at=ended.ended_at,
                error_class=None if failure is None else failure.error_class,
                error_type=None if failure is None else failure.error_type,
                error_message=ended.reason if failure is None else failure.message,
                traceback=None if failure is None else failure.traceback,
            )
        )
    return tuple(attempts)


def dead_letter_of(row: Row) -> DeadLetter:
    letter, failure = row.letter, row.failure
    assert letter is not None
    assert failure is not None
    assert row.finished_at is not None
    return DeadLetter(
        id=row.seq,
        job=job_of(row),
        status=letter.status,
        reason=failure.message[:2000],
        error_class=failure.error_class,
        error_type=failure.error_type,
        fingerprint=failure.fingerprint,
        died_at=row.finished_at,
        acknowledged_by=letter.acknowledged_by,
        acknowledged_at=letter.acknowledged_at,
        closed_by=letter.closed_by,
        closed_at=letter.closed_at,
        resolution_notes=letter.resolution_notes,
        reprocess_count=letter.reprocess_count,
        reprocessed_as=letter.reprocessed_as,
    )
