"""What limits leave to be claimed, counting what this Turn has claimed before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fairlane.core.limit import LimitKey, Rate
from fairlane.stores.sqlite import rates
from fairlane.stores.sqlite.counted import leases_under
from fairlane.stores.sqlite.heeding import Bound, Heeded
from fairlane.stores.sqlite.transaction import Transaction, as_list

ENDLESS = 1 << 62

_RATED = "update fairlane_lease set rated = ? where seq in (select value from json_each(?))"


class Room:
    """Each key is counted when it is first asked for, and from then on by what is claimed under it."""

    def __init__(self, tx: Transaction, heeded: Heeded) -> None:
        self._tx, self._heeded = tx, heeded
        self._left: dict[LimitKey, int] = {}
        self._rated: dict[tuple[LimitKey, ...], list[int]] = {}
        self._rates: dict[LimitKey, Rate] = {}
        self._held_back: dict[LimitKey, Bound] = {}

    def in_line(self, queue: str, tenant: str) -> int:
        """How many jobs of this tenant in this queue may be claimed, whatever their types."""
        return self._least(self._heeded.of_line(queue, tenant))

    def in_queue(self, queue: str) -> int:
        return self._least(bound for bound in self._heeded.of_line(queue, "") if bound.key.kind == "queue")

    def has_for(self, task: str) -> bool:
        return self._least(self._heeded.of_task(task)) > 0

    def claim(self, queue: str, tenant: str, task: str, seq: int) -> None:
        rated = []
        for bound in (*self._heeded.of_line(queue, tenant), *self._heeded.of_task(task)):
            self._left[bound.key] -= 1
            if bound.rate is not None:
                self._rates[bound.key] = bound.rate
                rated.append(bound.key)
        if rated:
            self._rated.setdefault(tuple(rated), []).append(seq)

    def write(self) -> None:
        """Count what one Want has claimed against its rates, once it is leased."""
        uses: Counter[LimitKey] = Counter()
        for keys, seqs in self._rated.items():
            self._tx.db.execute(_RATED, (as_list(keys), as_list(seqs)))
            uses.update(dict.fromkeys(keys, len(seqs)))
        rates.use(self._tx, ((key, self._rates[key], number) for key, number in uses.items()))
        self._rated.clear()

    def free_at(self) -> int | None:
        """When a rate or a pause that held something back lets the next one through."""
        instants = []
        for bound in self._held_back.values():
            if bound.paused_until > self._tx.now:
                instants.append(bound.paused_until)
            elif bound.rate is not None and (at := rates.free_at(self._tx, bound.key, bound.rate)) is not None:
                instants.append(at)
        return min(instants, default=None)

    def _least(self, bounds: Iterable[Bound]) -> int:
        least = ENDLESS
        for bound in bounds:
            left = self._left.get(bound.key)
            if left is None:
                left = self._left[bound.key] = self._count(bound)
            if left <= 0:
                self._held_back[bound.key] = bound
            least = min(least, left)
        return least

    def _count(self, bound: Bound) -> int:
        if bound.paused_until > self._tx.now:
            return 0
        left = ENDLESS
        if bound.running is not None:
            left = bound.running - leases_under(self._tx, bound.key, bound.types, bound.running)
        if bound.rate is not None and left > 0:
            left = min(left, bound.rate.count - rates.used(self._tx, bound.key, bound.rate, bound.rate.count))
        return left
