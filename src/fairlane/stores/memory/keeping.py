"""Health, retention, purge."""

from __future__ import annotations

import platform
from datetime import datetime
from heapq import heappop

from fairlane.core.ops import Check, Health, Purge, Purged, Retain, Retained
from fairlane.stores.memory.facts import Facts
from fairlane.stores.memory.moving import remove

_NOT_DURABLE = "jobs live in this process alone and end with it: use sqlite:/// or postgresql:// to keep them"


def check(facts: Facts, op: Check, now: datetime) -> Health:
    server = f"Python {platform.python_version()}"
    return Health(now=now, store="memory", server=server, schema_version=0, durable=False, degraded=(_NOT_DURABLE,))


def retain(facts: Facts, op: Retain, now: datetime) -> Retained:
    removed = 0
    if op.finished_before is not None:
        while removed < op.limit and facts.finished and facts.finished[0][0] < op.finished_before:
            remove(facts, facts.rows[heappop(facts.finished)[1]])
            removed += 1
    if op.closed_before is not None:
        while removed < op.limit and facts.closed and facts.closed[0][0] < op.closed_before:
            closed_at, seq = heappop(facts.closed)
            row = facts.letters.get(seq)
            if row is not None and row.letter is not None and row.letter.closed_at == closed_at:
                remove(facts, row)
                removed += 1
    if op.stats_before is not None:
        for key in [key for key in facts.stats if key[0] < op.stats_before]:
            del facts.stats[key]
    return Retained(jobs=removed)


def purge(facts: Facts, op: Purge, now: datetime) -> Purged:
    count = len(facts.rows)
    facts.clear()
    return Purged(jobs=count)
