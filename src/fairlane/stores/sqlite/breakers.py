"""Shared breakers: a row each, moved by the rules of `core.breaker`."""

from __future__ import annotations

import msgspec

from fairlane.core import breaker as rules
from fairlane.core.breaker import Admission, BreakerRecord
from fairlane.core.ops import Admit, BreakerAct, Breakers, ForceBreaker, ListBreakers, Report, ResetBreaker
from fairlane.stores.instants import from_us
from fairlane.stores.sqlite.audit import write_audit
from fairlane.stores.sqlite.transaction import Transaction, change, reading

_decode = msgspec.json.Decoder(BreakerRecord).decode


@change
def admit(tx: Transaction, op: Admit) -> Admission:
    known = _find(tx, op.name)
    if known is None:
        return Admission(admitted=True, state="closed")
    after, admission = rules.admit(known, op.policy, from_us(tx.now))
    if after != known:
        _keep(tx, after)
    return admission


@change
def report(tx: Transaction, op: Report) -> BreakerRecord:
    now = from_us(tx.now)
    after = _find(tx, op.name) or BreakerRecord(name=op.name, updated_at=now)
    for failed in (*[True] * op.failures, *[False] * op.successes):
        after = rules.report(after, op.policy, failed=failed, now=now)
    _keep(tx, after)
    return after


@reading
def list_breakers(tx: Transaction, op: ListBreakers) -> Breakers:
    rows = tx.db.execute("select breaker from fairlane_breaker order by name")
    return Breakers(breakers=tuple(_decode(text) for (text,) in rows))


@change
def reset(tx: Transaction, op: ResetBreaker) -> BreakerAct:
    now = from_us(tx.now)
    known = _find(tx, op.name) or BreakerRecord(name=op.name, updated_at=now)
    return _by_hand(tx, op, "breaker_reset", known, rules.reset(known, now))


@change
def force(tx: Transaction, op: ForceBreaker) -> BreakerAct:
    now = from_us(tx.now)
    known = _find(tx, op.name) or BreakerRecord(name=op.name, updated_at=now)
    return _by_hand(tx, op, "breaker_force_open", known, rules.force_open(known, now))


def _by_hand(
    tx: Transaction, op: ResetBreaker | ForceBreaker, action: str, before: BreakerRecord, after: BreakerRecord
) -> BreakerAct:
    _keep(tx, after)
    write_audit(tx, op, action, None, f"breaker:{op.name}", {"state": before.state}, {"state": after.state})
    return BreakerAct(breaker=after)


def _find(tx: Transaction, name: str) -> BreakerRecord | None:
    rows = tx.db.execute("select breaker from fairlane_breaker where name = ?", (name,))
    return _decode(rows[0][0]) if rows else None


def _keep(tx: Transaction, breaker: BreakerRecord) -> None:
    text = msgspec.json.encode(breaker).decode()
    tx.db.execute("insert or replace into fairlane_breaker values (?, ?)", (breaker.name, text))
