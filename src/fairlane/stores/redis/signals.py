"""Signals: kept when they are emitted, and recorded as steps of the jobs that wait for them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from fairlane.core.ops import (
    DELIVER_LIMIT,
    MAX_PAGE,
    Deliver,
    Delivered,
    Emit,
    Emitted,
    ListSignals,
    Signal,
    SignalAnswer,
    SignalPage,
    TakeSignal,
)
from fairlane.stores.instants import from_us
from fairlane.stores.redis.durable_steps import of_attempt
from fairlane.stores.redis.jobs.records import step_of
from fairlane.stores.redis.states import text_of
from fairlane.stores.redis.steps import Script, Steps, Work, handles, pack, texts

LOOKED_AT = 200
"""Signals that one step of a listing reads."""


class KeptSignal(Struct, frozen=True, kw_only=True):
    tenant: str
    name: str
    key: str
    at: int
    data: str


_read_signal = msgspec.msgpack.Decoder(KeptSignal).decode


@handles
def emit(work: Work, op: Emit) -> Steps[Emitted]:
    data = text_of(op.data, "the data of signal", op.id)
    call = {"id": op.id.hex, "tenant": op.tenant, "name": op.name, "key": op.key, "deliver": op.deliver}
    repeated, delivered = yield Script(
        "signals", (work.instant(), "emit", pack({**call, "limit": DELIVER_LIMIT}), data)
    )
    return Emitted(repeated=repeated == 1, delivered=delivered)


@handles
def deliver(work: Work, op: Deliver) -> Steps[Delivered]:
    limit = max(op.limit, 0)
    count, signals = yield Script("signals", (work.instant(), "deliver", pack({"limit": limit})))
    return Delivered(count=count, more=limit in (count, signals))


@handles
def take_signal(work: Work, op: TakeSignal) -> Steps[SignalAnswer]:
    call = {**of_attempt(op), "n": op.n, "name": op.name, "key": op.key}
    accepted, *found = yield Script("signals", (work.instant(), "take", pack(call)))
    step, left = (*found, None, None)[:2]
    return SignalAnswer(
        accepted=accepted == 1,
        step=None if step is None else step_of(step),
        left_s=None if left is None else int(left) / 1_000_000,
    )


@handles
def list_signals(work: Work, op: ListSignals) -> Steps[SignalPage]:
    limit = max(1, min(op.limit, MAX_PAGE))
    found: list[Signal] = []
    first = 0
    while True:
        [ids] = yield from work.read(("ZREVRANGE", "signals", first, first + LOOKED_AT - 1), watch=False)
        kept = []
        if ids:
            [kept] = yield from work.read(("HMGET", "signal", *texts(ids)), watch=False)
        found += [
            _signal(one.decode(), signal)
            for one, value in zip(ids, kept, strict=True)
            if value is not None and _is_asked_for(signal := _read_signal(value), op)
        ]
        if len(ids) < LOOKED_AT or len(found) >= limit:
            return SignalPage(signals=tuple(found[:limit]))
        first += LOOKED_AT


def _is_asked_for(signal: KeptSignal, op: ListSignals) -> bool:
    return op.scope.admits(signal.tenant) and op.name in (None, signal.name) and op.key in (None, signal.key)


def _signal(own_id: str, kept: KeptSignal) -> Signal:
    return Signal(
        id=UUID(hex=own_id), tenant=kept.tenant, name=kept.name, key=kept.key, data=kept.data, at=from_us(kept.at)
    )


def forget_signals(work: Work, before: int, limit: int) -> Generator[Script, Any, int]:
    return (yield Script("signals", (work.instant(), "forget", pack({"before": before, "limit": limit}))))  # type: ignore[no-any-return]
