"""Jobs as people see them, put together from their facts."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from fairlane.core.ids import JobId, Seq, WorkerId
from fairlane.core.job import Attempt, DeadLetter, Job, Status
from fairlane.core.ops import DeadLetterDetail, GetDeadLetter, GetJob, JobDetail
from fairlane.stores.sqlite.driver import Row
from fairlane.stores.sqlite.instants import from_us, maybe_from_us
from fairlane.stores.sqlite.progress import read_note
from fairlane.stores.sqlite.transaction import Transaction, as_list

_decode_dict = msgspec.json.Decoder(dict).decode

# A held job has no facts of its own yet: none is as good as never tried, and due when it was first due.
_JOBS = """
select j.seq, j.id, j.type, j.tenant, j.queue, j.band + j.rank, j.category, j.payload, j.payload_version, j.idempotency_key,
  j.dedup_key, j.correlation_id, j.parent_id, j.created_by, j.refs, j.headers, j.max_attempts, j.timeout_s, j.enqueued_at,
  j.due_at,
  case when d.seq is not null then d.status when s.failed then 'failed' when l.started_at is not null then 'processing'
    else 'pending' end,
  coalesce(d.attempt, r.attempt, s.attempt, l.attempt, 0), coalesce(d.attempts, r.attempts, s.attempts, l.attempts, 0),
  coalesce(d.crashes, r.crashes, s.crashes, l.crashes, 0), coalesce(d.due_at, r.due_at, s.due_at, l.due_at, j.due_at),
  coalesce(d.started_at, l.started_at), d.finished_at, coalesce(d.worker, l.worker), coalesce(l.cancel_requested, 0), d.result,
  iif(d.error_type is null, a.error_class, d.error_class), coalesce(d.error_type, a.error_type),
  iif(d.error_type is null, a.error_message, d.error_message), iif(d.error_type is null, a.ended_at, d.finished_at)
from json_each(?) c
cross join fairlane_job j on j.seq = c.value
left join fairlane_ready r on r.seq = j.seq
left join fairlane_scheduled s on s.seq = j.seq
left join fairlane_lease l on l.seq = j.seq
left join fairlane_done d on d.seq = j.seq
left join fairlane_attempt a on a.seq = j.seq and a.attempt =
  (select max(attempt) from fairlane_attempt where seq = j.seq and error_type is not null)
"""
_ATTEMPTS = """
select attempt, outcome, worker, leased_at, started_at, ended_at, error_class, error_type, error_message, traceback
from fairlane_attempt where seq = ?1
union all
select attempt, outcome, worker, leased_at, started_at, finished_at, error_class, error_type, error_message, traceback
from fairlane_done where seq = ?1 and outcome is not null
order by attempt
"""
_DEAD_LETTERS = """
select d.seq, d.status, d.reason, d.error_class, d.error_type, d.fingerprint, d.died_at, d.acknowledged_by,
  d.acknowledged_at, d.closed_by, d.closed_at, d.notes, d.reprocess_count, d.reprocessed_as
