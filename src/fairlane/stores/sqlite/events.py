"""Events, numbered in the order of their commits and kept for a while."""

from __future__ import annotations

import msgspec

from fairlane.core.ops import WATCHED_FOR_S, AddEvents, Event, EventPage, EventsAdded, ReadEvents
from fairlane.stores.instants import after
from fairlane.stores.sqlite.rows import RowReader
from fairlane.stores.sqlite.transaction import Transaction, change_if

_event = RowReader(Event)
MAX_EVENTS = 1_000
_WATCHED = "select value from fairlane_meta where name = 'watched_until_us'"
_WATCH = """
insert into fairlane_meta values ('watched_until_us', ?) on conflict (name)
  do update set value = max(value, excluded.value)
"""
_ADD = "insert into fairlane_event (at, kind, tenant, data) values (?, ?, ?, ?)"
_LAST = "select seq from sqlite_sequence where name = 'fairlane_event'"


@change_if(lambda op: bool(op.events))
def add(tx: Transaction, op: AddEvents) -> EventsAdded:
    if op.events:
        rows = [(tx.now, event.kind, event.tenant, msgspec.json.encode(event.data).decode()) for event in op.events]
        tx.db.executemany(_ADD, rows)
    watched = tx.db.execute(_WATCHED)
    return EventsAdded(watched=bool(watched) and watched[0][0] > tx.now)


@change_if(lambda op: op.watch)
def read(tx: Transaction, op: ReadEvents) -> EventPage:
    if op.watch:
        tx.db.execute(_WATCH, (after(tx.now, WATCHED_FOR_S),))
    where = "id > ?"
    params: list[object] = [op.after]
    if op.scope.tenant is not None:
        where, params = f"{where} and tenant = ?", [*params, op.scope.tenant]
    if op.kinds:
        where, params = f"{where} and kind in ({', '.join('?' * len(op.kinds))})", [*params, *op.kinds]
    rows = tx.db.execute(
        f"select {_event.columns} from fairlane_event where {where} order by id limit ?",  # noqa: S608
        (*params, max(1, min(op.limit, MAX_EVENTS))),
    )
    last = tx.db.execute(_LAST)
    return EventPage(events=tuple(map(_event, rows)), last=last[0][0] if last else 0)
