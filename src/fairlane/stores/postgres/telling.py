"""Events as calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fairlane.core.ops import WATCHED_FOR_S, AddEvents, EventPage, EventsAdded, ForgetOld, Forgotten, ReadEvents
from fairlane.stores.postgres.call import Call, answering, instant

MAX_EVENTS = 1_000

_events_added = answering(EventsAdded)
_event_page = answering(EventPage)
_forgotten = answering(Forgotten)


def _add(op: AddEvents) -> Call[EventsAdded]:
    return Call(
        "select {schema}.add_events_v1(%s::json, %s::timestamptz)::text",
        (msgspec.json.encode(op.events).decode(), instant(op.now)),
        _events_added,
    )


def _read(op: ReadEvents) -> Call[EventPage]:
    limit = max(1, min(op.limit, MAX_EVENTS))
    watch_s = WATCHED_FOR_S if op.watch else None
    return Call(
        "select {schema}.read_events_v1(%s, %s, %s::text[], %s, %s::float8, %s::timestamptz)::text",
        (op.scope.tenant, op.after, list(op.kinds) or None, limit, watch_s, instant(op.now)),
        _event_page,
    )


def _forget(op: ForgetOld) -> Call[Forgotten]:
    before = (instant(op.events_before), instant(op.credentials_before))
    return Call(
        "select {schema}.forget_old_v1(%s::timestamptz, %s::timestamptz, %s, %s::timestamptz)::text",
        (*before, max(op.limit, 0), instant(op.now)),
        _forgotten,
    )


CALLS: dict[type, Callable[[Any], Call[Any]]] = {AddEvents: _add, ReadEvents: _read, ForgetOld: _forget}
