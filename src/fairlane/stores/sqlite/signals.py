"""Signals: kept when they are emitted, and recorded as steps of the jobs that wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fairlane.core.job import SignalWait
from fairlane.core.ops import (
    DELIVER_LIMIT,
    Deliver,
    Delivered,
    Emit,
    Emitted,
    ListSignals,
    Signal,
    SignalAnswer,
    SignalPage,
    TakeSignal,
)
from fairlane.core.outcome import Suspension
from fairlane.stores.sqlite.driver import Row
from fairlane.stores.sqlite.durable_steps import read_step, write_step
from fairlane.stores.sqlite.facts import is_leased
from fairlane.stores.sqlite.listener import addresses_to_wake
from fairlane.stores.sqlite.rows import RowReader, bounded, equal, joined
from fairlane.stores.sqlite.transaction import Transaction, change, reading, text_of

_signal, _wait = RowReader(Signal), RowReader(SignalWait)
_EMIT = """
insert into fairlane_signal (id, tenant, name, key, at, undelivered, data) values (?, ?, ?, ?, ?, 1, ?)
on conflict (id) do nothing returning 1
"""
_UNDELIVERED = "select id, tenant, name, key, data from fairlane_signal where undelivered order by at, id limit ?"
_WAITING = """
select w.seq, w.n, w.attempt, s.queue from fairlane_wait w
cross join fairlane_scheduled s on s.seq = w.seq and s.attempt = w.attempt
where w.tenant = ?1 and w.name = ?2 and w.key = ?3
  and not exists (select 1 from fairlane_step t where t.seq = w.seq and t.signal = ?4)
order by w.seq limit ?5
"""
_UNHEARD = """
select g.id, g.data from fairlane_signal g
where g.tenant = (select tenant from fairlane_job where seq = ?1) and g.name = ?2 and g.key = ?3
  and not exists (select 1 from fairlane_step t where t.seq = ?1 and t.signal = g.id)
order by g.at, g.id limit 1
"""
_WAIT = """
insert or replace into fairlane_wait (seq, attempt, n, tenant, name, key, until)
select seq, ?, ?, tenant, ?, ?, ? from fairlane_job where seq = ?
"""
_WAITS = f"""
select {", ".join(f"w.{name}" for name in _wait.names)} from fairlane_wait w
cross join fairlane_scheduled s on s.seq = w.seq and s.attempt = w.attempt where w.seq = ?
"""  # noqa: S608
_FORGET = """
delete from fairlane_signal where id in (select id from fairlane_signal where at < ? order by at, id limit ?)
returning 1
"""


class SuspendedJob(NamedTuple):
    """A job that has gone to sleep or to wait, and is scheduled."""

    seq: int
    attempt: int
    due_at: int
    suspension: Suspension


@change
def emit(tx: Transaction, op: Emit) -> Emitted:
    data = text_of(op.data, "the data of signal", op.id)
    signal = (op.id.bytes, op.tenant, op.name, op.key)
    if not tx.db.execute(_EMIT, (*signal, tx.now, data)):
        return Emitted(repeated=True)
    return Emitted(repeated=False, delivered=_deliver(tx, [(*signal, data)], DELIVER_LIMIT) if op.deliver else 0)


@change
def deliver(tx: Transaction, op: Deliver) -> Delivered:
    limit = max(op.limit, 0)
    signals = tx.db.execute(_UNDELIVERED, (limit,))
    count = _deliver(tx, signals, limit)
    return Delivered(count=count, more=limit in (count, len(signals)))


def _deliver(tx: Transaction, signals: Sequence[Row], limit: int) -> int:
    count = 0
    queues: set[str] = set()
    for signal, tenant, name, key, data in signals:
        waiting = tx.db.execute(_WAITING, (tenant, name, key, signal, limit - count + 1))
        for seq, n, attempt, queue in waiting[: limit - count]:
            _record(tx, seq, n, name, key, attempt, signal, data)
            tx.db.execute("update fairlane_scheduled set due_at = ? where seq = ?", (tx.now, seq))
            queues.add(queue)
        if len(waiting) <= limit - count:
            tx.db.execute("update fairlane_signal set undelivered = 0 where id = ?", (signal,))
        count = min(count + len(waiting), limit)
    if queues:
        tx.wakes.extend(addresses_to_wake(tx, "if_waiting", queues))
    return count


def _record(
    tx: Transaction, seq: int, n: int, name: str, key: str, attempt: int, signal: bytes | None, data: str | None
) -> None:
    write_step(tx, seq, n, "wait", name, attempt, key=key, result=data, signal=signal)
    tx.db.execute("delete from fairlane_wait where seq = ?", (seq,))


@change
def take_signal(tx: Transaction, op: TakeSignal) -> SignalAnswer:
    if not is_leased(tx, op):
        return SignalAnswer(accepted=False)
    if (known := read_step(tx, op.seq, op.n)) is not None:
        return SignalAnswer(accepted=True, step=known)
    found = tx.db.execute(_UNHEARD, (op.seq, op.name, op.key))
    waited = tx.db.execute("select until from fairlane_wait where seq = ? and n = ?", (op.seq, op.n))
    if not found and not waited:
        return SignalAnswer(accepted=True)
    if not found and waited[0][0] > tx.now:
        return SignalAnswer(accepted=True, left_s=(waited[0][0] - tx.now) / 1_000_000)
    signal, data = found[0] if found else (None, None)
    _record(tx, op.seq, op.n, op.name, op.key, op.attempt, signal, data)
    return SignalAnswer(accepted=True, step=read_step(tx, op.seq, op.n))


def suspend(tx: Transaction, jobs: Sequence[SuspendedJob]) -> None:
    """Record sleeps, and waits for signals that have not been emitted yet."""
    for seq, attempt, due_at, suspension in jobs:
        n, name, key = suspension.n, suspension.name, suspension.key
        if read_step(tx, seq, n) is not None:
            continue
        if not suspension.signal:
            write_step(tx, seq, n, "sleep", name, attempt, until=due_at)
        elif found := tx.db.execute(_UNHEARD, (seq, name, key)):
            _record(tx, seq, n, name, key, attempt, *found[0])
            tx.db.execute("update fairlane_scheduled set due_at = ? where seq = ?", (tx.now, seq))
        else:
            tx.db.execute(_WAIT, (attempt, n, name, key, due_at, seq))


def read_wait(tx: Transaction, seq: int) -> SignalWait | None:
    """The signal that a job waits for now."""
    rows = tx.db.execute(_WAITS, (seq,))
    return _wait(rows[0]) if rows else None


@reading
def list_signals(tx: Transaction, op: ListSignals) -> SignalPage:
    where, params = joined(equal(("tenant", op.scope.tenant), ("name", op.name), ("key", op.key)))
    sql = f"select {_signal.columns} from fairlane_signal where {where} order by at desc, id desc limit ?"  # noqa: S608
    return SignalPage(signals=tuple(map(_signal, tx.db.execute(sql, (*params, bounded(op.limit))))))


def forget_signals(tx: Transaction, before: int, limit: int) -> int:
    return len(tx.db.execute(_FORGET, (before, limit)))
