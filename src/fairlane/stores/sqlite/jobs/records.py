"""Jobs put together from their facts: one with its attempts and log, or a page of them, newest first."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlane.core.ids import JobId, Seq
from fairlane.core.job import Attempt, Job, Status
from fairlane.core.ops import (
    LOG_LINES,
    GetJob,
    GetStatus,
    JobDetail,
    JobFilter,
    JobPage,
    JobStatus,
    LogLine,
    Note,
    Noted,
    PageJobs,
    status_of,
)
from fairlane.stores.instants import from_us, to_us
from fairlane.stores.sqlite.driver import Row
from fairlane.stores.sqlite.durable_steps import read_steps
from fairlane.stores.sqlite.facts import is_leased
from fairlane.stores.sqlite.rows import Condition, RowReader, bounded, equal, given_or_own_id, in_scope, joined
from fairlane.stores.sqlite.signals import read_wait
from fairlane.stores.sqlite.transaction import Transaction, as_list, change, reading

_attempt, _columns = RowReader(Attempt), RowReader(Job)
# A job held for room has no facts of its own yet: none is as good as never tried, and due when it was first due.
_JOBS = """
select j.seq, j.id, j.type,
  case when d.seq is not null then d.status when s.failed then 'failed' when l.started_at is not null then 'processing'
    else 'pending' end,
  j.tenant, j.queue, j.band + j.rank, j.category, j.payload, j.payload_version, j.idempotency_key, j.dedup_key,
  j.correlation_id, j.parent_id, j.created_by, coalesce(j.refs, '{}'), coalesce(j.headers, '{}'),
  coalesce(d.attempt, r.attempt, s.attempt, l.attempt, k.attempt, 0),
  coalesce(d.attempts, r.attempts, s.attempts, l.attempts, k.attempts, 0),
  coalesce(d.crashes, r.crashes, s.crashes, l.crashes, k.crashes, 0),
  j.max_attempts, j.timeout_s, j.enqueued_at, j.due_at,
  coalesce(d.due_at, r.due_at, s.due_at, l.due_at, k.due_at, j.due_at),
  coalesce(d.started_at, l.started_at), d.finished_at, coalesce(d.worker, l.worker), coalesce(l.cancel_requested, 0),
  d.result,
  iif(d.error_type is null, a.error_class, d.error_class), coalesce(d.error_type, a.error_type),
  iif(d.error_type is null, a.error_message, d.error_message), iif(d.error_type is null, a.ended_at, d.finished_at),
  j.key
from json_each(?) c
cross join fairlane_job j on j.seq = c.value
left join fairlane_ready r on r.seq = j.seq
left join fairlane_scheduled s on s.seq = j.seq
left join fairlane_lease l on l.seq = j.seq
left join fairlane_done d on d.seq = j.seq
left join fairlane_job_key k on k.seq = j.seq and k.state = 'held'
left join fairlane_attempt a on a.seq = j.seq and a.attempt =
  (select max(attempt) from fairlane_attempt where seq = j.seq and error_type is not null)
"""
_ATTEMPTS = """
select a.attempt as attempt, outcome, worker, leased_at, expires_at, started_at, ended_at, error_class, error_type,
  error_message, traceback
from fairlane_attempt a left join fairlane_lease_end e on e.seq = a.seq and e.attempt = a.attempt where a.seq = ?1
union all
select d.attempt, outcome, worker, leased_at, expires_at, started_at, finished_at, error_class, error_type,
  error_message, traceback
