"""Dead letters: one, a page, groups of those that failed alike, and what people do about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fairlane.core.ids import Seq
from fairlane.core.job import DeadLetter
from fairlane.core.ops import (
    Acknowledge,
    DeadLetterAct,
    DeadLetterDetail,
    DeadLetterFilter,
    DeadLetterGroup,
    DeadLetterGroups,
    DeadLetterPage,
    Discard,
    GetDeadLetter,
    GroupDeadLetters,
    PageDeadLetters,
    Reprocess,
    Resolve,
    Scope,
)
from fairlane.stores.instants import after
from fairlane.stores.sqlite.audit import write_audit
from fairlane.stores.sqlite.durable_steps import copy_steps
from fairlane.stores.sqlite.facts import hold_at_keys
from fairlane.stores.sqlite.job_keys.places import keep_copied_key
from fairlane.stores.sqlite.jobs.records import find_job, read_attempts, read_job, read_jobs
from fairlane.stores.sqlite.listener import addresses_to_wake, wake_for_places
from fairlane.stores.sqlite.rows import Condition, RowReader, bounded, equal, given_or_own_id, in_scope, joined
from fairlane.stores.sqlite.transaction import Transaction, as_list, change, reading, text_of
from fairlane.stores.sqlite.workflows.acts import has_other_job, replace_job, settle_letter

GROUPED = 10_000
"""Dead letters looked at, newest first."""
_DEAD_LETTERS = """
select d.seq, d.status, d.reason, d.error_class, d.error_type, d.fingerprint, d.died_at, d.acknowledged_by,
  d.acknowledged_at, d.closed_by, d.closed_at, d.notes, d.reprocess_count, d.reprocessed_as
from json_each(?) c cross join fairlane_dead_letter d on d.seq = c.value
"""
_letter, _group = RowReader(DeadLetter, without=("job",)), RowReader(DeadLetterGroup)
_CLOSE = "update fairlane_dead_letter set status = ?, closed_by = ?, closed_at = ?, notes = ? where seq = ?"
_ACKNOWLEDGE = "update fairlane_dead_letter set acknowledged_by = ?, acknowledged_at = ? where seq = ?"
_REPROCESSED = "update fairlane_dead_letter set reprocess_count = reprocess_count + 1, reprocessed_as = ? where seq = ?"
_KEY_TAKEN = "select 1 from fairlane_idempotency_key where tenant = ? and key = ?"
_COPY = """
insert into fairlane_job (id, type, tenant, queue, band, rank, max_attempts, payload_version, timeout_s, enqueued_at,
  due_at, category, idempotency_key, correlation_id, parent_id, created_by, refs, headers, retry, payload,
  key, key_terms, key_order)
select ?1, type, tenant, queue, band, rank, max_attempts, payload_version, timeout_s, ?2, ?3, category, ?4, ?5,
  parent_id, ?6, refs, headers, retry, coalesce(?7, payload), key, key_terms, coalesce(key_order, seq)
