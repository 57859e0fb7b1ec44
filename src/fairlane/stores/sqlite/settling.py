"""Starting attempts and ending them, each guarded by its lease: seq, attempt and worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairlane.core.ids import Seq, WorkerId
from fairlane.core.ops import Refusal, Start
from fairlane.core.outcome import Cancelled, Completed, Crashed, Died, Outcome, Released, Retried, Snoozed
from fairlane.stores.sqlite.driver import Row
from fairlane.stores.sqlite.facts import (
    Counters,
    Ended,
    Waiting,
    done_by,
    drop_leases,
    finish,
    make_ready,
    open_dead_letter,
    record,
    schedule,
)
from fairlane.stores.sqlite.instants import after, before
from fairlane.stores.sqlite.rates import give_back
from fairlane.stores.sqlite.reclaiming import Abandoned, take_back
from fairlane.stores.sqlite.transaction import Transaction, as_list, text_of

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
select l.seq, l.attempt, l.worker, l.attempts, l.crashes, l.suspect, l.due_at, l.leased_at, l.started_at, l.cancel_requested,
  l.aged
from json_each(?) c cross join fairlane_lease l on l.seq = c.value
"""
_START = """
update fairlane_lease set started_at = coalesce(started_at, ?), deadline_at = ?, alone = ? where seq = ?
"""
_RECORDED = """
select 1 from fairlane_attempt where seq = ?1 and attempt = ?2 and worker = ?3 and outcome = ?4
union all
select 1 from fairlane_done where seq = ?1 and attempt = ?2 and worker = ?3 and outcome = ?4
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


def start(tx: Transaction, worker: WorkerId, starts: Sequence[Start]) -> list[Refusal]:
    held = _held(tx, worker, [s.seq for s in starts])
    ours = [s for s in starts if s.seq in held and held[s.seq][1] == s.attempt]
    tx.db.executemany(_START, [(tx.now, after(tx.now, 2 * s.timeout_s), s.alone, s.seq) for s in ours])
    return [Refusal(seq=s.seq, attempt=s.attempt) for s in starts if s not in ours]


def settle(tx: Transaction, worker: WorkerId, outcomes: Sequence[Outcome]) -> list[Refusal]:
    """End attempts whose lease is still the worker's; returns the others, except repeats of what is already recorded."""
    held = _held(tx, worker, [outcome.seq for outcome in outcomes])
    leaseless: list[Outcome] = []
    ends = Ends()
    for outcome in outcomes:
        row = held.get(outcome.seq)
        if row is None or row[1] != outcome.attempt:
            leaseless.append(outcome)
            continue
        del held[outcome.seq]
        if type(outcome) is Completed:
            ends.complete(tx, row, outcome)
        elif type(outcome) is Crashed:
            ends.crashed.append((Held._make(row), outcome))
        else:
            ends.add(tx, Held._make(row), outcome)
    ends.write(tx)
    return [Refusal(seq=o.seq, attempt=o.attempt) for o in leaseless if not _is_repeat(tx, worker, o)]


def _held(tx: Transaction, worker: WorkerId, seqs: list[Seq]) -> dict[int, Row]:
    """Rows as in `Held`, by seq."""
    ours = worker.bytes
    return {row[0]: row for row in tx.db.execute(_LEASED, (as_list(seqs),)) if row[2] == ours}


def _is_repeat(tx: Transaction, worker: WorkerId, outcome: Outcome) -> bool:
    """A reply was lost and the worker reports again."""
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
        self.leases: list[int] = []
        self.done: list[Row] = []
        self.attempts: list[tuple[int, Ended]] = []
        self.ready: list[Waiting] = []
        self.snoozed: list[Waiting] = []
        self.retried: list[Waiting] = []
        self.died: list[tuple[Died, int]] = []
        self.crashed: list[tuple[Held, Crashed]] = []
        self.unstarted: list[int] = []

    def complete(self, tx: Transaction, row: Row, outcome: Completed) -> None:
        """The common case, kept short: a plain row of `done`, without the steps of the others."""
        seq, attempt, worker, attempts, crashes, _, due_at, leased_at, started_at, cancel_requested, _ = row
        started_at, ended_at = _instants(tx, started_at, outcome)
        result = None if outcome.result is None else text_of(outcome.result, "the result of job", seq)
        self.leases.append(seq)
        self.done.append(
            (seq, "completed", ended_at, due_at, attempt, attempts, crashes, "completed", worker, leased_at, started_at,
             cancel_requested, None, None, None, None, result)
        )  # fmt: skip

    def add(self, tx: Transaction, lease: Held, outcome: Outcome) -> None:
        self.leases.append(lease.seq)
        started_at, ended_at = _instants(tx, lease.started_at, outcome)
        if type(outcome) is Released and started_at is None:
            self.unstarted.append(lease.seq)
        charged = type(outcome) is Retried or (type(outcome) is Died and outcome.charged)
        suspect = lease.suspect if isinstance(outcome, Released | Cancelled) else 0
        counters = Counters(lease.attempt, lease.attempts + charged, lease.crashes, suspect, lease.aged)
        ended = Ended(lease.attempt, RECORDED_AS[type(outcome)], lease.worker, lease.leased_at, started_at, ended_at)
        if isinstance(outcome, Retried | Died):
            ended = ended.because(outcome.failure)
        elif isinstance(outcome, Cancelled):
            ended = ended._replace(error_message=outcome.reason)
        if isinstance(outcome, Died):
            self.died.append((outcome, ended_at))
            self.done.append(done_by(ended, lease.seq, "dead", lease.due_at, counters, lease.cancel_requested))
        elif isinstance(outcome, Cancelled) or lease.cancel_requested:
            self.done.append(done_by(ended, lease.seq, "cancelled", lease.due_at, counters, lease.cancel_requested))
        else:
            self.attempts.append((lease.seq, ended))
            self._put_back(tx, lease, outcome, counters)

    def _put_back(self, tx: Transaction, lease: Held, outcome: Outcome, counters: Counters) -> None:
        if isinstance(outcome, Retried):
            self.retried.append(Waiting(lease.seq, after(tx.now, outcome.delay_s), counters))
        elif isinstance(outcome, Snoozed):
            self.snoozed.append(Waiting(lease.seq, after(tx.now, outcome.delay_s), counters))
        else:
            self.ready.append(Waiting(lease.seq, lease.due_at, counters))

    def write(self, tx: Transaction) -> None:
        give_back(tx, self.unstarted)
        drop_leases(tx, self.leases)
        finish(tx, self.done)
        record(tx, self.attempts)
        make_ready(tx, self.ready)
        schedule(tx, self.snoozed, failed=False)
        schedule(tx, self.retried, failed=True)
        for lease, crash in self.crashed:
            self._crash(tx, lease, crash)
        for outcome, died_at in self.died:
            open_dead_letter(tx, outcome.seq, outcome.failure, died_at)

    def _crash(self, tx: Transaction, lease: Held, crash: Crashed) -> None:
        """As if its worker were gone, with nothing but this attempt in it."""
        [(job_id, job_type)] = tx.db.execute("select id, type from fairlane_job where seq = ?", (lease.seq,))
        started_at, ended_at = _instants(tx, lease.started_at, crash)
        gone = Abandoned(
            lease.seq,
            job_id,
            job_type,
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
