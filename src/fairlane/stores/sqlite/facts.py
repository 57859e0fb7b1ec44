"""Writes facts: each function moves many jobs to one place. Callers have read and decided; nothing is checked here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairlane.core.ops import AddNodes, Note, ReadSteps, RecordStep, TakeSignal
from fairlane.core.outcome import Failure
from fairlane.stores.sqlite.driver import Row
from fairlane.stores.sqlite.limits.room import note_freed
from fairlane.stores.sqlite.transaction import Transaction, as_list

REASON_LIMIT = 2000


_HOLDS = """
select 1 from fairlane_lease where seq = ? and attempt = ? and claim_no = ? and worker = coalesce(?, worker)
"""


def is_leased(tx: Transaction, op: Note | RecordStep | ReadSteps | TakeSignal | AddNodes) -> bool:
    """Whether the attempt that an operation names holds its lease."""
    worker = None if op.worker is None else op.worker.bytes
    return bool(tx.db.execute(_HOLDS, (op.seq, op.attempt, op.claim_no, worker)))


class Counters(NamedTuple):
    """What a job carries from place to place."""

    attempt: int
    attempts: int
    crashes: int
    suspect: int
    aged: int | None = None
    """The priority it has reached by waiting; None: its own."""


class WaitingJob(NamedTuple):
    """A job on its way to `ready` or `scheduled`."""

    seq: int
    due_at: int
    counters: Counters


class Ended(NamedTuple):
    """How an attempt ended."""

    attempt: int
    outcome: str
    worker: bytes | None
    leased_at: int
    started_at: int | None
    ended_at: int
    error_class: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    traceback: str | None = None

    def because(self, failure: Failure) -> Ended:
        return self._replace(
            error_class=failure.error_class,
            error_type=failure.error_type,
            error_message=failure.message,
            traceback=failure.traceback,
        )


class EndedJob(NamedTuple):
    """How a job ended; in the order of the columns of `done`."""

    seq: int
    status: str
    finished_at: int
    due_at: int
    attempt: int
    attempts: int
    crashes: int
    outcome: str | None = None
    worker: bytes | None = None
    leased_at: int | None = None
    started_at: int | None = None
    cancel_requested: int = 0
    error_class: str | None = None
    error_type: str | None = None
    error_message: str | None = None
    traceback: str | None = None
    result: str | None = None


# A priority orders either the whole queue or the tenant's own jobs: the one reached by age belongs to one of the two.
BAND = "iif(j.rank > 0, j.band, coalesce({aged}, j.band))"
RANK = "iif(j.rank > 0, coalesce({aged}, j.rank), j.rank)"
_READY = f"""
insert into fairlane_ready (seq, queue, band, tenant, rank, type, due_at, attempt, attempts, crashes, suspect)
select j.seq, j.queue, {BAND.format(aged="?6")}, j.tenant, {RANK.format(aged="?6")}, j.type, ?1, ?2, ?3, ?4, ?5
from fairlane_job j where j.seq = ?7
"""  # noqa: S608
_SCHEDULED = """
insert into fairlane_scheduled
  (seq, queue, tenant, failed, put_off, since, due_at, attempt, attempts, crashes, suspect, aged)
select seq, queue, tenant, ?, ?, ?, ?, ?, ?, ?, ?, ? from fairlane_job where seq = ?
"""
_ATTEMPT = "insert into fairlane_attempt values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_DONE = "insert into fairlane_done values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_LEASE_ENDS = """
insert into fairlane_lease_end
select l.seq, l.attempt, l.deadline_at from json_each(?) c cross join fairlane_lease l on l.seq = c.value
"""
_CONCERNED = "select exists (select 1 from fairlane_dedup_key limit 1), exists (select 1 from fairlane_node limit 1)"
_KEYS_USED = "select 1 from fairlane_meta where name = 'limits_keys_used'"
_HOLD = """
update fairlane_job_key set state = 'held', rated = null, queue = r.queue, band = r.band, rank = r.rank,
  due_at = r.due_at, attempt = r.attempt, attempts = r.attempts, crashes = r.crashes, suspect = r.suspect,
  put_off = r.put_off
from json_each(?) c cross join fairlane_ready r on r.seq = c.value where fairlane_job_key.seq = r.seq returning seq
"""
_UNREADY = "delete from fairlane_ready where seq in (select value from json_each(?))"
_GO_AWAY = """
update fairlane_job_key set state = iif(state = 'let_in' and ordinal is not null, 'let_in', 'away'), rated = null
where seq in (select value from json_each(?)) and state <> 'away'
"""
_STAY_DEAD = """
update fairlane_job_key set state = 'dead', rated = null
where seq in (select value from json_each(?)) and state = 'let_in' and ordinal is not null
  and exists (select 1 from fairlane_done d where d.seq = fairlane_job_key.seq and d.status = 'dead')
