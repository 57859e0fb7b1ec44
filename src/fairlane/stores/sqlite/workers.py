"""Workers: their heartbeat, the end of one, a list of them, and duties that one of them does for all."""

from __future__ import annotations

from uuid import UUID

import msgspec

from fairlane.core.ids import WorkerId
from fairlane.core.ops import (
    MOST_EXCEPTIONS,
    CaughtException,
    DutyTaken,
    ExceptionsReported,
    Lapse,
    ListExceptions,
    ListWorkers,
    ReclaimResult,
    Renew,
    Renewed,
    ReportExceptions,
    Retire,
    Retired,
    TakeDuty,
    WorkerException,
    WorkerExceptions,
    WorkerRecord,
    Workers,
)
from fairlane.core.outcome import Released
from fairlane.stores.instants import after, before, from_us
from fairlane.stores.sqlite.reclaim import reclaim_all_of
from fairlane.stores.sqlite.rows import RowReader
from fairlane.stores.sqlite.settle import settle, start
from fairlane.stores.sqlite.transaction import Transaction, change, reading

_RENEW = """
insert into fairlane_worker (id, name, queues, types, wake_address, figures, registered_at, renewed_at, expires_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8)
on conflict (id) do update set name = excluded.name, queues = excluded.queues, types = excluded.types,
  wake_address = excluded.wake_address, figures = excluded.figures, renewed_at = excluded.renewed_at, expires_at =
    excluded.expires_at
"""
_worker = RowReader(WorkerRecord)
_LIST = f"""
select {_worker.columns} from (
  select w.*, (select count(*) from fairlane_lease l where l.worker = w.id) as leases from fairlane_worker w)
order by registered_at, id
"""  # noqa: S608
_exceptions = msgspec.json.Decoder(tuple[CaughtException, ...]).decode
_HELD = "select seq, attempt, claim_no from fairlane_lease where worker = ? order by seq"
_DUTY = "select taken_at from fairlane_duty where name = ?"


@change
def renew(tx: Transaction, op: Renew) -> Renewed:
    expires_at = after(tx.now, op.lease_s)
    fresh = not tx.db.execute("select 1 from fairlane_worker where id = ?", (op.worker.bytes,))
    queues, types, figures = (msgspec.json.encode(value).decode() for value in (op.queues, op.types, op.figures))
    tx.db.execute(_RENEW, (op.worker.bytes, op.name, queues, types, op.wake_address, figures, tx.now, expires_at))
    return Renewed(now=from_us(tx.now), expires_at=from_us(expires_at), fresh=fresh)


@change
def retire(tx: Transaction, op: Retire) -> Retired:
    held = tx.db.execute(_HELD, (op.worker.bytes,))
    settle(tx, op.worker, [Released(seq=seq, attempt=attempt, claim_no=claim_no) for seq, attempt, claim_no in held])
    tx.db.execute("delete from fairlane_worker where id = ?", (op.worker.bytes,))
    return Retired(released=len(held))


@change
def lapse(tx: Transaction, op: Lapse) -> ReclaimResult:
    if not tx.db.execute("select 1 from fairlane_worker where id = ?", (op.worker.bytes,)):
        return ReclaimResult()
    if op.starts:
        start(tx, op.worker, op.starts)
    return ReclaimResult(reclaimed=tuple(reclaim_all_of(tx, op.worker.bytes)))


@reading
def list_workers(tx: Transaction, op: ListWorkers) -> Workers:
    workers = tuple(map(_worker, tx.db.execute(_LIST)))
    return Workers(now=from_us(tx.now), workers=workers)


@change
def report_exceptions(tx: Transaction, op: ReportExceptions) -> ExceptionsReported:
    kept = msgspec.json.encode(op.exceptions[-MOST_EXCEPTIONS:]).decode()
    known = tx.db.execute("update fairlane_worker set exceptions = ? where id = ? returning 1", (kept, op.worker.bytes))
    return ExceptionsReported(accepted=bool(known))


@reading
def list_exceptions(tx: Transaction, op: ListExceptions) -> WorkerExceptions:
    found = [
        WorkerException(worker=WorkerId(UUID(bytes=raw)), name=name, caught=caught)
        for raw, name, exceptions in tx.db.execute("select id, name, exceptions from fairlane_worker order by id")
        for caught in _exceptions(exceptions)
        if op.scope.admits(caught.tenant)
    ]
    found.sort(key=lambda one: (one.worker, one.caught.id, one.caught.attempt))
    found.sort(key=lambda one: one.caught.at, reverse=True)
    return WorkerExceptions(exceptions=tuple(found[: op.limit]))


@change
def take_duty(tx: Transaction, op: TakeDuty) -> DutyTaken:
    last = tx.db.execute(_DUTY, (op.name,))
    taken = not last or last[0][0] <= before(tx.now, op.every_s)
    if taken:
        tx.db.execute("insert or replace into fairlane_duty values (?, ?)", (op.name, tx.now))
    return DutyTaken(taken=taken, now=from_us(tx.now))
