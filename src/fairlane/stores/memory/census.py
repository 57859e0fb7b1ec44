"""Counts that limits ask for. Each is begun by the first who asks, from what is there, and kept up to date from then on: where nobody
sets a limit nobody pays for counting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from fairlane.core.limit import LimitKey

if TYPE_CHECKING:
    from fairlane.stores.memory.facts import Row
    from fairlane.stores.memory.rules import Rules

_FINAL_PLACES = frozenset({"completed", "dead", "cancelled"})

K = TypeVar("K")


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
    """How many leases there are, by everything a limit can be about."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._leases: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        self._types: defaultdict[str, int] = defaultdict(int)
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        queue, _, tenant = row.line
        for key in (("queue", queue, ""), ("tenant", tenant, ""), ("tenant", tenant, queue)):
            self._leases[key] += 1
        self._types[row.type] += 1

    def remove(self, row: Row) -> None:
        queue, _, tenant = row.line
        for key in (("queue", queue, ""), ("tenant", tenant, ""), ("tenant", tenant, queue)):
            _take_one(self._leases, key)
        _take_one(self._types, row.type)

    def under(self, key: LimitKey, rules: Rules) -> int:
        if key.kind == "type":
            return self._types.get(key.name, 0)
        if key.kind == "named":
            return sum(self._types.get(task, 0) for task in set(rules.in_force.types_of(key)))
        return self._leases.get(key, 0)


def _take_one(counts: dict[K, int], key: K) -> None:
    """One less; what is down to nothing is forgotten."""
    if counts[key] == 1:
        del counts[key]
    else:
        counts[key] -= 1
