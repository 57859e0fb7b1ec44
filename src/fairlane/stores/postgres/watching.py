"""Duties, alerts, groups of dead letters and the roll-up, as calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fairlane.core.ops import (
    Alerts,
    AlertsSaved,
    DeadLetterGroups,
    DutyTaken,
    GroupDeadLetters,
    ReadAlerts,
    RolledUp,
    RollUpEnqueued,
    SaveAlerts,
    SilenceAlerts,
    TakeDuty,
)
from fairlane.stores.postgres.call import Call, answering, instant

GROUPED = 10_000
"""Dead letters looked at, newest first."""

_duty_taken = answering(DutyTaken)
_alerts = answering(Alerts)
_alerts_saved = answering(AlertsSaved)
_rolled_up = answering(RolledUp)
_groups = answering(DeadLetterGroups)


def _take_duty(op: TakeDuty) -> Call[DutyTaken]:
    return Call(
        "select {schema}.take_duty_v1(%s, %s::float8, %s::timestamptz)::text",
        (op.name, op.every_s, instant(op.now)),
        _duty_taken,
    )


def _read_alerts(op: ReadAlerts) -> Call[Alerts]:
    return Call("select {schema}.alerts_v1(%s::timestamptz)::text", (instant(op.now),), _alerts)


def _save_alerts(op: SaveAlerts) -> Call[AlertsSaved]:
    return Call(
        "select {schema}.save_alerts_v1(%s::json, %s::timestamptz)::text",
        (msgspec.json.encode(op.alerts).decode(), instant(op.now)),
        _alerts_saved,
    )


def _silence(op: SilenceAlerts) -> Call[Alerts]:
    return Call(
        "select {schema}.silence_v1(%s, %s::float8, %s, %s, %s::timestamptz)::text",
        (op.rule, op.for_s, op.by, op.notes, instant(op.now)),
        _alerts,
    )


def _group(op: GroupDeadLetters) -> Call[DeadLetterGroups]:
    w = op.where
    of_letter = (w.status, w.acknowledged, w.error_class, w.error_type, w.fingerprint)
    return Call(
        "select {schema}.group_dead_letters_v1(%s, %s, %s::boolean, %s, %s, %s, %s, %s, %s, %s, %s)::text",
        (op.scope.tenant, *of_letter, w.queue, w.type, w.correlation_id, GROUPED, max(op.limit, 0)),
        _groups,
    )


def _roll_up(op: RollUpEnqueued) -> Call[RolledUp]:
    return Call(
        "select {schema}.roll_up_v1(%s::float8, %s, %s::timestamptz)::text",
        (op.settled_s, max(op.limit, 0), instant(op.now)),
        _rolled_up,
    )


CALLS: dict[type, Callable[[Any], Call[Any]]] = {
    TakeDuty: _take_duty,
    ReadAlerts: _read_alerts,
    SaveAlerts: _save_alerts,
    SilenceAlerts: _silence,
    GroupDeadLetters: _group,
    RollUpEnqueued: _roll_up,
}
