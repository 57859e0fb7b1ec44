"""How much of what is allowed is left: counted once in a Turn, and taken from with each claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain

from fairlane.core.job import Lease
from fairlane.core.limits import Limit, LimitKey
from fairlane.stores.memory.census import Running
from fairlane.stores.memory.facts import Facts, Row, Try
from fairlane.stores.memory.rates import Counted
from fairlane.stores.memory.rules import Bounds, Rules

_GIVERS = 16
"""Programs keep their limits in a tuple or two and give these again and again."""


def rules_for(facts: Facts, given: tuple[Limit, ...]) -> Rules:
    """The limits given and kept, put together again only when either has changed."""
    rules = facts.rules.get(id(given))
    if rules is None:
        if len(facts.rules) >= _GIVERS:
            facts.rules.clear()
        rules = facts.rules[id(given)] = Rules(given, facts.limits.values())
    return rules


def room_for(facts: Facts, given: tuple[Limit, ...], now: datetime) -> Room | None:
    """None: nothing holds claims back."""
    rules = rules_for(facts, given)
    return Room(facts, rules, now) if rules.concern_claims(now) else None


def running_in(facts: Facts, rules: Rules) -> Running:
    """The count of leases, by all that these limits are about."""
    if facts.running is None:
        facts.running = Running()
    facts.running.count_by(
        rules.counted_by, lambda: chain(*(worker.leases.values() for worker in facts.workers.values()))
    )
    return facts.running


def free_at(facts: Facts, bounds: Bounds, now: datetime) -> datetime | None:
    """When rate and pause let the next claim through; None: now, as far as they know."""
    at = None if bounds.rate is None else facts.claims.get(bounds.key).free_at(bounds.rate, now)
    until = bounds.paused_until
    return until if until is not None and until > now and (at is None or until > at) else at


class Cell:
    """What is left under one key, and what this Turn has claimed of it."""

    __slots__ = ("bounds", "claimed", "left")

    def __init__(self, bounds: Bounds, left: int) -> None:
        self.bounds, self.left = bounds, left
        self.claimed: list[Counted] = []


Cells = tuple[Cell, ...]


class Room:
    """What is left under every key a Turn meets."""

    def __init__(self, facts: Facts, rules: Rules, now: datetime) -> None:
        self._facts, self._rules, self._now = facts, rules, now
        self._cells: dict[LimitKey, Cell] = {}
        self._lines: dict[tuple[str, str], Cells] = {}
        self._types: dict[str, Cells] = {}
        self._shut: set[Cell] = set()
        """Those that held something back."""
        self._running = running_in(facts, rules) if rules.counted_by else None

    def of_line(self, queue: str, tenant: str) -> Cells:
        cells = self._lines.get((queue, tenant))
        if cells is None:
            cells = self._lines[queue, tenant] = tuple(map(self._cell, self._rules.of_line(queue, tenant)))
        return cells

    def of_type(self, task: str) -> Cells:
        cells = self._types.get(task)
        if cells is None:
            cells = self._types[task] = tuple(map(self._cell, self._rules.of_type(task)))
        return cells

    def is_open(self, cells: Cells) -> bool:
        for cell in cells:
            if cell.left <= 0:
                self._shut.add(cell)
                return False
        return True

    def use(self, row: Row, lease: Try, cells: Cells) -> None:
        """Count a claim."""
        for cell in cells:
            cell.left -= 1
            bounds = cell.bounds
            if bounds.running is not None:
                lease.limited = True
            if bounds.rate is not None:
                cell.claimed.append((self._now, row.seq, lease.attempt))

    def is_taken_again(self, freed: Sequence[Row], leases: Sequence[Lease]) -> bool:
        """Whether as many were claimed under each limit on running as have ended under it. Not, where that limit is not known to this Turn."""
        ended = [tuple(self._counted_by(row.spec.queue, row.spec.tenant, row.type)) for row in freed]
        if not all(ended):
            return False
        left = Counter(chain.from_iterable(ended))
        left.subtract(key for lease in leases for key in self._counted_by(lease.queue, lease.tenant, lease.type))
        return all(places <= 0 for places in left.values())

    def _counted_by(self, queue: str, tenant: str, task: str) -> Iterator[LimitKey]:
        bounds = (*self._rules.of_line(queue, tenant), *self._rules.of_type(task))
        return (each.key for each in bounds if each.running is not None)

    def close(self) -> datetime | None:
        """Write down what rates have to know; returns when the first of those that held something back lets the next one
        through, as far as a clock can tell."""
        for cell in self._cells.values():
            if cell.claimed and cell.bounds.rate is not None:
                self._facts.claims.open(cell.bounds.key, self._now).add(cell.bounds.rate, *cell.claimed)
        instants = (free_at(self._facts, cell.bounds, self._now) for cell in self._shut)
        return min((at for at in instants if at is not None), default=None)

    def _cell(self, bounds: Bounds) -> Cell:
        cell = self._cells.get(bounds.key)
        if cell is None:
            cell = self._cells[bounds.key] = Cell(bounds, self._left(bounds))
        return cell

    def _left(self, bounds: Bounds) -> int:
        key, running, rate, paused_until = bounds
        if paused_until is not None and paused_until > self._now:
            return 0
        left = _ENDLESS
        if running is not None and self._running is not None:
            left = running - self._running.under(key, self._rules)
        if rate is not None:
            left = min(left, rate.count - self._facts.claims.get(key).used(rate, self._now))
        return left


_ENDLESS = 1 << 62
"""Left where only a pause was set, and it is over."""
