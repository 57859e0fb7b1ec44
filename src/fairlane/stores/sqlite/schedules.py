"""Schedules: declared, fired by whoever comes first, paused and run by hand."""

from __future__ import annotations

from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlane.core.ids import JobId
from fairlane.core.ops import (
    Declared,
    DeclareSchedules,
    Fire,
    Fired,
    ListSchedules,
    PauseSchedule,
    RemoveSchedule,
    RunSchedule,
    ScheduleAct,
    Schedules,
)
from fairlane.core.schedules import Schedule
from fairlane.stores.instants import from_us, to_us
from fairlane.stores.sqlite.audit import Signed, write_audit
from fairlane.stores.sqlite.enqueue import put
from fairlane.stores.sqlite.listener import addresses_to_wake
from fairlane.stores.sqlite.transaction import Transaction, change, reading

_decode = msgspec.json.Decoder(Schedule).decode
_UNFINISHED = """
select 1 from fairlane_job j where j.id = ? and not exists (select 1 from fairlane_done d where d.seq = j.seq)
"""


@change
def declare(tx: Transaction, op: DeclareSchedules) -> Declared:
    added, changed = [], []
    for planned in op.schedules:
        spec, known = planned.spec, find(tx, planned.spec.name)
        if known is None:
            schedule = Schedule(spec=spec, source=op.source, next_at=planned.next_at, declared_at=from_us(tx.now))
            added.append(spec.name)
        elif known.source != op.source or known.spec == spec:
            continue
        else:
            schedule = replace(known, spec=spec, next_at=planned.next_at, declared_at=from_us(tx.now))
            changed.append(spec.name)
        _keep(tx, schedule)
        if op.by is not None:
            was: dict[str, object] | None = None if known is None else {"cron": known.spec.cron}
            _audit(tx, op, "schedule_add" if known is None else "schedule_change", schedule, was, {"cron": spec.cron})
    removed = _prune(tx, op) if op.prune else []
    return Declared(added=tuple(added), changed=tuple(changed), removed=tuple(removed))


def _prune(tx: Transaction, op: DeclareSchedules) -> list[str]:
    named = {planned.spec.name for planned in op.schedules}
    rows = tx.db.execute("select schedule from fairlane_schedule where source = ? order by name", (op.source,))
    gone = [schedule for (text,) in rows if (schedule := _decode(text)).spec.name not in named]
    for schedule in gone:
        _drop(tx, schedule.spec.name)
        if op.by is not None:
            _audit(tx, op, "schedule_remove", schedule, {"cron": schedule.spec.cron}, None)
    return [schedule.spec.name for schedule in gone]


@reading
def list_schedules(tx: Transaction, op: ListSchedules) -> Schedules:
    limit = max(op.limit, 0)
    if op.due:
        select = "select schedule from fairlane_schedule where fires_at <= ? order by fires_at, name limit ?"
        rows = tx.db.execute(select, (tx.now, limit))
        [(later,)] = tx.db.execute("select min(fires_at) from fairlane_schedule where fires_at > ?", (tx.now,))
    else:
        rows, later = tx.db.execute("select schedule from fairlane_schedule order by name limit ?", (limit,)), None
    next_s = None if later is None else (later - tx.now) / 1e6
    return Schedules(schedules=tuple(_decode(text) for (text,) in rows), next_s=next_s)


@change
def fire(tx: Transaction, op: Fire) -> Fired:
    schedule = find(tx, op.name)
    if schedule is None or schedule.paused_at is not None or schedule.next_at != op.expected_at:
        return Fired(outcome="lost")
    overlap = schedule.spec.overlap
    if op.jobs and overlap != "allow" and _is_unfinished(tx, schedule.last_job_id):
        if overlap == "queue":
            return Fired(outcome="waiting")
        _keep(tx, replace(schedule, next_at=op.next_at, last_at=op.fired_at or schedule.last_at))
        return Fired(outcome="skipped")
    receipts = [put(tx, job) for job in op.jobs]
    _wake(tx, {job.queue for job, receipt in zip(op.jobs, receipts, strict=True) if receipt.disposition == "created"})
    ids = tuple(receipt.id for receipt in receipts)
    last_job_id = ids[-1] if ids else schedule.last_job_id
    _keep(tx, replace(schedule, next_at=op.next_at, last_at=op.fired_at or schedule.last_at, last_job_id=last_job_id))
    return Fired(outcome="fired", job_ids=ids)


@change
def pause(tx: Transaction, op: PauseSchedule) -> ScheduleAct:
    schedule = find(tx, op.name)
    if schedule is None:
        return ScheduleAct(refused="not_found")
    was = schedule.paused_at is not None
    if was == op.paused:
        return ScheduleAct(schedule=schedule)
    if op.paused:
        after = replace(schedule, paused_at=from_us(tx.now))
    else:
        after = replace(schedule, paused_at=None, next_at=op.next_at)
    _keep(tx, after)
    _audit(tx, op, "schedule_pause" if op.paused else "schedule_resume", after, {"paused": was}, {"paused": op.paused})
    return ScheduleAct(schedule=after)


@change
def run(tx: Transaction, op: RunSchedule) -> ScheduleAct:
    schedule = find(tx, op.name)
    if schedule is None:
        return ScheduleAct(refused="not_found")
    receipt = put(tx, op.job)
    if receipt.disposition == "created":
        _wake(tx, {op.job.queue})
    after = replace(schedule, last_job_id=receipt.id)
    _keep(tx, after)
    _audit(tx, op, "schedule_run", after, None, {"job_id": str(receipt.id)})
    return ScheduleAct(schedule=after, job_id=receipt.id)


@change
def remove(tx: Transaction, op: RemoveSchedule) -> ScheduleAct:
    schedule = find(tx, op.name)
    if schedule is None:
        return ScheduleAct(refused="not_found")
    _drop(tx, op.name)
    _audit(tx, op, "schedule_remove", schedule, {"cron": schedule.spec.cron}, None)
    return ScheduleAct(schedule=schedule)


def find(tx: Transaction, name: str) -> Schedule | None:
    rows = tx.db.execute("select schedule from fairlane_schedule where name = ?", (name,))
    return _decode(rows[0][0]) if rows else None


def _keep(tx: Transaction, schedule: Schedule) -> None:
    next_at = None if schedule.paused_at is not None else schedule.next_at
    tx.db.execute(
        "insert or replace into fairlane_schedule values (?, ?, ?, ?)",
        (
            schedule.spec.name,
            schedule.source,
            None if next_at is None else to_us(next_at),
            msgspec.json.encode(schedule).decode(),
        ),
    )


def _drop(tx: Transaction, name: str) -> None:
    tx.db.execute("delete from fairlane_schedule where name = ?", (name,))


def _is_unfinished(tx: Transaction, job_id: JobId | None) -> bool:
    return job_id is not None and bool(tx.db.execute(_UNFINISHED, (UUID(str(job_id)).bytes,)))


def _wake(tx: Transaction, queues: set[str]) -> None:
    if queues:
        tx.wakes.extend(addresses_to_wake(tx, "if_waiting", queues))


def _audit(
    tx: Transaction,
    op: DeclareSchedules | PauseSchedule | RunSchedule | RemoveSchedule,
    action: str,
    schedule: Schedule,
    before: dict[str, object] | None,
    after: dict[str, object] | None,
) -> None:
    signed = Signed(op.by or "", op.notes)
    write_audit(tx, signed, action, schedule.spec.tenant, f"schedule:{schedule.spec.name}", before, after)
