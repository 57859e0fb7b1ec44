"""Workers as calls: their heartbeats, their ends, what they and their attempts say."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import msgspec

from fairlane.core.ops import (
    LOG_LINES,
    AddStats,
    Lapse,
    ListWorkers,
    Note,
    Noted,
    Promote,
    Promoted,
    ReadStats,
    Reclaim,
    ReclaimResult,
    Renew,
    Renewed,
    Retire,
    Retired,
    StatPage,
    StatsAdded,
    Workers,
)
from fairlane.stores.postgres.call import Call, answering, instant

_renewed = answering(Renewed)
_retired = answering(Retired)
_reclaimed = answering(ReclaimResult)
_promoted = answering(Promoted)
_workers = answering(Workers)
_noted = answering(Noted)
_stats_added = answering(StatsAdded)
_stat_page = answering(StatPage)


def _renew(op: Renew) -> Call[Renewed]:
    # JSON has no word for what is not a number, and one worker's must not hide the others from whoever lists them.
    figures = {name: figure for name, figure in op.figures.items() if isfinite(figure)}
    return Call(
        "select {schema}.renew_v1(%s::uuid, %s, %s, %s::text[], %s::text[], %s, %s::timestamptz, %s::json)::text",
        (
            str(op.worker),
            op.lease_s,
            op.name,
            list(op.queues),
            list(op.types),
            op.wake_address,
            instant(op.now),
            msgspec.json.encode(figures).decode(),
        ),
        _renewed,
    )


def _retire(op: Retire) -> Call[Retired]:
    return Call(
        "select {schema}.retire_v1(%s::uuid, %s::timestamptz)::text", (str(op.worker), instant(op.now)), _retired
    )


def _lapse(op: Lapse) -> Call[ReclaimResult]:
    return Call(
        "select {schema}.lapse_v1(%s::uuid, %s::json, %s::timestamptz)::text",
        (str(op.worker), msgspec.json.encode(op.starts).decode(), instant(op.now)),
        _reclaimed,
    )


def _reclaim(op: Reclaim) -> Call[ReclaimResult]:
    return Call("select {schema}.reclaim_v1(%s, %s::timestamptz)::text", (op.limit, instant(op.now)), _reclaimed)


def _promote(op: Promote) -> Call[Promoted]:
    return Call("select {schema}.promote_v1(%s, %s::timestamptz)::text", (op.limit, instant(op.now)), _promoted)


def _list_workers(op: ListWorkers) -> Call[Workers]:
    return Call("select {schema}.list_workers_v1(%s::timestamptz)::text", (instant(op.now),), _workers)


def _note(op: Note) -> Call[Noted]:
    return Call(
        "select {schema}.note_v1(%s::uuid, %s, %s, %s::float8, %s::text[], %s, %s::timestamptz)::text",
        (str(op.worker), op.seq, op.attempt, op.progress, list(op.log), LOG_LINES, instant(op.now)),
        _noted,
    )


def _add_stats(op: AddStats) -> Call[StatsAdded]:
    return Call(
        "select {schema}.add_stats_v1(%s::uuid, %s, %s::json)::text",
        (str(op.worker), op.batch, msgspec.json.encode(op.rows).decode()),
        _stats_added,
    )


def _read_stats(op: ReadStats) -> Call[StatPage]:
    return Call(
        "select {schema}.read_stats_v1(%s::timestamptz, %s::timestamptz, %s, %s, %s, %s, %s, %s)::text",
        (instant(op.since), instant(op.until), op.type, op.queue, op.tenant, max(op.limit, 0), op.step_s, op.by),
        _stat_page,
    )


CALLS: dict[type, Callable[[Any], Call[Any]]] = {
    Renew: _renew,
    Retire: _retire,
    Lapse: _lapse,
    Reclaim: _reclaim,
    Promote: _promote,
    ListWorkers: _list_workers,
    Note: _note,
    AddStats: _add_stats,
    ReadStats: _read_stats,
}
