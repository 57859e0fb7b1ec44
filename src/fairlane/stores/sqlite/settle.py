"""Starts and ends attempts, each guarded by its lease: worker, seq, attempt and claim number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairlane.core.ids import Seq, WorkerId
from fairlane.core.ops import Refusal, Start
from fairlane.core.outcome import (
    Cancelled,
    Completed,
    Crashed,
    Died,
    Failure,
    Outcome,
    Released,
    Retried,
    Snoozed,
    leaves_no_record,
)
from fairlane.stores.instants import after, before
from fairlane.stores.sqlite.driver import Row
from fairlane.stores.sqlite.facts import (
    Counters,
    Ended,
    WaitingJob,
    done_by,
    drop_leases,
    finish,
    make_ready,
    note_ended,
    open_dead_letter,
    record,
    schedule,
)
from fairlane.stores.sqlite.limits.rates import give_back
from fairlane.stores.sqlite.reclaim import Abandoned, take_back
from fairlane.stores.sqlite.signals import SuspendedJob, suspend
from fairlane.stores.sqlite.transaction import Transaction, as_list, as_object, text_of

RECORDED_AS = {
    Completed: "completed",
    Retried: "failed",
    Died: "dead",
    Cancelled: "cancelled",
    Snoozed: "snoozed",
    Released: "released",
    Crashed: "lost",
}

_LEASED = """
select l.seq, l.attempt, l.worker, l.attempts, l.crashes, l.suspect, l.due_at, l.leased_at, l.started_at,
  l.cancel_requested, l.aged, l.claim_no
from json_each(?) c cross join fairlane_lease l on l.seq = c.value
"""
_OURS = """
select l.seq, l.attempt, l.claim_no, l.started_at from json_each(?) c cross join fairlane_lease l on l.seq = c.value
  where l.worker = ?
"""
# Nearly every attempt ends so: copied within SQLite, at half the time it takes to read whole rows and write them back.
# {seq: ended}; where there is more to say, [[seq, ended, started, result], …].
_COMPLETE = """
insert into fairlane_done
select l.seq, 'completed', c.value, l.due_at, l.attempt, l.attempts, l.crashes, 'completed', l.worker, l.leased_at,
  l.started_at, l.cancel_requested, null, null, null, null, null
from json_each(?) c cross join fairlane_lease l on l.seq = cast(c.key as integer)
"""
_COMPLETE_WITH_MORE = """
insert into fairlane_done
select l.seq, 'completed', c.value ->> 1, l.due_at, l.attempt, l.attempts, l.crashes, 'completed', l.worker,
  l.leased_at, c.value ->> 2, l.cancel_requested, null, null, null, null, c.value ->> 3
from json_each(?) c cross join fairlane_lease l on l.seq = c.value ->> 0
"""
_START = """
update fairlane_lease set started_at = coalesce(started_at, ?), deadline_at = ?, alone = ? where seq = ?
"""
_RECORDED = """
select 1 from fairlane_attempt where seq = ?1 and attempt = ?2 and worker = ?3 and outcome = ?4
union all
select 1 from fairlane_done where seq = ?1 and attempt = ?2 and worker = ?3 and outcome = ?4
"""
# A series of snoozes for one reason has one record: the newest of the job, apart from attempts that were given back.
_PUT_OFF_AT = """
select iif(outcome = 'snoozed' and error_type = ?2, ended_at, null) from fairlane_attempt
where seq = ?1 and outcome <> 'released' order by attempt desc limit 1
"""


class Held(NamedTuple):
    """A lease as far as ending it needs."""

    seq: int
    attempt: int
    worker: bytes
    attempts: int
    crashes: int
    suspect: int
    due_at: int
    leased_at: int
    started_at: int | None
    cancel_requested: int
    aged: int | None
    claim_no: int

    @property
    def key(self) -> tuple[int, int, int]:
        return self.seq, self.attempt, self.claim_no


def start(tx: Transaction, worker: WorkerId, starts: Sequence[Start]) -> list[Refusal]:
    held = _held(tx, worker, [s.seq for s in starts])
    ours = [s for s in starts if s.seq in held and held[s.seq].key == s.key]
    tx.db.executemany(
        _START,
        [(began := before(tx.now, s.ran_s), after(began, 2 * s.timeout_s), s.alone, s.seq) for s in ours],
    )
    return [_refusal(s) for s in starts if s not in ours]


def settle(tx: Transaction, worker: WorkerId, outcomes: Sequence[Outcome]) -> list[Refusal]:
    """End attempts whose lease is still the worker's; returns the others, except repeats of recorded ones."""
    rows = tx.db.execute(_OURS, (as_list([outcome.seq for outcome in outcomes]), worker.bytes))
    ours = {(seq, attempt, claim_no): started_at for seq, attempt, claim_no, started_at in rows}
    leaseless: list[Outcome] = []
    others: list[Outcome] = []
    ends = Ends()
    for outcome in outcomes:
        key = outcome.key
        if key not in ours:
            leaseless.append(outcome)
            continue
        started_at = ours.pop(key)
        if type(outcome) is Completed:
            ends.complete(tx, started_at, outcome)
        else:
            others.append(outcome)
    held = _held(tx, worker, [outcome.seq for outcome in others]) if others else {}
    for outcome in others:
        lease = held[outcome.seq]
        if type(outcome) is Crashed:
            ends.crashed.append((lease, outcome))
        else:
            ends.add(tx, lease, outcome)
    ends.write(tx)
    return [_refusal(o) for o in leaseless if not _is_repeat(tx, worker, o)]


