"""Aging: jobs that have been ready for long move up in their line."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

from fairlane.core.ops import Age, Aged
from fairlane.errors import StoreRefused
from fairlane.stores.memory.facts import Facts, Row
from fairlane.stores.memory.moments import earlier

_SHORTEST = timedelta(microseconds=1)


def age(facts: Facts, op: Age, now: datetime) -> Aged:
    every = _span(op.every_s)
    moves = list(islice(_due_to_move(facts, op.queue, every, now), max(op.limit, 0)))
    for row, band, rank in moves:
        queue, _, tenant = left = row.line
        facts.ready.remove(row)
        facts.ready.drop_if_empty(left)
        row.line, row.rank = (queue, band, tenant), rank
        facts.ready.add(row)
    return Aged(count=len(moves))


def _span(seconds: float) -> timedelta:
    try:
        span = timedelta(seconds=seconds)
    except OverflowError:
        span = timedelta.max if seconds > 0 else timedelta.min
    except (TypeError, ValueError):
        span = timedelta.min
    if span < _SHORTEST:
        raise StoreRefused("memory", f"every_s = {seconds!r}: more than 0 seconds are expected; nothing was changed")
    return span


def _due_to_move(facts: Facts, queue: str, every: timedelta, now: datetime) -> Iterator[tuple[Row, int, int]]:
    """Each row that has earned a better place, with its new band and rank, in the order of band, tenant, rank, due, seq."""
    bands, until = facts.ready.tenants.get(queue, {}), earlier(now, every.total_seconds())
    for band in sorted(bands):
        for tenant in bands[band]:
            for rank, due_at, _, row in facts.ready.lines[queue, band, tenant].due_before(until):
                reached = max(row.spec.priority - (now - due_at) // every, 0)
                if row.spec.priority_scope == "queue":
                    if reached < band:
                        yield row, reached, rank
                elif reached < rank:
                    yield row, band, reached
