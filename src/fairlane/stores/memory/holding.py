"""Letting held jobs go on where their tenant has room again."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

from fairlane.core.ops import Unheld, Unhold
from fairlane.stores.memory.admitting import census_of
from fairlane.stores.memory.facts import Facts
from fairlane.stores.memory.moving import make_ready, schedule, stop_waiting
from fairlane.stores.memory.room import rules_for


def unhold(facts: Facts, op: Unhold, now: datetime) -> Unheld:
    if not facts.held.count:
        return Unheld(count=0)
    in_force, census, left = rules_for(facts, op.limits).in_force, census_of(facts), max(op.limit, 0)
    for queue, tenant in sorted(facts.held.lines):
        held = facts.held.lines[queue, tenant]
        waiting, room = in_force.terms(tenant, queue).waiting, left
        if waiting is not None:
            room = min(left, waiting - (census.unfinished(queue, tenant) - len(held)))
        for row in list(islice(held.values(), max(room, 0))):
            stop_waiting(facts, row)
            if row.due_at <= now:
                make_ready(facts, row)
                facts.wakes = True
            else:
                schedule(facts, row, row.due_at, awaits_retry=False)
            left -= 1
    return Unheld(count=max(op.limit, 0) - left)
