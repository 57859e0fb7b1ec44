"""Retention: removes what is old enough; and a purge for tests."""

from __future__ import annotations

from msgspec import json

from fairlane.core.ops import DropResults, ForgetOld, Forgotten, Purge, Purged, ResultsDropped, Retain, Retained
from fairlane.core.ops.retention import LONG_AGO
from fairlane.stores.instants import EARLIEST_US, maybe_from_us, to_us
from fairlane.stores.sqlite.credentials import forget_ended
from fairlane.stores.sqlite.driver import Driver
from fairlane.stores.sqlite.limits.in_force import forget_read
from fairlane.stores.sqlite.signals import forget_signals
from fairlane.stores.sqlite.transaction import Transaction, as_list, change

# Results of nodes are wanted until their workflow has ended, and nothing dead of it can be tried again.
_IS_WANTED = """
exists (select 1 from fairlane_node n cross join fairlane_tally t on t.workflow = n.workflow
  where n.seq = {seq} and t.total > t.completed + t.cancelled + t.skipped)
"""
_OF_QUEUE = """
coalesce((select k.value from json_each(?) k cross join fairlane_job j on j.seq = d.seq and j.queue = k.key), ?)
"""
_FINISHED = f"""
select d.seq, d.finished_at from fairlane_done d
where d.status <> 'dead' and d.finished_at < ? and d.finished_at >= ? and d.finished_at < {_OF_QUEUE}
  and not {_IS_WANTED.format(seq="d.seq")}
order by d.finished_at, d.seq limit ?
"""  # noqa: S608
_EXAMINED_TO = """
select finished_at + 1 from fairlane_done where status <> 'dead' and finished_at < ? and finished_at >= ?
order by finished_at limit 1 offset ?
"""
_CLOSED = f"""
select d.seq from fairlane_dead_letter d
where d.closed_at < ? and d.closed_at < {_OF_QUEUE} and not {_IS_WANTED.format(seq="d.seq")}
order by d.closed_at, d.seq limit ?
"""  # noqa: S608
_EMPTY_WORKFLOWS = """
select seq from fairlane_workflow w where seq in (select value from json_each(?))
  and not exists (select 1 from fairlane_node n where n.workflow = w.seq)
"""
_OLD_FIGURES = """
delete from fairlane_stat where (minute, type, queue, tenant) in
  (select minute, type, queue, tenant from fairlane_stat where minute < ? order by minute limit 2000)
"""
_FACTS = ("attempt", "done", "dead_letter", "note", "job")
_WORKFLOWS = ("workflow", "node", "gate", "tally")
_LIMITS = ("limit", "rate_use", "knock", "tenant")
_PAUSES = ("pause", "refusal")
JOB_TABLES = (
    "ready",
    "scheduled",
    "lease",
    "attempt",
    "done",
    "dead_letter",
    "idempotency_key",
    "dedup_key",
    "note",
    "held",
    "job_key",
    "job",
)
"""Each has the seq of the job it is about."""
_WATCHING = ("audit", "audit_seal", "audit_unsealed", "credential", "event", "signal", "duty", "alert", "silence")
_KEYS = """
delete from fairlane_idempotency_key where (tenant, key) in
  (select tenant, idempotency_key from fairlane_job
   where seq in (select value from json_each(?)) and idempotency_key is not null)
"""
_FORGET = """
delete from fairlane_event where id in (select id from fairlane_event where at < ? order by at, id limit ?) returning 1
"""


@change
def retain(tx: Transaction, op: Retain) -> Retained:
    limit = max(op.limit, 0)
    from_us = EARLIEST_US if op.finished_from is None else to_us(op.finished_from)
    kept = {queue: to_us(before) for queue, before in op.by_queue.items()}
    by_queue = json.encode(kept).decode()
    last, examined_to = to_us(op.newest(op.finished_before)), None
    if kept:
        cut = tx.db.execute(_EXAMINED_TO, (last, from_us, max(op.examine, 1) - 1))
        examined_to = cut[0][0] if cut else None
    others = to_us(op.finished_before or LONG_AGO)
    rows = tx.db.execute(_FINISHED, (examined_to or last, from_us, by_queue, others, limit))
    seqs, finished_to = [seq for seq, _ in rows], rows[-1][1] if rows else None
    last, others = to_us(op.newest(op.closed_before)), to_us(op.closed_before or LONG_AGO)
    seqs += [seq for (seq,) in tx.db.execute(_CLOSED, (last, by_queue, others, limit - len(seqs)))]
    if seqs:
        listed = as_list(seqs)
        tx.db.execute(_KEYS, (listed,))
        for table in _FACTS:
            tx.db.execute(f"delete from fairlane_{table} where seq in (select value from json_each(?))", (listed,))  # noqa: S608
        remove_nodes(tx.db, listed)
    more_stats = op.stats_before is not None and _forget_figures(tx, to_us(op.stats_before))
    return Retained(
        jobs=len(seqs),
        finished_to=maybe_from_us(finished_to),
        examined_to=maybe_from_us(examined_to),
        more_stats=more_stats,
    )


