"""Events: told, read from where a watcher left off, forgotten."""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime
from itertools import islice

from msgspec import json

from fairlane.core.ops import (
    WATCHED_FOR_S,
    AddEvents,
    Event,
    EventPage,
    EventsAdded,
    ForgetOld,
    Forgotten,
    ReadEvents,
)
from fairlane.stores.memory.accessing import forget_credentials
from fairlane.stores.memory.beside import Told
from fairlane.stores.memory.facts import Facts
from fairlane.stores.memory.moving import as_utc, later

_MAX_PAGE = 1000


def add_events(facts: Facts, op: AddEvents, now: datetime) -> EventsAdded:
    beside = facts.beside
    encoded = [json.encode(draft.data) for draft in op.events]
    for draft, data in zip(op.events, encoded, strict=True):
        beside.last_event_id += 1
        beside.events.append(Told(beside.last_event_id, now, draft.kind, draft.tenant, data))
    return EventsAdded(watched=beside.watched_until is not None and now < beside.watched_until)


def read_events(facts: Facts, op: ReadEvents, now: datetime) -> EventPage:
    beside = facts.beside
    if op.watch:
        until = later(now, WATCHED_FOR_S)
        beside.watched_until = until if beside.watched_until is None else max(until, beside.watched_until)
    start = bisect_right(beside.events, op.after, key=lambda told: told.id)
    found = (told for told in islice(beside.events, start, None) if _is_asked_for(told, op))
    events = tuple(_event_of(told) for told in islice(found, max(1, min(op.limit, _MAX_PAGE))))
    return EventPage(events=events, last=beside.last_event_id)


def forget_old(facts: Facts, op: ForgetOld, now: datetime) -> Forgotten:
    events_before = None if op.events_before is None else as_utc("events_before", op.events_before)
    credentials_before = None if op.credentials_before is None else as_utc("credentials_before", op.credentials_before)
    events = credentials = 0
    if events_before is not None:
        events = _forget_events(facts, events_before, op.limit)
    if credentials_before is not None:
        credentials = forget_credentials(facts, credentials_before, op.limit, now)
    return Forgotten(events=events, credentials=credentials)


def _forget_events(facts: Facts, before: datetime, limit: int) -> int:
    old = (told.id for told in facts.beside.events if told.at < before)
    gone = set(islice(old, max(limit, 0)))
    if gone:
        facts.beside.events = [told for told in facts.beside.events if told.id not in gone]
    return len(gone)


def _is_asked_for(told: Told, op: ReadEvents) -> bool:
    mine = op.scope.tenant is None or op.scope.tenant == told.tenant
    return mine and (not op.kinds or told.kind in op.kinds)


def _event_of(told: Told) -> Event:
    return Event(id=told.id, at=told.at, kind=told.kind, tenant=told.tenant, data=json.decode(told.data))
