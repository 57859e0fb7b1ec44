"""Schedules: where each stands, and the one firing of each nominal time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

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
from fairlane.core.schedules.schedule import Schedule, ScheduleSpec
from fairlane.stores.memory.acting import record_act
from fairlane.stores.memory.enqueueing import put, read
from fairlane.stores.memory.facts import FINAL_PLACES, Facts
from fairlane.stores.memory.moving import as_utc

_NOT_FOUND = ScheduleAct(refused="not_found")


def declare_schedules(facts: Facts, op: DeclareSchedules, now: datetime) -> Declared:
    planned = [(one.spec, _as_utc_if_any("next_at", one.next_at)) for one in op.schedules]
    schedules, added, changed, removed = facts.schedules, [], [], []
    for spec, next_at in planned:
        known = schedules.get(spec.name)
        if known is None:
            schedules[spec.name] = Schedule(spec=spec, source=op.source, next_at=next_at, declared_at=now)
            added.append(spec.name)
            _record(facts, op, "schedule_add", spec, None, {"cron": spec.cron}, now)
        elif known.source == op.source and known.spec != spec:
            schedules[spec.name] = replace(known, spec=spec, next_at=next_at, declared_at=now)
            changed.append(spec.name)
            _record(facts, op, "schedule_change", spec, {"cron": known.spec.cron}, {"cron": spec.cron}, now)
    if op.prune:
        named = {spec.name for spec, _ in planned}
        removed = sorted(name for name, one in schedules.items() if one.source == op.source and name not in named)
        for name in removed:
            gone = schedules.pop(name).spec
            _record(facts, op, "schedule_remove", gone, {"cron": gone.cron}, None, now)
    return Declared(added=tuple(added), changed=tuple(changed), removed=tuple(removed))


def list_schedules(facts: Facts, op: ListSchedules, now: datetime) -> Schedules:
    if not op.due:
        found = [facts.schedules[name] for name in sorted(facts.schedules)]
    else:
        due = [
            (one.next_at, name)
            for name, one in facts.schedules.items()
            if one.paused_at is None and one.next_at is not None and one.next_at <= now
        ]
        found = [facts.schedules[name] for _, name in sorted(due)]
    return Schedules(schedules=tuple(found[: max(op.limit, 0)]))


def fire(facts: Facts, op: Fire, now: datetime) -> Fired:
    fired_at, next_at = as_utc("fired_at", op.fired_at), _as_utc_if_any("next_at", op.next_at)
    schedule = facts.schedules.get(op.name)
    if schedule is None or schedule.paused_at is not None or schedule.next_at != op.expected_at:
        return Fired(outcome="lost")
    moved = replace(schedule, last_at=fired_at, next_at=next_at)
    overlaps = bool(op.jobs) and _is_unfinished(facts, schedule.last_job_id)
    if overlaps and schedule.spec.overlap == "queue":
        return Fired(outcome="waiting")
    if overlaps and schedule.spec.overlap == "skip":
        facts.schedules[op.name] = moved
        return Fired(outcome="skipped")
    made = tuple(receipt.id for receipt in put(facts, read(op.jobs, now), now))
    facts.schedules[op.name] = replace(moved, last_job_id=made[-1]) if made else moved
    return Fired(outcome="fired", job_ids=made)


def pause_schedule(facts: Facts, op: PauseSchedule, now: datetime) -> ScheduleAct:
    next_at = _as_utc_if_any("next_at", op.next_at)
    schedule = facts.schedules.get(op.name)
    if schedule is None:
        return _NOT_FOUND
    if (schedule.paused_at is not None) == op.paused:
        return ScheduleAct(schedule=schedule)
    after = replace(schedule, paused_at=now) if op.paused else replace(schedule, paused_at=None, next_at=next_at)
    facts.schedules[op.name] = after
    action = "schedule_pause" if op.paused else "schedule_resume"
    _record(facts, op, action, after.spec, {"paused": not op.paused}, {"paused": op.paused}, now)
    return ScheduleAct(schedule=after)


def run_schedule(facts: Facts, op: RunSchedule, now: datetime) -> ScheduleAct:
    schedule = facts.schedules.get(op.name)
    if schedule is None:
        return _NOT_FOUND
    [receipt] = put(facts, read((op.job,), now), now)
    facts.schedules[op.name] = schedule = replace(schedule, last_job_id=receipt.id)
    _record(facts, op, "schedule_run", schedule.spec, None, {"job_id": str(receipt.id)}, now)
    return ScheduleAct(schedule=schedule, job_id=receipt.id)


def remove_schedule(facts: Facts, op: RemoveSchedule, now: datetime) -> ScheduleAct:
    schedule = facts.schedules.pop(op.name, None)
    if schedule is None:
        return _NOT_FOUND
    _record(facts, op, "schedule_remove", schedule.spec, {"cron": schedule.spec.cron}, None, now)
    return ScheduleAct(schedule=schedule)


def _is_unfinished(facts: Facts, job: JobId | None) -> bool:
    row = None if job is None else facts.ids.get(job)
    return row is not None and row.place not in FINAL_PLACES


def _as_utc_if_any(what: str, at: datetime | None) -> datetime | None:
    return None if at is None else as_utc(what, at)


def _record(
    facts: Facts,
    op: DeclareSchedules | PauseSchedule | RunSchedule | RemoveSchedule,
    action: str,
    spec: ScheduleSpec,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    now: datetime,
) -> None:
    """Write a person's act down; code that declares its own schedules is nobody."""
    if op.by is not None:
        target = f"schedule:{spec.name}"
        record_act(facts, action, target, spec.tenant, by=op.by, notes=op.notes, before=before, after=after, now=now)