from fairlane_done d left join fairlane_lease_end e on e.seq = d.seq and e.attempt = d.attempt
where d.seq = ?1 and outcome is not null
order by attempt
"""
_IN_STATUS: dict[Status, tuple[str, ...]] = {
    "pending": (
        "fairlane_ready f",
        "(select seq from fairlane_scheduled where not failed) f",
        "(select seq from fairlane_lease where started_at is null) f",
        "fairlane_held f",
        "(select seq from fairlane_job_key where state = 'held') f",
    ),
    "processing": ("(select seq from fairlane_lease where started_at is not null) f",),
    "failed": ("(select seq from fairlane_scheduled where failed) f",),
    "completed": ("(select seq from fairlane_done where status = 'completed') f",),
    # Said twice, because SQLite uses a partial index only where its own condition stands in the query.
    "dead": ("(select seq from fairlane_done where status = 'dead' and status <> 'completed') f",),
    "cancelled": ("(select seq from fairlane_done where status = 'cancelled' and status <> 'completed') f",),
}
_NOTE = """
insert into fairlane_note (seq, progress, log) values (?1, ?2, ?3)
on conflict (seq) do update set progress = coalesce(?2, progress), log = ?3
"""
_log_lines = msgspec.json.Decoder(list[LogLine]).decode


@reading
def get_job(tx: Transaction, op: GetJob) -> JobDetail | None:
    seq = find_job(tx, op.id, op.scope.tenant)
    if seq is None:
        return None
    progress, log = read_note(tx, seq)
    return JobDetail(
        job=read_job(tx, seq),
        attempts=read_attempts(tx, seq),
        progress=progress,
        log=log,
        steps=read_steps(tx, seq),
        waits_for=read_wait(tx, seq),
    )


@reading
def get_status(tx: Transaction, op: GetStatus) -> JobStatus | None:
    seq = find_job(tx, op.id, op.scope.tenant)
    return None if seq is None else status_of(read_job(tx, seq))


@reading
def page_jobs(tx: Transaction, op: PageJobs) -> JobPage:
    limit = bounded(op.limit)
    conditions = [*in_scope(op.scope), *_job_conditions(op.where)]
    runs: tuple[Status, ...] = ("processing",) if op.where.started_before is not None else ()
    statuses = dict.fromkeys(op.where.statuses or runs)
    sources = [source for status in statuses for source in _IN_STATUS[status]]
    number = "f.seq" if sources else "j.seq"
    if op.before is not None:
        conditions.append(Condition(f"{number} < ?", (op.before,)))
    where, params = joined(conditions)
    # `cross join`: from the facts to their jobs, never from all jobs to their facts.
    tables = [f"{source} cross join fairlane_job j on j.seq = f.seq" for source in sources] or ["fairlane_job j"]
    found: list[int] = []
    for table in tables:
        sql = f"select {number} from {table} where {where} order by {number} desc limit ?"  # noqa: S608
        found += [seq for (seq,) in tx.db.execute(sql, (*params, limit + 1))]
    found.sort(reverse=True)
    jobs = read_jobs(tx, found[:limit])
    return JobPage(jobs=tuple(jobs), next=Seq(found[limit - 1]) if len(found) > limit else None)


def _job_conditions(where: JobFilter) -> list[Condition]:
    conditions = equal(
        ("j.queue", where.queue),
        ("j.type", where.type),
        ("j.category", where.category),
        ("j.parent_id", None if where.parent_id is None else where.parent_id.bytes),
        ("j.created_by", where.created_by),
    )
    if where.correlation_id is not None:
        conditions.append(given_or_own_id("correlation_id", where.correlation_id))
    if where.idempotency_key is not None:
        conditions.append(given_or_own_id("idempotency_key", where.idempotency_key))
    if where.enqueued_from is not None:
        conditions.append(Condition("j.enqueued_at >= ?", (to_us(where.enqueued_from),)))
    if where.enqueued_before is not None:
        conditions.append(Condition("j.enqueued_at < ?", (to_us(where.enqueued_before),)))
    if where.started_before is not None:
        started = "exists (select 1 from fairlane_lease l where l.seq = j.seq and l.started_at < ?)"
        conditions.append(Condition(started, (to_us(where.started_before),)))
    return conditions


@change
def note(tx: Transaction, op: Note) -> Noted:
    if not is_leased(tx, op):
        return Noted(accepted=False)
    _, lines = read_note(tx, op.seq)
    new = [LogLine(at=from_us(tx.now), attempt=op.attempt, message=message) for message in op.log]
    kept = [*lines, *new][-LOG_LINES:]
    tx.db.execute(_NOTE, (op.seq, op.progress, msgspec.json.encode(kept).decode()))
    return Noted(accepted=True)


def read_note(tx: Transaction, seq: int) -> tuple[float | None, tuple[LogLine, ...]]:
    rows = tx.db.execute("select progress, log from fairlane_note where seq = ?", (seq,))
    return (rows[0][0], tuple(_log_lines(rows[0][1]))) if rows else (None, ())


def find_job(tx: Transaction, job_id: JobId, tenant: str | None) -> int | None:
    """The number of a job, if it is there and the tenant (None: any) may see it."""
    rows = tx.db.execute("select seq, tenant from fairlane_job where id = ?", (job_id.bytes,))
    return rows[0][0] if rows and tenant in (None, rows[0][1]) else None


def read_jobs(tx: Transaction, seqs: Sequence[int]) -> list[Job]:
    """The jobs with these numbers, in the order given."""
    jobs = {row[0]: _job(row) for row in tx.db.execute(_JOBS, (as_list(seqs),))}
    return [jobs[seq] for seq in seqs]


def read_job(tx: Transaction, seq: int) -> Job:
    [job] = read_jobs(tx, [seq])
    return job


def read_attempts(tx: Transaction, seq: int) -> tuple[Attempt, ...]:
    return tuple(map(_attempt, tx.db.execute(_ATTEMPTS, (seq,))))


def _job(row: Row) -> Job:
    values = _columns.values(row)
    own_id = str(values["id"])
    for name in ("idempotency_key", "correlation_id"):
        values[name] = own_id if values[name] is None else values[name]
    return Job(**values)
