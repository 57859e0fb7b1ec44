"""Limits people set at run time, their pauses, and tokens of enqueue rates."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import json
from msgspec.structs import replace

from fairlane.core.ids import EVERY_TENANT
from fairlane.core.limits import NO_LIMIT, Limit, LimitKey, StoredLimit
from fairlane.core.ops import (
    ClearLimit,
    LimitPaused,
    Limits,
    ListLimits,
    PauseLimit,
    SetLimit,
    TakeTokens,
    TokensTaken,
)
from fairlane.stores.memory.acting import record_act
from fairlane.stores.memory.facts import Facts
from fairlane.stores.memory.moments import later
from fairlane.stores.memory.room import rules_for, running_in


def list_limits(facts: Facts, op: ListLimits, now: datetime) -> Limits:
    return _limits(facts, changed=False)


def set_limit(facts: Facts, op: SetLimit, now: datetime) -> Limits:
    limit, known = op.limit, facts.limits.get(op.limit.key)
    if known is not None and known.limit == limit:
        return _limits(facts, changed=False)
    paused_until = None if known is None else known.paused_until
    _keep(facts, StoredLimit(limit=limit, by=op.by, at=now, paused_until=paused_until))
    if limit.running not in (None, NO_LIMIT):
        _mark_leases_under(facts, limit.key)
    _record(facts, op, "limit_set", limit.key, _set_before(known), _as_json(limit), now)
    return _changed(facts)


def clear_limit(facts: Facts, op: ClearLimit, now: datetime) -> Limits:
    key = LimitKey(op.kind, op.name, op.queue)
    known = facts.limits.pop(key, None)
    if known is None:
        return _limits(facts, changed=False)
    facts.rules.clear()
    before = _set_before(known)
    if before is not None:
        _record(facts, op, "limit_clear", key, before, None, now)
    return _changed(facts)


def pause_limit(facts: Facts, op: PauseLimit, now: datetime) -> LimitPaused:
    until = later(now, op.for_s)
    known = facts.limits.get(LimitKey(op.kind, op.name, op.queue))
    if known is None:
        known = StoredLimit(limit=Limit(kind=op.kind, name=op.name, queue=op.queue), by=op.by, at=now)
    if known.paused_until is not None:
        until = max(until, known.paused_until)
    _keep(facts, replace(known, paused_until=until))
    return LimitPaused(until=until)


def take_tokens(facts: Facts, op: TakeTokens, now: datetime) -> TokensTaken:
    in_force = rules_for(facts, op.limits).in_force
    rates = {tenant: rate for tenant in sorted(op.counts) if (rate := in_force.enqueue_rate(tenant)) is not None}
    for tenant, rate in rates.items():
        log, count = facts.tokens.get(LimitKey("tenant", tenant)), op.counts[tenant]
        if log.used(rate, now) + count > rate.count:
            return TokensTaken(granted=False, tenant=tenant, rate=rate, retry_at=log.free_at(rate, now, count))
    for tenant, rate in rates.items():
        log = facts.tokens.open(LimitKey("tenant", tenant), now)
        if op.counts[tenant] > 0:
            log.add(rate, *[(now, 0, 0)] * op.counts[tenant])
    return TokensTaken(granted=True)


def _keep(facts: Facts, record: StoredLimit) -> None:
    facts.limits[record.limit.key] = record
    facts.rules.clear()


def _mark_leases_under(facts: Facts, key: LimitKey) -> None:
    """Leases that come under a limit while they live have somebody wait for their end, too."""
    rules = rules_for(facts, ())
    running_in(facts, rules)
    for worker in facts.workers.values():
        for row in worker.leases.values():
            queue, _, tenant = row.line
            name = EVERY_TENANT if key.kind == "tenant" and key.name == EVERY_TENANT else tenant
            if row.lease is not None and key in rules.in_force.keys_of(queue, name, row.type):
                row.lease.limited = True


def _changed(facts: Facts) -> Limits:
    facts.wakes = True
    return _limits(facts, changed=True)


def _limits(facts: Facts, *, changed: bool) -> Limits:
    return Limits(limits=tuple(facts.limits[key] for key in sorted(facts.limits)), changed=changed)


def _set_before(record: StoredLimit | None) -> dict[str, Any] | None:
    """None where there was no record, or one of nothing but a pause."""
    if record is None or record.limit == Limit(
        kind=record.limit.kind, name=record.limit.name, queue=record.limit.queue
    ):
        return None
    return _as_json(record.limit)


def _as_json(limit: Limit) -> dict[str, Any]:
    shown: dict[str, Any] = json.decode(json.encode(limit))
    return shown


def _record(
    facts: Facts,
    op: SetLimit | ClearLimit,
    action: str,
    key: LimitKey,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    now: datetime,
) -> None:
    kind, name, queue = key
    target = f"limit:{kind}:{name}@{queue}" if queue else f"limit:{kind}:{name}"
    tenant = name if kind == "tenant" and name != EVERY_TENANT else None
    record_act(facts, action, target, tenant, by=op.by, notes=op.notes, before=before, after=after, now=now)
