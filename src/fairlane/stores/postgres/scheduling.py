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


def _declare(op: DeclareSchedules) -> Call[Declared]:
    return Call(
        "select {schema}.declare_schedules_v1(%s::json, %s, %s, %s, %s, %s::timestamptz)::text",
        (msgspec.json.encode(op.schedules).decode(), op.source, op.prune, op.by, op.notes, instant(op.now)),
        _declared,
    )


def _list(op: ListSchedules) -> Call[Schedules]:
    return Call(
        "select {schema}.list_schedules_v1(%s, %s, %s::timestamptz)::text",
        (op.due, max(op.limit, 0), instant(op.now)),
        _schedules,
    )


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