def _refusal(given: Outcome | Start) -> Refusal:
    return Refusal(seq=given.seq, attempt=given.attempt, claim_no=given.claim_no)


def _held(tx: Transaction, worker: WorkerId, seqs: list[Seq]) -> dict[int, Held]:
    """By seq."""
    ours = worker.bytes
    return {row[0]: Held._make(row) for row in tx.db.execute(_LEASED, (as_list(seqs),)) if row[2] == ours}


def _is_repeat(tx: Transaction, worker: WorkerId, outcome: Outcome) -> bool:
    """A reply was lost and the worker reports again; or there was nothing to record."""
    if leaves_no_record(outcome):
        return True
    recorded = RECORDED_AS[type(outcome)]
    return bool(tx.db.execute(_RECORDED, (outcome.seq, outcome.attempt, worker.bytes, recorded)))


def _instants(tx: Transaction, started_at: int | None, outcome: Outcome) -> tuple[int | None, int]:
    """When the attempt started and ended, by the store's clock."""
    ended_at = before(tx.now, outcome.ended_ago_s) if outcome.ended_ago_s else tx.now
    if started_at is None and outcome.ran_s is not None:
        started_at = before(ended_at, outcome.ran_s)
    return started_at, ended_at


class Ends:
    """Ended attempts, gathered so that each table is written once."""

    def __init__(self) -> None:
        self.completed: dict[int, int] = {}
        self.completed_with_more: list[tuple[int, int, int | None, str | None]] = []
        self.leases: list[int] = []
        self.unrecorded: list[int] = []
        """Of these leases, those of whose attempts nothing is kept."""
        self.done: list[Row] = []
        self.attempts: list[tuple[int, Ended]] = []
        self.ready: list[WaitingJob] = []
        self.snoozed: list[WaitingJob] = []
        self.suspended: list[SuspendedJob] = []
        self.put_off: list[WaitingJob] = []
        self.retried: list[WaitingJob] = []
        self.died: list[tuple[int, Failure, int]] = []
        self.crashed: list[tuple[Held, Crashed]] = []
        self.unstarted: list[int] = []

    def complete(self, tx: Transaction, started_at: int | None, outcome: Completed) -> None:
        ended_at = before(tx.now, outcome.ended_ago_s) if outcome.ended_ago_s else tx.now
        self.leases.append(outcome.seq)
        if outcome.result is None and (started_at is not None or outcome.ran_s is None):
            self.completed[outcome.seq] = ended_at
            return
        started_at, ended_at = _instants(tx, started_at, outcome)
        result = None if outcome.result is None else text_of(outcome.result, "the result of job", outcome.seq)
        self.completed_with_more.append((outcome.seq, ended_at, started_at, result))

    def add(self, tx: Transaction, lease: Held, outcome: Outcome) -> None:
        self.leases.append(lease.seq)
        started_at, ended_at = _instants(tx, lease.started_at, outcome)
        is_unrecorded = leaves_no_record(outcome)
        if is_unrecorded or (type(outcome) is Released and started_at is None):
            self.unstarted.append(lease.seq)
        charged = type(outcome) is Retried or (type(outcome) is Died and outcome.charged)
        suspect = lease.suspect if is_unrecorded or isinstance(outcome, Released | Cancelled) else 0
        counters = Counters(lease.attempt, lease.attempts + charged, lease.crashes, suspect, lease.aged)
        ended = Ended(lease.attempt, RECORDED_AS[type(outcome)], lease.worker, lease.leased_at, started_at, ended_at)
        if isinstance(outcome, Retried | Died | Snoozed) and outcome.failure is not None:
            ended = ended.because(outcome.failure)
        elif isinstance(outcome, Cancelled):
            ended = ended._replace(error_message=outcome.reason)
        if isinstance(outcome, Died):
            self._die(lease, ended, counters, outcome.failure)
        elif isinstance(outcome, Cancelled) or lease.cancel_requested:
            self.done.append(done_by(ended, lease.seq, "cancelled", lease.due_at, counters, lease.cancel_requested))
        elif isinstance(outcome, Snoozed) and outcome.failure is not None:
            self._put_off(tx, lease, outcome, outcome.failure, ended, counters)
        else:
            if is_unrecorded:
                self.unrecorded.append(lease.seq)
            else:
                self.attempts.append((lease.seq, ended))
            self._put_back(tx, lease, outcome, counters)

    def _die(self, lease: Held, ended: Ended, counters: Counters, failure: Failure) -> None:
        self.died.append((lease.seq, failure, ended.ended_at))
        self.done.append(done_by(ended, lease.seq, "dead", lease.due_at, counters, lease.cancel_requested))

    def _put_off(
        self, tx: Transaction, lease: Held, outcome: Snoozed, failure: Failure, ended: Ended, counters: Counters
    ) -> None:
        found = tx.db.execute(_PUT_OFF_AT, (lease.seq, failure.error_type))
        since = found[0][0] if found else None
        if since is not None and outcome.give_up_s is not None and after(since, outcome.give_up_s) <= tx.now:
            self._die(lease, ended._replace(outcome="dead"), counters, failure)
            return
        if outcome.recorded or since is None:
            self.attempts.append((lease.seq, ended))
        else:
            self.unrecorded.append(lease.seq)
        self.put_off.append(WaitingJob(lease.seq, after(tx.now, outcome.delay_s), counters))

    def _put_back(self, tx: Transaction, lease: Held, outcome: Outcome, counters: Counters) -> None:
        if isinstance(outcome, Retried):
            self.retried.append(WaitingJob(lease.seq, after(tx.now, outcome.delay_s), counters))
        elif isinstance(outcome, Snoozed):
            due_at = after(tx.now, outcome.delay_s)
            self.snoozed.append(WaitingJob(lease.seq, due_at, counters))
            if outcome.suspension is not None:
                self.suspended.append(SuspendedJob(lease.seq, lease.attempt, due_at, outcome.suspension))
        else:
            self.ready.append(WaitingJob(lease.seq, lease.due_at, counters))

    def write(self, tx: Transaction) -> None:
        give_back(tx, self.unstarted)
        if self.completed:
            tx.db.execute(_COMPLETE, (as_object(self.completed),))
        if self.completed_with_more:
            tx.db.execute(_COMPLETE_WITH_MORE, (as_list(self.completed_with_more),))
        note_ended(tx, [*self.completed, *(row[0] for row in self.completed_with_more)])
        drop_leases(tx, self.unrecorded, recorded=False)
        drop_leases(tx, self.leases)
        finish(tx, self.done)
        record(tx, self.attempts)
        make_ready(tx, self.ready)
        tx.gave_back = tx.gave_back or bool(self.ready)
        schedule(tx, self.snoozed, failed=False)
        suspend(tx, self.suspended)
        schedule(tx, self.put_off, failed=False, put_off=True)
        schedule(tx, self.retried, failed=True)
        for lease, crash in self.crashed:
            self._crash(tx, lease, crash)
        for seq, failure, died_at in self.died:
            open_dead_letter(tx, seq, failure, died_at)

    def _crash(self, tx: Transaction, lease: Held, crash: Crashed) -> None:
        """As if its worker were gone, with nothing but this attempt in it."""
        [(job_id, job_type, tenant)] = tx.db.execute(
            "select id, type, tenant from fairlane_job where seq = ?", (lease.seq,)
        )
        started_at, ended_at = _instants(tx, lease.started_at, crash)
        gone = Abandoned(
            lease.seq,
            job_id,
            job_type,
            tenant,
            lease.worker,
            lease.attempt,
            lease.attempts,
            lease.crashes,
            lease.suspect,
            lease.due_at,
            lease.leased_at,
            started_at,
            1,
            lease.cancel_requested,
            lease.aged,
        )
        take_back(tx, gone, "worker_gone", ended_at, started=True)
