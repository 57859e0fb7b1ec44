"""Events, numbered in the order of their commits and kept for a while."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from fairlane.core.ops import WATCHED_FOR_S, AddEvents, Event, EventPage, EventsAdded, ReadEvents
from fairlane.stores.instants import after, from_us
from fairlane.stores.redis.steps import Script, Steps, Work, document, handles, texts

MAX_EVENTS = 1_000


class KeptEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    at: int
    kind: str
    tenant: str | None = None
    data: dict[str, Any] = {}


_read_event = msgspec.json.Decoder(KeptEvent).decode


@handles
def add(work: Work, op: AddEvents) -> Steps[EventsAdded]:
    [watched] = yield from work.read(("HGET", "meta", "watched_until"), watch=False)
    for draft in op.events:
        kept = KeptEvent(at=work.now, kind=draft.kind, tenant=draft.tenant, data=draft.data)
        work.act("event", draft.tenant or "", document(kept))
    yield from work.commit()
    return EventsAdded(watched=watched is not None and int(watched) > work.now)


@handles
def read(work: Work, op: ReadEvents) -> Steps[EventPage]:
    limit = max(1, min(op.limit, MAX_EVENTS))
    numbers = "events" if op.scope.tenant is None else f"events:{op.scope.tenant}"
    found: list[Event] = []
    behind = op.after
    last = 0
    while True:
        page, given = yield from work.read(
            ("ZRANGEBYSCORE", numbers, f"({behind}", "+inf", "LIMIT", 0, limit), ("HGET", "meta", "event"), watch=False
        )
        last = int(given or 0)
        events = yield from _read(work, page)
        found += [
            _event(int(number), event)
            for number, event in zip(page, events, strict=True)
            if event is not None and (not op.kinds or event.kind in op.kinds)
        ]
        if len(page) < limit or len(found) >= limit:
            break
        behind = int(page[-1])
    if op.watch:
        [until] = yield from work.read(("HGET", "meta", "watched_until"))
        work.do("HSET", "meta", "watched_until", max(after(work.now, WATCHED_FOR_S), int(until or 0)))
        yield from work.commit()
    return EventPage(events=tuple(found[:limit]), last=last)


def forget_old(work: Work, before: int, limit: int) -> Generator[Script, Any, int]:
    """Remove events of before then, the oldest first; the caller commits."""
    [numbers] = yield from work.read(("ZRANGEBYSCORE", "events", "-inf", "+inf", "LIMIT", 0, limit), watch=False)
    events = yield from _read(work, numbers)
    gone = 0
    for number, event in zip(numbers, events, strict=True):
        if event is not None and event.at >= before:
            break
        gone += 1
        work.do("ZREM", "events", number.decode())
        work.do("HDEL", "event", number.decode())
        if event is not None and event.tenant is not None:
            work.do("ZREM", f"events:{event.tenant}", number.decode())
    return gone


def _read(work: Work, numbers: Sequence[bytes]) -> Generator[Script, Any, list[KeptEvent | None]]:
    if not numbers:
        return []
    [documents] = yield from work.read(("HMGET", "event", *texts(numbers)), watch=False)
    return [None if one is None else _read_event(one) for one in documents]


def _event(number: int, kept: KeptEvent) -> Event:
    return Event(id=number, at=from_us(kept.at), kind=kept.kind, tenant=kept.tenant, data=kept.data)
