"""Changes of jobs by hand: cancel, fail, bury, reset, take their place."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fairlane.core.ops import Bury, Cancel, Fail, FreePlace, JobAct, Reset
from fairlane.stores.instants import after
from fairlane.stores.sqlite.audit import write_audit
from fairlane.stores.sqlite.facts import (
    Counters,
    Ended,
    EndedJob,
    WaitingJob,
    done_by,
    drop_leases,
    finish,
    make_ready,
    open_dead_letter,
    record,
    schedule,
)
from fairlane.stores.sqlite.jobs.records import find_job, read_job
from fairlane.stores.sqlite.limits.rates import give_back
from fairlane.stores.sqlite.listener import wake_for_places
from fairlane.stores.sqlite.reclaim import own_failure
from fairlane.stores.sqlite.transaction import Transaction, change

_UNFINISHED = """
select 'ready', r.due_at, r.attempt, r.attempts, r.crashes, r.suspect, nullif(r.band + r.rank, j.band + j.rank),
  null, null, null, 0
from fairlane_ready r cross join fairlane_job j on j.seq = r.seq where r.seq = ?1
union all
select 'scheduled', due_at, attempt, attempts, crashes, suspect, aged, null, null, null, 0
from fairlane_scheduled where seq = ?1
union all
select 'held', j.due_at, 0, 0, 0, 0, null, null, null, null, 0
from fairlane_held h cross join fairlane_job j on j.seq = h.seq where h.seq = ?1
union all
select 'job_key', k.due_at, k.attempt, k.attempts, k.crashes, k.suspect, nullif(k.band + k.rank, j.band + j.rank),
  null, null, null, 0
