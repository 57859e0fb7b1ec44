"""Schedules as calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

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
from fairlane.stores.postgres.call import Call, answering, instant
from fairlane.stores.postgres.enqueueing import jobs_text

_declared = answering(Declared)
_schedules = answering(Schedules)
_fired = answering(Fired)
_schedule_act = answering(ScheduleAct)

_LIST = "select json_build_object('schedules', coalesce(json_agg(row_to_json(s) order by {order}), '[]'))::text from ({found}) s"
_ALL = _LIST.replace("{order}", "s.name").replace("{found}", "select * from {schema}.schedule order by name limit %s")
_DUE = _LIST.replace("{order}", "s.next_at, s.name").replace(
    "{found}",
    "select * from {schema}.schedule where paused_at is null and next_at <= coalesce(%s::timestamptz, clock_timestamp()) "
    "order by next_at, name limit %s",
)


def _declare(op: DeclareSchedules) -> Call[Declared]:
    return Call(
        "select {schema}.declare_schedules_v1(%s::json, %s, %s, %s, %s, %s::timestamptz)::text",
        (msgspec.json.encode(op.schedules).decode(), op.source, op.prune, op.by, op.notes, instant(op.now)),
        _declared,
    )


def _list(op: ListSchedules) -> Call[Schedules]:
    limit = max(op.limit, 0)
    return Call(_DUE, (instant(op.now), limit), _schedules) if op.due else Call(_ALL, (limit,), _schedules)


def _fire(op: Fire) -> Call[Fired]:
    return Call(
        "select {schema}.fire_v1(%s, %s::timestamptz, %s::json, %s::timestamptz, %s::timestamptz, %s::timestamptz)::text",
        (
            op.name,
            instant(op.expected_at),
            jobs_text(op.jobs),
            instant(op.fired_at),
            instant(op.next_at),
            instant(op.now),
        ),
        _fired,
    )


def _pause(op: PauseSchedule) -> Call[ScheduleAct]:
    return Call(
        "select {schema}.pause_schedule_v1(%s, %s, %s::timestamptz, %s, %s, %s::timestamptz)::text",
        (op.name, op.paused, instant(op.next_at), op.by, op.notes, instant(op.now)),
        _schedule_act,
    )


def _run(op: RunSchedule) -> Call[ScheduleAct]:
    return Call(
        "select {schema}.run_schedule_v1(%s, %s::json, %s, %s, %s::timestamptz)::text",
        (op.name, jobs_text([op.job]), op.by, op.notes, instant(op.now)),
        _schedule_act,
    )


def _remove(op: RemoveSchedule) -> Call[ScheduleAct]:
    return Call(
        "select {schema}.remove_schedule_v1(%s, %s, %s, %s::timestamptz)::text",
        (op.name, op.by, op.notes, instant(op.now)),
        _schedule_act,
    )


CALLS: dict[type, Callable[[Any], Call[Any]]] = {
    DeclareSchedules: _declare,
    ListSchedules: _list,
    Fire: _fire,
    PauseSchedule: _pause,
    RunSchedule: _run,
    RemoveSchedule: _remove,
}
