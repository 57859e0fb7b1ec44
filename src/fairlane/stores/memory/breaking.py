"""Shared circuit breakers: `core.breaker` decides, one step at a time."""

from __future__ import annotations

from datetime import datetime

from fairlane.core import breaker as rules
from fairlane.core.breaker import Admission, Breaker
from fairlane.core.ops import Admit, BreakerAct, Breakers, ForceBreaker, ListBreakers, Report, ResetBreaker
from fairlane.stores.memory.acting import record_act
from fairlane.stores.memory.facts import Facts


def admit(facts: Facts, op: Admit, now: datetime) -> Admission:
    known = facts.breakers.get(op.name)
    if known is None:
        return Admission(admitted=True, state="closed")
    facts.breakers[op.name], admission = rules.admit(known, op.policy, now)
    return admission


def report(facts: Facts, op: Report, now: datetime) -> Breaker:
    breaker = _find(facts, op.name, now)
    for failed in (True,) * op.failures + (False,) * op.successes:
        breaker = rules.report(breaker, op.policy, failed=failed, now=now)
    facts.breakers[op.name] = breaker
    return breaker


def list_breakers(facts: Facts, op: ListBreakers, now: datetime) -> Breakers:
    return Breakers(breakers=tuple(facts.breakers[name] for name in sorted(facts.breakers)))


def reset_breaker(facts: Facts, op: ResetBreaker, now: datetime) -> BreakerAct:
    known = _find(facts, op.name, now)
    return _set(facts, op, "breaker_reset", known, rules.reset(known, now), now)


def force_breaker(facts: Facts, op: ForceBreaker, now: datetime) -> BreakerAct:
    known = _find(facts, op.name, now)
    return _set(facts, op, "breaker_force_open", known, rules.force_open(known, now), now)


def _find(facts: Facts, name: str, now: datetime) -> Breaker:
    return facts.breakers.get(name) or Breaker(name=name, updated_at=now)


def _set(
    facts: Facts, op: ResetBreaker | ForceBreaker, action: str, old: Breaker, new: Breaker, now: datetime
) -> BreakerAct:
    facts.breakers[op.name] = new
    before, after = {"state": old.state}, {"state": new.state}
    record_act(facts, action, f"breaker:{op.name}", None, by=op.by, notes=op.notes, before=before, after=after, now=now)
    return BreakerAct(breaker=new)