from fairlane_job_key k cross join fairlane_job j on j.seq = k.seq where k.seq = ?1 and k.state = 'held'
union all
select 'lease', due_at, attempt, attempts, crashes, suspect, aged, worker, leased_at, started_at, cancel_requested
from fairlane_lease where seq = ?1
"""
_LEAVE_PLACE = """
update fairlane_job_key set state = 'away', rated = null where seq = ? and state = 'let_in' returning 1
"""
_LEAVE_LINE = "delete from fairlane_job_key where seq = ? and state = 'dead' returning 1"


class Unfinished(NamedTuple):
    """Where an unfinished job is, and all it carries."""

    place: Literal["ready", "scheduled", "held", "job_key", "lease"]
    due_at: int
    attempt: int
    attempts: int
    crashes: int
    suspect: int
    aged: int | None
    worker: bytes | None
    leased_at: int | None
    started_at: int | None
    cancel_requested: int


@change
def cancel(tx: Transaction, op: Cancel) -> JobAct:
    found = _target(tx, op)
    if isinstance(found, JobAct):
        is_done = found.job is not None and found.job.status == "cancelled"
        return JobAct(job=found.job) if is_done else found
    seq, job = found
    if job.cancel_requested:
        return JobAct(job=read_job(tx, seq))
    with_audit = _Audited(tx, op, seq, "job_cancel")
    if job.place == "lease":
        tx.db.execute("update fairlane_lease set cancel_requested = 1 where seq = ?", (seq,))
    else:
        cancel_waiting(tx, seq, job)
    return with_audit.done()


def cancel_waiting(tx: Transaction, seq: int, job: Unfinished) -> None:
    _leave(tx, seq, job)
    finish(tx, [EndedJob(seq, "cancelled", tx.now, job.due_at, job.attempt, job.attempts, job.crashes)])


@change
def fail(tx: Transaction, op: Fail) -> JobAct:
    found = _target(tx, op)
    if isinstance(found, JobAct):
        return found
    seq, job = found
    with_audit = _Audited(tx, op, seq, "job_fail")
    before = with_audit.before
    retry_at = None
    if op.retry_delay_s is not None and job.attempts + 1 < before.max_attempts and not _waits_for_parents(tx, seq):
        retry_at = after(tx.now, op.retry_delay_s)
    error_class: Literal["retryable", "non_retryable"] = "non_retryable" if retry_at is None else "retryable"
    failure = own_failure(before.type, "FailedByHand", error_class, op.reason)
    ended = _ended_by_hand(tx, job).because(failure)
    counters = Counters(ended.attempt, job.attempts + 1, job.crashes, 0, job.aged)
    _leave(tx, seq, job)
    if retry_at is None:
        finish(tx, [done_by(ended, seq, "dead", job.due_at, counters, job.cancel_requested)])
        open_dead_letter(tx, seq, failure, tx.now)
    elif job.cancel_requested:
        finish(tx, [done_by(ended, seq, "cancelled", job.due_at, counters, 1)])
    else:
        record(tx, [(seq, ended)])
        schedule(tx, [WaitingJob(seq, retry_at, counters)], failed=True)
        wake_for_places(tx)
    return with_audit.done()


@change
def bury(tx: Transaction, op: Bury) -> JobAct:
    found = _target(tx, op)
    if isinstance(found, JobAct):
        return found
    seq, job = found
    with_audit = _Audited(tx, op, seq, "job_bury")
    failure = own_failure(with_audit.before.type, "Buried", "non_retryable", op.reason)
    ended = _ended_by_hand(tx, job).because(failure)
    counters = Counters(ended.attempt, job.attempts, job.crashes, job.suspect)
    _leave(tx, seq, job)
    finish(tx, [done_by(ended, seq, "dead", job.due_at, counters, job.cancel_requested)])
    open_dead_letter(tx, seq, failure, tx.now)
    return with_audit.done()


@change
def reset(tx: Transaction, op: Reset) -> JobAct:
    found = _target(tx, op)
    if isinstance(found, JobAct):
        return found
    seq, job = found
    if job.leased_at is None:
        return JobAct(refused="not_allowed", job=read_job(tx, seq))
    with_audit = _Audited(tx, op, seq, "job_reset")
    ended = Ended(job.attempt, "released", job.worker, job.leased_at, job.started_at, tx.now)
    counters = Counters(job.attempt, job.attempts, job.crashes, job.suspect, job.aged)
    if job.started_at is None:
        give_back(tx, [seq])
    _leave(tx, seq, job)
    if job.cancel_requested:
        finish(tx, [done_by(ended, seq, "cancelled", job.due_at, counters, 1)])
    else:
        record(tx, [(seq, ended)])
        make_ready(tx, [WaitingJob(seq, job.due_at, counters)])
        tx.gave_back = True
    return with_audit.done()


@change
def free_place(tx: Transaction, op: FreePlace) -> JobAct:
    seq = find_job(tx, op.id, op.scope.tenant)
    if seq is None:
        return JobAct(refused="not_found")
    with_audit = _Audited(tx, op, seq, "job_place_free")
    if not tx.db.execute(_LEAVE_PLACE, (seq,)) and not tx.db.execute(_LEAVE_LINE, (seq,)):
        return JobAct(refused="not_allowed", job=with_audit.before)
    wake_for_places(tx)
    return with_audit.done()


def _target(tx: Transaction, op: Cancel | Fail | Bury | Reset) -> tuple[int, Unfinished] | JobAct:
    """The unfinished job an act is about, or its refusal."""
    seq = find_job(tx, op.id, op.scope.tenant)
    if seq is None:
        return JobAct(refused="not_found")
    job = find_unfinished(tx, seq)
    return JobAct(refused="not_allowed", job=read_job(tx, seq)) if job is None else (seq, job)


def find_unfinished(tx: Transaction, seq: int) -> Unfinished | None:
    rows = tx.db.execute(_UNFINISHED, (seq,))
    return Unfinished._make(rows[0]) if rows else None


def _waits_for_parents(tx: Transaction, seq: int) -> bool:
    return bool(tx.db.execute("select 1 from fairlane_held where seq = ? and queue = ''", (seq,)))


def _leave(tx: Transaction, seq: int, job: Unfinished) -> None:
    if job.place == "lease":
        drop_leases(tx, [seq])
    elif job.place != "job_key":  # that row follows the job to where it comes
        tx.db.execute(f"delete from fairlane_{job.place} where seq = ?", (seq,))  # noqa: S608


def _ended_by_hand(tx: Transaction, job: Unfinished) -> Ended:
    """The end of its attempt; a job that only waited takes the next number for the record."""
    if job.leased_at is not None:
        return Ended(job.attempt, "failed_by_hand", job.worker, job.leased_at, job.started_at, tx.now)
    return Ended(job.attempt + 1, "failed_by_hand", None, tx.now, None, tx.now)


class _Audited:
    """Remembers the job before an act and writes what became of it."""

    def __init__(self, tx: Transaction, op: Cancel | Fail | Bury | Reset | FreePlace, seq: int, action: str) -> None:
        self._tx, self._op, self._seq, self._action = tx, op, seq, action
        self.before = read_job(tx, seq)

    def done(self) -> JobAct:
        before, job = self.before, read_job(self._tx, self._seq)
        write_audit(
            self._tx,
            self._op,
            self._action,
            job.tenant,
            f"job:{job.id}",
            {"status": before.status, "attempts": before.attempts},
            {"status": job.status, "attempts": job.attempts},
        )
        return JobAct(job=job)
