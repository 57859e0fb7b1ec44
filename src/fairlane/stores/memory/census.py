"""Counts that limits ask for. Each is begun by the first who asks, from what is there, and kept up to date from then on: where nobody
sets a limit nobody pays for counting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, TypeVar

from fairlane.core.limits import LimitKey

if TYPE_CHECKING:
    from fairlane.stores.memory.facts import Row
    from fairlane.stores.memory.rules import Rules

_FINAL_PLACES = frozenset({"completed", "dead", "cancelled"})

K = TypeVar("K")
Aspect = Literal["queue", "tenant", "tenant in queue", "type"]


class Census:
    """How many jobs a tenant has, and how many unfinished ones in each queue."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.jobs: defaultdict[str, int] = defaultdict(int)
        self._unfinished: defaultdict[tuple[str, str], int] = defaultdict(int)
        for row in rows:
            self.add(row)
            if row.place in _FINAL_PLACES:
                self.finish(row)

    def unfinished(self, queue: str, tenant: str) -> int:
        return self._unfinished.get((queue, tenant), 0)

    def add(self, row: Row) -> None:
        self.jobs[row.spec.tenant] += 1
        self._unfinished[row.spec.queue, row.spec.tenant] += 1

    def finish(self, row: Row) -> None:
        _take_one(self._unfinished, (row.spec.queue, row.spec.tenant))

    def remove(self, row: Row) -> None:
        _take_one(self.jobs, row.spec.tenant)


class Running:
    """How many leases there are: by queue, tenant, tenant in a queue, or task, each only if some limit is about it."""

    def __init__(self) -> None:
        self._counts: dict[Aspect, defaultdict[str | tuple[str, str], int]] = {}

    def count_by(self, aspects: Iterable[Aspect], rows: Callable[[], Iterable[Row]]) -> None:
        """From now on count by these, too, beginning with the leases that are there."""
        for aspect in aspects:
            if aspect not in self._counts:
                counts = self._counts[aspect] = defaultdict(int)
                for row in rows():
                    counts[_of(row, aspect)] += 1

    def add(self, row: Row) -> None:
        for aspect, counts in self._counts.items():
            counts[_of(row, aspect)] += 1

    def remove(self, row: Row) -> None:
        for aspect, counts in self._counts.items():
            _take_one(counts, _of(row, aspect))

    def under(self, key: LimitKey, rules: Rules) -> int:
        counts = self._counts[aspect_of(key)]
        if key.kind == "named":
            return sum(counts.get(task, 0) for task in set(rules.in_force.types_of(key)))
        return counts.get((key.name, key.queue) if key.queue else key.name, 0)


def aspect_of(key: LimitKey) -> Aspect:
    """What has to be counted for a limit; a named one is over tasks."""
    if key.kind == "tenant":
        return "tenant in queue" if key.queue else "tenant"
    return "queue" if key.kind == "queue" else "type"


def _of(row: Row, aspect: Aspect) -> str | tuple[str, str]:
    if aspect == "type":
        return row.type
    queue, _, tenant = row.line
    if aspect == "tenant":
        return tenant
    return queue if aspect == "queue" else (tenant, queue)


def _take_one(counts: dict[K, int], key: K) -> None:
    """One less; what is down to nothing is forgotten."""
    if counts[key] == 1:
        del counts[key]
    else:
        counts[key] -= 1