from json_each(?) c cross join fairlane_dead_letter d on d.seq = c.value
"""


def read_jobs(tx: Transaction, seqs: Sequence[int]) -> list[Job]:
    """The jobs with these numbers, in the order given."""
    jobs = {row[0]: _job(row) for row in tx.db.execute(_JOBS, (as_list(seqs),))}
    return [jobs[seq] for seq in seqs]


def read_job(tx: Transaction, seq: int) -> Job:
    [job] = read_jobs(tx, [seq])
    return job


def read_attempts(tx: Transaction, seq: int) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(
            attempt=attempt,
            outcome=outcome,
            worker=None if worker is None else WorkerId(UUID(bytes=worker)),
            leased_at=from_us(leased_at),
            started_at=maybe_from_us(started_at),
            ended_at=from_us(ended_at),
            error_class=error_class,
            error_type=error_type,
            error_message=error_message,
            traceback=traceback,
        )
        for (
            attempt, outcome, worker, leased_at, started_at, ended_at, error_class, error_type, error_message, traceback,
        ) in tx.db.execute(_ATTEMPTS, (seq,))
    )  # fmt: skip


def read_dead_letters(tx: Transaction, seqs: Sequence[int]) -> list[DeadLetter]:
    jobs = dict(zip(seqs, read_jobs(tx, seqs), strict=True))
    letters = {row[0]: _letter(row, jobs[row[0]]) for row in tx.db.execute(_DEAD_LETTERS, (as_list(seqs),))}
    return [letters[seq] for seq in seqs]


def read_dead_letter(tx: Transaction, seq: int) -> DeadLetter:
    [letter] = read_dead_letters(tx, [seq])
    return letter


def find_job(tx: Transaction, job_id: JobId, tenant: str | None) -> int | None:
    """The number of a job, if it is there and the tenant (None: any) may see it."""
    rows = tx.db.execute("select seq, tenant from fairlane_job where id = ?", (job_id.bytes,))
    return rows[0][0] if rows and tenant in (None, rows[0][1]) else None


def has_dead_letter(tx: Transaction, seq: int, tenant: str | None) -> bool:
    rows = tx.db.execute(
        "select j.tenant from fairlane_dead_letter d cross join fairlane_job j on j.seq = d.seq where d.seq = ?", (seq,)
    )
    return bool(rows) and tenant in (None, rows[0][0])


def get_job(tx: Transaction, op: GetJob) -> JobDetail | None:
    seq = find_job(tx, op.id, op.scope.tenant)
    if seq is None:
        return None
    progress, log = read_note(tx, seq)
    return JobDetail(job=read_job(tx, seq), attempts=read_attempts(tx, seq), progress=progress, log=log)


def get_dead_letter(tx: Transaction, op: GetDeadLetter) -> DeadLetterDetail | None:
    if not has_dead_letter(tx, op.id, op.scope.tenant):
        return None
    return DeadLetterDetail(dead_letter=read_dead_letter(tx, op.id), attempts=read_attempts(tx, op.id))


def _job(row: Row) -> Job:
    (
        seq, raw_id, job_type, tenant, queue, priority, category, payload, payload_version, idempotency_key,
        dedup_key, correlation_id, parent_id, created_by, refs, headers, max_attempts, timeout_s, enqueued_at,
        scheduled_at, status, attempt, attempts, crashes, run_at, started_at, finished_at, worker, cancel_requested,
        result, error_class, error_type, last_error, last_error_at,
    ) = row  # fmt: skip
    job_id = UUID(bytes=raw_id)
    shown_status: Status = status
    return Job(
        seq=Seq(seq),
        id=JobId(job_id),
        type=job_type,
        status=shown_status,
        tenant=tenant,
        queue=queue,
        priority=priority,
        category=category,
        payload=payload,
        payload_version=payload_version,
        idempotency_key=str(job_id) if idempotency_key is None else idempotency_key,
        dedup_key=dedup_key,
        correlation_id=str(job_id) if correlation_id is None else correlation_id,
        parent_id=None if parent_id is None else JobId(UUID(bytes=parent_id)),
        created_by=created_by,
        refs={} if refs is None else _decode_dict(refs),
        headers={} if headers is None else _decode_dict(headers),
        attempt=attempt,
        attempts=attempts,
        crashes=crashes,
        max_attempts=max_attempts,
        timeout_s=timeout_s,
        enqueued_at=from_us(enqueued_at),
        scheduled_at=from_us(scheduled_at),
        run_at=from_us(run_at),
        started_at=maybe_from_us(started_at),
        finished_at=maybe_from_us(finished_at),
        worker=None if worker is None else WorkerId(UUID(bytes=worker)),
        cancel_requested=bool(cancel_requested),
        result=result,
        error_class=error_class,
        error_type=error_type,
        last_error=last_error,
        last_error_at=maybe_from_us(last_error_at),
    )


def _letter(row: Row, job: Job) -> DeadLetter:
    (
        seq, status, reason, error_class, error_type, fingerprint, died_at, acknowledged_by, acknowledged_at,
        closed_by, closed_at, notes, reprocess_count, reprocessed_as,
    ) = row  # fmt: skip
    return DeadLetter(
        id=Seq(seq),
        job=job,
        status=status,
        reason=reason,
        error_class=error_class,
        error_type=error_type,
        fingerprint=fingerprint,
        died_at=from_us(died_at),
        acknowledged_by=acknowledged_by,
        acknowledged_at=maybe_from_us(acknowledged_at),
        closed_by=closed_by,
        closed_at=maybe_from_us(closed_at),
        resolution_notes=notes,
        reprocess_count=reprocess_count,
        reprocessed_as=None if reprocessed_as is None else JobId(UUID(bytes=reprocessed_as)),
    )
