"""One call of a store, cut at every byte it sends and every byte it gets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from fairlane.core.ops import ALL_TENANTS, GetJob, Op
from fairlane.stores.base import Store
from fairlane.stores.postgres import PostgresStore
from fairlane.testing.conformance.samples import Making
from tests.faults.places import Place
from tests.servers.proxy import PASS, Cut, Plan, Proxy
from tests.support.stores import Face

Direction = Literal["sent", "received"]

# Opens the connection and leaves it idle; its answer is empty and always of one length.
_GREETING = GetJob(scope=ALL_TENANTS, id=Making(seed=99).job_id())


class Length(NamedTuple):
    before: int
    """Bytes of a connection until it lies idle."""
    call: int
    """Bytes of the call itself."""


def measure(place: Place, call: Op[object]) -> dict[Direction, Length]:
    """How long the conversation about one call is, in both directions."""
    totals = []
    for ops in ([_GREETING], [_GREETING, call]):
        with Proxy(place.server.port) as proxy:
            store = PostgresStore(place.through(proxy.port))
            for op in ops:
                store.run(op)
            sent = proxy.sent[0]  # before the goodbye, which is no part of the call
            store.close()
        totals.append((sent, proxy.received[0]))
    (sent, received), (sent_all, received_all) = totals
    return {"sent": Length(sent, sent_all - sent), "received": Length(received, received_all - received)}


def offsets(length: Length, stride: int) -> Iterator[int]:
    """Every `stride`-th byte of the call, its first and its last three; all of them in the long run."""
    step = 1 if os.environ.get("FAIRLANE_LONG") else stride
    last = length.call
    yield from sorted({*range(1, last + 1, step), last - 2, last - 1, last})


def cut_at(
    place: Place, proxy: Proxy, direction: Direction, offset: int, how: Cut, call: Callable[[Face], None], colour: str
) -> None:
    """Run `call` on a store whose connection ends after so many bytes; the next connection is a good one."""
    face = Face(_store(place, proxy), colour)
    try:
        proxy.plan = Plan(**{f"cut_{direction}": offset}, how=how)
        face.run(_GREETING)
        proxy.plan = PASS
        call(face)
    finally:
        face.close()


def _store(place: Place, proxy: Proxy) -> Store:
    return PostgresStore(place.through(proxy.port))
