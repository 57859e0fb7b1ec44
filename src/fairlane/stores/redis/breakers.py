"""Shared breakers: a document each, moved by the rules of `core.breaker`."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec

from fairlane.core import breaker as rules
from fairlane.core.breaker import Admission, BreakerRecord
from fairlane.core.ops import Admit, BreakerAct, Breakers, ForceBreaker, ListBreakers, Report, ResetBreaker
from fairlane.stores.instants import from_us
from fairlane.stores.redis.steps import Script, Steps, Work, document, handles

_read_breaker = msgspec.json.Decoder(BreakerRecord).decode


@handles
def admit(work: Work, op: Admit) -> Steps[Admission]:
    known = yield from _find(work, op.name)
    if known is None:
        return Admission(admitted=True, state="closed")
    after, admission = rules.admit(known, op.policy, from_us(work.now))
    if after != known:
        _keep(work, after)
    yield from work.commit()
    return admission


@handles
def report(work: Work, op: Report) -> Steps[BreakerRecord]:
    after = yield from _known_or_new(work, op.name)
    for failed in (*[True] * op.failures, *[False] * op.successes):
        after = rules.report(after, op.policy, failed=failed, now=from_us(work.now))
    _keep(work, after)
    yield from work.commit()
    return after


@handles
def list_breakers(work: Work, op: ListBreakers) -> Steps[Breakers]:
    [documents] = yield from work.read(("HVALS", "breaker"), watch=False)
    return Breakers(breakers=tuple(sorted(map(_read_breaker, documents), key=lambda breaker: breaker.name)))


@handles
def reset(work: Work, op: ResetBreaker) -> Steps[BreakerAct]:
    known = yield from _known_or_new(work, op.name)
    return (yield from _by_hand(work, op, "breaker_reset", known, rules.reset(known, from_us(work.now))))


@handles
def force(work: Work, op: ForceBreaker) -> Steps[BreakerAct]:
    known = yield from _known_or_new(work, op.name)
    return (yield from _by_hand(work, op, "breaker_force_open", known, rules.force_open(known, from_us(work.now))))


def _by_hand(
    work: Work, op: ResetBreaker | ForceBreaker, action: str, before: BreakerRecord, after: BreakerRecord
) -> Generator[Script, Any, BreakerAct]:
    _keep(work, after)
    work.audit(op, action, None, f"breaker:{op.name}", {"state": before.state}, {"state": after.state})
    yield from work.commit()
    return BreakerAct(breaker=after)


def _find(work: Work, name: str) -> Generator[Script, Any, BreakerRecord | None]:
    [kept] = yield from work.read(("HGET", "breaker", name))
    return None if kept is None else _read_breaker(kept)


def _known_or_new(work: Work, name: str) -> Generator[Script, Any, BreakerRecord]:
    known = yield from _find(work, name)
    return known or BreakerRecord(name=name, updated_at=from_us(work.now))


def _keep(work: Work, breaker: BreakerRecord) -> None:
    work.do("HSET", "breaker", breaker.name, document(breaker))
