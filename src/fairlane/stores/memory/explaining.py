"""Why a job waits: the facts, put together for people."""

from __future__ import annotations

from datetime import datetime

from fairlane.core.ops import TENANT_COUNT_CAP, LimitState, Waiting, Why
from fairlane.stores.memory.facts import FINAL_PLACES, Facts, Row
from fairlane.stores.memory.room import free_at, rules_for, running_in
from fairlane.stores.memory.rules import Bounds, Rules
from fairlane.stores.memory.showing import job_of


def why(facts: Facts, op: Why, now: datetime) -> Waiting | None:
    row = facts.ids.get(op.id)
    if row is None or not op.scope.admits(row.spec.tenant):
        return None
    rules = rules_for(facts, op.limits)
    ahead, more_urgent, tenants = _place_in_line(facts, row) if row.place == "ready" else (0, 0, 0)
    serving = [
        worker.said
        for worker in facts.workers.values()
        if worker.expires_at > now and (not worker.said.queues or row.spec.queue in worker.said.queues)
    ]
    knowing = sum(not said.types or row.type in said.types for said in serving)
    paused = facts.paused
    pauses = paused["queue"].get(row.spec.queue), paused["tenant"].get(row.spec.tenant), paused["type"].get(row.type)
    return Waiting(
        now=now,
        job=job_of(row),
        place=row.place,
        ahead=min(ahead, TENANT_COUNT_CAP),
        more_urgent=min(more_urgent, TENANT_COUNT_CAP),
        tenants=min(tenants, TENANT_COUNT_CAP),
        pauses=tuple(pause for pause in pauses if pause is not None),
        limits=() if row.place in FINAL_PLACES else _limits_over(facts, rules, row, now),
        waiting_limit=rules.in_force.terms(row.spec.tenant, row.spec.queue).waiting,
        workers=min(len(serving), TENANT_COUNT_CAP),
        knowing=min(knowing, TENANT_COUNT_CAP),
    )


def _place_in_line(facts: Facts, row: Row) -> tuple[int, int, int]:
    queue, band, tenant = row.line
    ready, line = facts.ready, facts.ready.lines[row.line]
    ahead = line.find((row.rank, row.due_at, row.seq)) - line.head
    bands = ready.tenants[queue]
    more_urgent = sum(len(ready.lines[queue, other, name]) for other in bands if other < band for name in bands[other])
    tenants = sum(name != tenant and len(ready.lines[queue, band, name]) > 0 for name in bands[band])
    return ahead, more_urgent, tenants


def _limits_over(facts: Facts, rules: Rules, row: Row, now: datetime) -> tuple[LimitState, ...]:
    over = rules.of_line(row.spec.queue, row.spec.tenant) + rules.of_type(row.type)
    return tuple(_state_of(facts, rules, bounds, now) for bounds in over if bounds.hold(now))


def _state_of(facts: Facts, rules: Rules, bounds: Bounds, now: datetime) -> LimitState:
    key, running, rate, _ = bounds
    return LimitState(
        kind=key.kind,
        name=key.name,
        queue=key.queue,
        running=running,
        leases=0 if running is None else running_in(facts, rules).under(key, rules),
        rate=rate,
        starts=0 if rate is None else facts.claims.get(key).used(rate, now),
        free_at=free_at(facts, bounds, now),
    )