def _forget_figures(tx: Transaction, before_us: int) -> bool:
    """Remove the oldest statistics from before then; returns whether others are left."""
    tx.db.execute(_OLD_FIGURES, (before_us,))
    return bool(tx.db.execute("select 1 from fairlane_stat where minute < ? limit 1", (before_us,)))


def remove_nodes(db: Driver, listed: str) -> None:
    """Remove the nodes of these jobs, and workflows with the last of theirs."""
    gone = "delete from fairlane_node where seq in (select value from json_each(?)) returning workflow"
    workflows = {workflow for (workflow,) in db.execute(gone, (listed,))}
    for (seq,) in db.execute(_EMPTY_WORKFLOWS, (as_list(sorted(workflows)),)) if workflows else ():
        for table in ("gate", "tally"):
            db.execute(f"delete from fairlane_{table} where workflow = ?", (seq,))  # noqa: S608
        db.execute("delete from fairlane_workflow where seq = ?", (seq,))


@change
def purge(tx: Transaction, op: Purge) -> Purged:
    [(jobs,)] = tx.db.execute("select count(*) from fairlane_job")
    tx.db.execute("insert into fairlane_meta values ('purging', 1)")
    others = ("worker", "breaker", "schedule", "stat")
    for table in (*JOB_TABLES, *others, *_PAUSES, *_WATCHING, *_LIMITS, *_WORKFLOWS):
        tx.db.execute(f"delete from fairlane_{table}")  # noqa: S608
    tx.db.execute(
        "delete from fairlane_meta where name in ('purging', 'watched_until_us', 'rolled_up_seq', 'limits_refusals', "
        "'set_back_at', 'set_back_us', 'set_back_seq')"
    )
    forget_read(tx)
    return Purged(jobs=jobs)


@change
def forget(tx: Transaction, op: ForgetOld) -> Forgotten:
    limit = max(op.limit, 0)
    events = credentials = 0
    if op.events_before is not None:
        events = len(tx.db.execute(_FORGET, (to_us(op.events_before), limit)))
    if op.credentials_before is not None:
        credentials = forget_ended(tx, to_us(op.credentials_before), limit)
    signals = 0 if op.signals_before is None else forget_signals(tx, to_us(op.signals_before), limit)
    return Forgotten(events=events, credentials=credentials, signals=signals)


_EXAMINED = f"""
select d.seq, d.finished_at,
  iif(d.status = 'completed' and d.result is not null and j.type = ?, not {_IS_WANTED.format(seq="d.seq")}, null)
from fairlane_done d join fairlane_job j on j.seq = d.seq
where d.status <> 'dead' and d.finished_at >= ? and (d.finished_at, d.seq) > (?, ?) and d.finished_at < ?
order by d.finished_at, d.seq limit ?
"""  # noqa: S608


@change
def drop_results(tx: Transaction, op: DropResults) -> ResultsDropped:
    limit = max(op.limit, 0)
    at, seq = (EARLIEST_US if op.at is None else to_us(op.at)), -1 if op.seq is None else op.seq
    rows = tx.db.execute(_EXAMINED, (op.type, at, at, seq, to_us(op.finished_before), limit))
    seqs = as_list([seq for seq, _, is_old in rows if is_old])
    tx.db.execute("update fairlane_done set result = null where seq in (select value from json_each(?))", (seqs,))
    return ResultsDropped(
        dropped=sum(is_old == 1 for _, _, is_old in rows),
        at=maybe_from_us(rows[-1][1]) if rows else op.at,
        seq=rows[-1][0] if rows else op.seq,
        more=len(rows) >= limit,
        left_at=maybe_from_us(next((finished for _, finished, is_old in rows if is_old == 0), None)),
    )