from fairlane_job where seq = ?8 returning seq
"""
_READY = """
insert into fairlane_ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect)
select seq, queue, band, tenant, rank, due_at, type, ?, 0, 0, 0 from fairlane_job where seq = ?
"""
_SCHEDULED = """
insert into fairlane_scheduled (seq, queue, tenant, failed, due_at, since, attempt, attempts, crashes, suspect)
select seq, queue, tenant, 0, due_at, enqueued_at, ?, 0, 0, 0 from fairlane_job where seq = ?
"""
_GROUPS = """
with found as materialized (
  select d.seq, d.fingerprint, d.died_at, j.tenant from fairlane_dead_letter d
    cross join fairlane_job j on j.seq = d.seq
  where {where} order by d.seq desc limit ?
), grouped as (
  select fingerprint, count(*) as n, count(distinct tenant) as tenants, min(died_at) as first_at,
    max(died_at) as last_at, max(seq) as newest
  from found group by fingerprint order by n desc, fingerprint limit ?
)
select g.fingerprint, j.type, d.error_type, d.reason, g.n, g.tenants, g.first_at, g.last_at, g.newest
from grouped g cross join fairlane_dead_letter d on d.seq = g.newest cross join fairlane_job j on j.seq = g.newest
order by g.n desc, g.fingerprint
"""


@reading
def get_dead_letter(tx: Transaction, op: GetDeadLetter) -> DeadLetterDetail | None:
    if not has_dead_letter(tx, op.id, op.scope.tenant):
        return None
    return DeadLetterDetail(dead_letter=read_dead_letter(tx, op.id), attempts=read_attempts(tx, op.id))


@reading
def page_dead_letters(tx: Transaction, op: PageDeadLetters) -> DeadLetterPage:
    limit = bounded(op.limit)
    where, params = dead_letters_where(op.scope, op.where)
    matching = f"from fairlane_dead_letter d cross join fairlane_job j on j.seq = d.seq where {where}"
    counting = f"select count(*) from (select 1 {matching} limit ?)"  # noqa: S608
    [(total,)] = tx.db.execute(counting, (*params, op.cap))
    if op.before is not None:
        matching, params = f"{matching} and d.seq < ?", (*params, op.before)
    rows = tx.db.execute(f"select d.seq {matching} order by d.seq desc limit ?", (*params, limit + 1))
    found = [seq for (seq,) in rows]
    letters = read_dead_letters(tx, found[:limit])
    following = Seq(found[limit - 1]) if len(found) > limit else None
    return DeadLetterPage(dead_letters=tuple(letters), next=following, total=total)


def dead_letters_where(scope: Scope, where: DeadLetterFilter) -> tuple[str, tuple[object, ...]]:
    """The condition on a dead letter `d` and its job `j`, with its parameters."""
    conditions = in_scope(scope)
    conditions += equal(
        ("d.status", where.status),
        ("d.error_class", where.error_class),
        ("d.error_type", where.error_type),
        ("d.fingerprint", where.fingerprint),
        ("j.queue", where.queue),
        ("j.type", where.type),
        ("j.category", where.category),
    )
    if where.acknowledged is not None:
        conditions.append(Condition(f"d.acknowledged_by is {'not ' if where.acknowledged else ''}null", ()))
    if where.correlation_id is not None:
        conditions.append(given_or_own_id("correlation_id", where.correlation_id))
    return joined(conditions)


@reading
def group_dead_letters(tx: Transaction, op: GroupDeadLetters) -> DeadLetterGroups:
    where, params = dead_letters_where(op.scope, op.where)
    rows = tx.db.execute(_GROUPS.replace("{where}", where), (*params, GROUPED, max(op.limit, 0)))
    groups = tuple(map(_group, rows))
    return DeadLetterGroups(groups=groups)


@change
def discard(tx: Transaction, op: Discard) -> DeadLetterAct:
    return _close(tx, op, "discarded", "job_dlq_discard")


@change
def resolve(tx: Transaction, op: Resolve) -> DeadLetterAct:
    return _close(tx, op, "resolved", "job_dlq_resolve")


@change
def acknowledge(tx: Transaction, op: Acknowledge) -> DeadLetterAct:
    letter = _find(tx, op)
    if letter is None:
        return DeadLetterAct(refused="not_found")
    if letter.acknowledged_by is not None:
        return DeadLetterAct(dead_letter=letter)
    tx.db.execute(_ACKNOWLEDGE, (op.by, tx.now, op.id))
    return _audited(tx, op, "job_dlq_acknowledge", letter)


@change
def reprocess(tx: Transaction, op: Reprocess) -> DeadLetterAct:
    letter = _find(tx, op)
    if letter is None:
        return DeadLetterAct(refused="not_found")
    made = None if letter.reprocessed_as is None else find_job(tx, letter.reprocessed_as, None)
    if made is not None and letter.status == "retried":
        job = read_job(tx, made)
        if job.id == op.new_job_id or job.status not in ("dead", "cancelled"):
            return DeadLetterAct(dead_letter=letter, new_job=job, repeated=True)
    target, before = f"dead_letter:{op.id}", _facts(letter)
    write_audit(tx, op, "job_dlq_reprocess_requested", letter.job.tenant, target, before, None)
    is_open = letter.status in ("pending_review", "retried")
    if not is_open or find_job(tx, op.new_job_id, None) is not None or has_other_job(tx, op.id):
        return DeadLetterAct(refused="not_allowed", dead_letter=letter)
    payload = None if op.payload is None else text_of(op.payload, "the payload of job", op.new_job_id)
    seq = _copy(tx, op, letter, payload)
    tx.db.execute(_REPROCESSED, (op.new_job_id.bytes, op.id))
    tx.db.execute(_CLOSE, ("retried", op.by, tx.now, op.notes, op.id))
    wake_for_places(tx)
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
    keep_copied_key(tx, seq)
    # With steps of another job its attempts begin behind the first: that is how a worker knows of them.
    attempt = int(copy_steps(tx, dead.seq, seq))
    if replace_job(tx, dead.seq, seq) == "held":
        tx.db.execute("insert into fairlane_held values (?, '', ?)", (seq, dead.tenant))
    elif due_at <= tx.now:
        tx.db.execute(_READY, (attempt, seq))
        hold_at_keys(tx, [seq])
        tx.wakes.extend(addresses_to_wake(tx, "if_waiting", {dead.queue}))
    else:
        tx.db.execute(_SCHEDULED, (attempt, seq))
    return Seq(seq)


def _close(
    tx: Transaction, op: Discard | Resolve, status: Literal["discarded", "resolved"], action: str
) -> DeadLetterAct:
    letter = _find(tx, op)
    if letter is None:
        return DeadLetterAct(refused="not_found")
    if letter.status not in ("pending_review", "retried"):
        return DeadLetterAct(refused="not_allowed", dead_letter=letter)
    tx.db.execute(_CLOSE, (status, op.by, tx.now, op.notes, op.id))
    settle_letter(tx, op.id, status)
    wake_for_places(tx)
    return _audited(tx, op, action, letter)


def _find(tx: Transaction, op: Acknowledge | Discard | Resolve | Reprocess) -> DeadLetter | None:
    return read_dead_letter(tx, op.id) if has_dead_letter(tx, op.id, op.scope.tenant) else None


def _audited(tx: Transaction, op: Acknowledge | Discard | Resolve, action: str, before: DeadLetter) -> DeadLetterAct:
    after = read_dead_letter(tx, op.id)
    write_audit(tx, op, action, after.job.tenant, f"dead_letter:{op.id}", _facts(before), _facts(after))
    return DeadLetterAct(dead_letter=after)


def _facts(letter: DeadLetter) -> dict[str, object]:
    return {"status": letter.status, "acknowledged_by": letter.acknowledged_by}


def read_dead_letters(tx: Transaction, seqs: Sequence[int]) -> list[DeadLetter]:
    jobs = dict(zip(seqs, read_jobs(tx, seqs), strict=True))
    letters = {row[0]: _letter(row, job=jobs[row[0]]) for row in tx.db.execute(_DEAD_LETTERS, (as_list(seqs),))}
    return [letters[seq] for seq in seqs]


def read_dead_letter(tx: Transaction, seq: int) -> DeadLetter:
    [letter] = read_dead_letters(tx, [seq])
    return letter


def has_dead_letter(tx: Transaction, seq: int, tenant: str | None) -> bool:
    rows = tx.db.execute(
        "select j.tenant from fairlane_dead_letter d cross join fairlane_job j on j.seq = d.seq where d.seq = ?", (seq,)
    )
    return bool(rows) and tenant in (None, rows[0][0])
