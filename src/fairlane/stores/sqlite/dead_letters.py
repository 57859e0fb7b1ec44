"""What people do about dead letters."""

from __future__ import annotations

from fairlane.core.ids import Seq
from fairlane.core.job import DeadLetter
from fairlane.core.ops import Acknowledge, DeadLetterAct, Discard, Reprocess, Resolve
from fairlane.stores.sqlite.audit import write_audit
from fairlane.stores.sqlite.instants import after
from fairlane.stores.sqlite.jobs import find_job, has_dead_letter, read_dead_letter, read_job
from fairlane.stores.sqlite.listener import addresses_to_wake
from fairlane.stores.sqlite.transaction import Transaction, text_of

_CLOSE = "update fairlane_dead_letter set status = ?, closed_by = ?, closed_at = ?, notes = ? where seq = ?"
_ACKNOWLEDGE = "update fairlane_dead_letter set acknowledged_by = ?, acknowledged_at = ? where seq = ?"
_REPROCESSED = "update fairlane_dead_letter set reprocess_count = reprocess_count + 1, reprocessed_as = ? where seq = ?"
_KEY_TAKEN = "select 1 from fairlane_idempotency_key where tenant = ? and key = ?"
_COPY = """
insert into fairlane_job (id, type, tenant, queue, band, rank, max_attempts, payload_version, timeout_s, enqueued_at, due_at,
  category, idempotency_key, correlation_id, parent_id, created_by, refs, headers, retry, payload)
select ?1, type, tenant, queue, band, rank, max_attempts, payload_version, timeout_s, ?2, ?3, category, ?4, ?5, parent_id,
  ?6, refs, headers, retry, coalesce(?7, payload)
from fairlane_job where seq = ?8 returning seq
"""
_READY = """
insert into fairlane_ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect)
select seq, queue, band, tenant, rank, due_at, type, 0, 0, 0, 0 from fairlane_job where seq = ?
"""
_SCHEDULED = """
insert into fairlane_scheduled (seq, queue, tenant, failed, due_at, attempt, attempts, crashes, suspect)
select seq, queue, tenant, 0, due_at, 0, 0, 0, 0 from fairlane_job where seq = ?
"""


def discard(tx: Transaction, op: Discard) -> DeadLetterAct:
    return _close(tx, op, "discarded", "job_dlq_discard")


def resolve(tx: Transaction, op: Resolve) -> DeadLetterAct:
    return _close(tx, op, "resolved", "job_dlq_resolve")


def acknowledge(tx: Transaction, op: Acknowledge) -> DeadLetterAct:
    letter = _find(tx, op)
    if letter is None:
        return DeadLetterAct(refused="not_found")
    if letter.acknowledged_by is not None:
        return DeadLetterAct(dead_letter=letter)
    tx.db.execute(_ACKNOWLEDGE, (op.by, tx.now, op.id))
    return _audited(tx, op, "job_dlq_acknowledge", letter)


def reprocess(tx: Transaction, op: Reprocess) -> DeadLetterAct:
    letter = _find(tx, op)
    if letter is None:
        return DeadLetterAct(refused="not_found")
    if letter.status not in ("pending_review", "retried"):
        return DeadLetterAct(refused="not_allowed", dead_letter=letter)
    made = None if letter.reprocessed_as is None else find_job(tx, letter.reprocessed_as, None)
    if made is not None and letter.status == "retried":
        job = read_job(tx, made)
        if job.id == op.new_job_id or job.status not in ("dead", "cancelled"):
            return DeadLetterAct(dead_letter=letter, new_job=job, repeated=True)
    if find_job(tx, op.new_job_id, None) is not None:
        return DeadLetterAct(refused="not_allowed", dead_letter=letter)
    payload = None if op.payload is None else text_of(op.payload, "the payload of job", op.new_job_id)
    seq = _copy(tx, op, letter, payload)
    tx.db.execute(_REPROCESSED, (op.new_job_id.bytes, op.id))
    tx.db.execute(_CLOSE, ("retried", op.by, tx.now, op.notes, op.id))
    target, before = f"dead_letter:{op.id}", _facts(letter)
    write_audit(tx, op, "job_dlq_reprocess_requested", letter.job.tenant, target, before, None)
    closed = read_dead_letter(tx, op.id)
    facts = {**_facts(closed), "new_job_id": str(op.new_job_id)}
    if payload is not None and payload != letter.job.payload:
        facts["payload_edited"] = True
    write_audit(tx, op, "job_dlq_reprocess_success", letter.job.tenant, target, before, facts)
    return DeadLetterAct(dead_letter=closed, new_job=read_job(tx, seq))


def _copy(tx: Transaction, op: Reprocess, letter: DeadLetter, payload: str | None) -> int:
    """A new job like the dead one, under the next key that is free."""
    dead = letter.job
    n = letter.reprocess_count + 1
    while tx.db.execute(_KEY_TAKEN, (dead.tenant, key := f"{dead.idempotency_key}_retry_{n}")):
        n += 1
    due_at = after(tx.now, op.delay_s) if op.delay_s else tx.now
    [(seq,)] = tx.db.execute(
        _COPY, (op.new_job_id.bytes, tx.now, due_at, key, dead.correlation_id, op.by, payload, dead.seq)
    )
    tx.db.execute("insert into fairlane_idempotency_key values (?, ?, ?)", (dead.tenant, key, seq))
    if due_at <= tx.now:
        tx.db.execute(_READY, (seq,))
        tx.wakes.extend(addresses_to_wake(tx, "if_waiting", {dead.queue}))
    else:
        tx.db.execute(_SCHEDULED, (seq,))
    return Seq(seq)


def _close(tx: Transaction, op: Discard | Resolve, status: str, action: str) -> DeadLetterAct:
    letter = _find(tx, op)
    if letter is None:
        return DeadLetterAct(refused="not_found")
    if letter.status not in ("pending_review", "retried"):
        return DeadLetterAct(refused="not_allowed", dead_letter=letter)
    tx.db.execute(_CLOSE, (status, op.by, tx.now, op.notes, op.id))
    return _audited(tx, op, action, letter)


def _find(tx: Transaction, op: Acknowledge | Discard | Resolve | Reprocess) -> DeadLetter | None:
    return read_dead_letter(tx, op.id) if has_dead_letter(tx, op.id, op.scope.tenant) else None


def _audited(tx: Transaction, op: Acknowledge | Discard | Resolve, action: str, before: DeadLetter) -> DeadLetterAct:
    after = read_dead_letter(tx, op.id)
    write_audit(tx, op, action, after.job.tenant, f"dead_letter:{op.id}", _facts(before), _facts(after))
    return DeadLetterAct(dead_letter=after)


def _facts(letter: DeadLetter) -> dict[str, object]:
    return {"status": letter.status, "acknowledged_by": letter.acknowledged_by}
