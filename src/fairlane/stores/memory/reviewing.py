"""What people do about dead letters: reprocess, discard, resolve, acknowledge."""

from __future__ import annotations

from datetime import datetime
from heapq import heappush
from typing import Any

from msgspec import structs

from fairlane.core.job import DeadLetterStatus, JobSpec
from fairlane.core.ops import Acknowledge, DeadLetterAct, Discard, Reprocess, Resolve
from fairlane.stores.memory.acting import record_act
from fairlane.stores.memory.facts import Facts, Letter, Row
from fairlane.stores.memory.moving import create, later
from fairlane.stores.memory.showing import dead_letter_of, job_of

Act = Reprocess | Discard | Resolve | Acknowledge

_NOT_FOUND = DeadLetterAct(refused="not_found")


def discard(facts: Facts, op: Discard, now: datetime) -> DeadLetterAct:
    return _close_for_good(facts, op, "discarded", "job_dlq_discard", now)


def resolve(facts: Facts, op: Resolve, now: datetime) -> DeadLetterAct:
    return _close_for_good(facts, op, "resolved", "job_dlq_resolve", now)


def acknowledge(facts: Facts, op: Acknowledge, now: datetime) -> DeadLetterAct:
    row, letter = _find(facts, op)
    if row is None or letter is None:
        return _NOT_FOUND
    if letter.acknowledged_by is None:
        before = _shown(letter)
        letter.acknowledged_by, letter.acknowledged_at = op.by, now
        _record(facts, op, "job_dlq_acknowledge", row, before, _shown(letter), now)
    return DeadLetterAct(dead_letter=dead_letter_of(row))


def reprocess(facts: Facts, op: Reprocess, now: datetime) -> DeadLetterAct:
    row, letter = _find(facts, op)
    if row is None or letter is None:
        return _NOT_FOUND
    if letter.status in ("resolved", "discarded"):
        return DeadLetterAct(refused="not_allowed", dead_letter=dead_letter_of(row))
    made = None if letter.reprocessed_as is None else facts.ids.get(letter.reprocessed_as)
    if made is not None and (made.spec.id == op.new_job_id or made.place not in ("dead", "cancelled")):
        return DeadLetterAct(dead_letter=dead_letter_of(row), new_job=job_of(made), repeated=True)
    if op.new_job_id in facts.ids:
        return DeadLetterAct(refused="not_allowed", dead_letter=dead_letter_of(row))
    before = _shown(letter)
    payload = row.payload if op.payload is None else bytes(op.payload).decode()
    due_at = now if op.delay_s is None else later(now, op.delay_s)
    again = create(facts, _request_again(facts, row, letter, op), payload, due_at, now)
    _close(facts, op, row, letter, "retried", now)
    letter.reprocess_count += 1
    letter.reprocessed_as = op.new_job_id
    after = {**_shown(letter), "new_job_id": str(op.new_job_id)}
    if payload != row.payload:
        after["payload_edited"] = True
    _record(facts, op, "job_dlq_reprocess_requested", row, before, None, now)
    _record(facts, op, "job_dlq_reprocess_success", row, before, after, now)
    return DeadLetterAct(dead_letter=dead_letter_of(row), new_job=job_of(again))


def _request_again(facts: Facts, row: Row, letter: Letter, op: Reprocess) -> JobSpec:
    nth = letter.reprocess_count + 1
    while (row.spec.tenant, f"{row.idempotency_key}_retry_{nth}") in facts.idempotency:
        nth += 1
    return structs.replace(
        row.spec,
        id=op.new_job_id,
        payload=row.spec.payload if op.payload is None else op.payload,
        idempotency_key=f"{row.idempotency_key}_retry_{nth}",
        dedup_key=None,
        correlation_id=row.correlation_id,
        created_by=op.by,
        run_at=None,
        delay_s=None,
    )


def _find(facts: Facts, op: Act) -> tuple[Row | None, Letter | None]:
    row = facts.letters.get(op.id)
    return (row, row.letter) if row is not None and op.scope.admits(row.spec.tenant) else (None, None)


def _close_for_good(
    facts: Facts, op: Discard | Resolve, status: DeadLetterStatus, action: str, now: datetime
) -> DeadLetterAct:
    row, letter = _find(facts, op)
    if row is None or letter is None:
        return _NOT_FOUND
    if letter.status in ("resolved", "discarded"):
        return DeadLetterAct(refused="not_allowed", dead_letter=dead_letter_of(row))
    before = _shown(letter)
    _close(facts, op, row, letter, status, now)
    _record(facts, op, action, row, before, _shown(letter), now)
    return DeadLetterAct(dead_letter=dead_letter_of(row))


def _close(facts: Facts, op: Act, row: Row, letter: Letter, status: DeadLetterStatus, now: datetime) -> None:
    letter.status, letter.closed_by, letter.closed_at, letter.resolution_notes = status, op.by, now, op.notes
    heappush(facts.closed, (now, row.seq))


def _shown(letter: Letter) -> dict[str, Any]:
    return {"status": letter.status, "acknowledged_by": letter.acknowledged_by}


def _record(
    facts: Facts, op: Act, action: str, row: Row, before: dict[str, Any], after: dict[str, Any] | None, now: datetime
) -> None:
    target = f"dead_letter:{row.seq}"
    record_act(facts, action, target, row.spec.tenant, by=op.by, notes=op.notes, before=before, after=after, now=now)