"""
_LEAVE = "delete from fairlane_job_key where seq in (select value from json_each(?)) and state <> 'dead' returning 1"
_DEAD_LETTER = """
insert into fairlane_dead_letter (seq, reason, error_class, error_type, fingerprint, died_at) values (?, ?, ?, ?, ?, ?)
"""


def make_ready(tx: Transaction, jobs: Sequence[WaitingJob]) -> None:
    if jobs:
        tx.db.executemany(_READY, [(due_at, *counters, seq) for seq, due_at, counters in jobs])
        hold_at_keys(tx, [job.seq for job in jobs])


def are_keys_used(tx: Transaction) -> bool:
    """Whether any job has ever had a key: where none had, nothing is asked for one."""
    if tx.keys_used is None:
        tx.keys_used = bool(tx.db.execute(_KEYS_USED))
    return tx.keys_used


def hold_at_keys(tx: Transaction, seqs: Sequence[int]) -> None:
    """Of jobs that became ready, hold those that have keys. Called by whatever makes jobs ready, but for letting in."""
    if seqs and are_keys_used(tx):
        held = [seq for (seq,) in tx.db.execute(_HOLD, (as_list(seqs),))]
        tx.db.execute(_UNREADY, (as_list(held),))


def schedule(
    tx: Transaction, jobs: Sequence[WaitingJob], *, failed: bool, put_off: bool = False, spans: bool = True
) -> None:
    """`failed`: they wait for a retry; `put_off`: for another worker. `spans`: their due times are so long from now."""
    if jobs:
        since = tx.now if spans else None
        rows = [(int(failed), int(put_off), since, due_at, *counters, seq) for seq, due_at, counters in jobs]
        tx.db.executemany(_SCHEDULED, rows)
        if are_keys_used(tx):
            tx.db.execute(_GO_AWAY, (as_list([job.seq for job in jobs]),))


def record(tx: Transaction, attempts: Sequence[tuple[int, Ended]]) -> None:
    """Keep how attempts ended after which the job lives on."""
    if attempts:
        tx.db.executemany(_ATTEMPT, [(seq, *ended) for seq, ended in attempts])


def finish(tx: Transaction, jobs: Sequence[Row]) -> None:
    """End jobs, each a `EndedJob`."""
    if jobs:
        tx.db.executemany(_DONE, jobs)
        note_ended(tx, [job[0] for job in jobs])


def note_ended(tx: Transaction, ended: Sequence[int]) -> None:
    """Free the keys and dedup keys of jobs that ended, and remember them for the workflows they may be nodes of."""
    if not ended:
        return
    [(has_keys, has_nodes)] = tx.db.execute(_CONCERNED)
    if has_keys:
        tx.db.executemany("delete from fairlane_dedup_key where seq = ?", [(seq,) for seq in ended])
    if has_nodes:
        tx.ended.extend(ended)
    if are_keys_used(tx):
        listed = as_list(ended)
        tx.db.execute(_STAY_DEAD, (listed,))
        tx.left_key = bool(tx.db.execute(_LEAVE, (listed,))) or tx.left_key


def open_dead_letter(tx: Transaction, seq: int, failure: Failure, died_at: int) -> None:
    reason = failure.message[:REASON_LIMIT]
    tx.db.execute(_DEAD_LETTER, (seq, reason, failure.error_class, failure.error_type, failure.fingerprint, died_at))


def drop_leases(tx: Transaction, seqs: Sequence[int], *, recorded: bool = True) -> None:
    """`recorded`: their attempts are, and so is when these leases would have ended."""
    if seqs:
        listed = as_list(seqs)
        note_freed(tx, listed)
        if recorded:
            tx.db.execute(_LEASE_ENDS, (listed,))
        tx.db.execute("delete from fairlane_lease where seq in (select value from json_each(?))", (listed,))


def done_by(ended: Ended, seq: int, status: str, due_at: int, counters: Counters, cancel_requested: int) -> EndedJob:
    """The end of a job by the end of its last attempt."""
    return EndedJob(
        seq,
        status,
        ended.ended_at,
        due_at,
        ended.attempt,
        counters.attempts,
        counters.crashes,
        ended.outcome,
        ended.worker,
        ended.leased_at,
        ended.started_at,
        cancel_requested,
        ended.error_class,
        ended.error_type,
        ended.error_message,
        ended.traceback,
    )
