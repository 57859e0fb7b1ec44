"""What limits leave to be claimed, counting what this Turn has claimed before, and how leases are counted under limits.

A lease carries what it is counted by only once a limit has asked for it: the first to ask writes it to the leases that
are there and says so in `fairlane_meta`, and every claim from then on writes it too. Counts stop at what the limit
allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fairlane.core.limits import LimitKey, Rate
from fairlane.stores.sqlite.limits import rates
from fairlane.stores.sqlite.limits.in_force import ApplicableLimits, KeyLimit
from fairlane.stores.sqlite.transaction import Transaction, as_list

_IS_SAID = "select value from fairlane_meta where name = 'leases_counted'"
_SAY = "insert or replace into fairlane_meta values ('leases_counted', 1)"
_FILL = """
update fairlane_lease set (queue, tenant, type) =
  (select j.queue, j.tenant, j.type from fairlane_job j where j.seq = fairlane_lease.seq)
"""
_FREED = """
select distinct queue, tenant, type from fairlane_lease
where seq in (select value from json_each(?)) and queue is not null
"""
_COUNTED = "fairlane_lease x"
_UNCOUNTED = "fairlane_lease l cross join fairlane_job x on x.seq = l.seq"


def are_leases_counted(tx: Transaction) -> bool:
    if tx.leases_counted is None:
        tx.leases_counted = bool(tx.db.execute(_IS_SAID))
    return tx.leases_counted


def count_leases_from_now_on(tx: Transaction) -> None:
    if not are_leases_counted(tx):
        tx.db.execute(_FILL)
        tx.db.execute(_SAY)
        tx.leases_counted = True


def note_freed(tx: Transaction, seqs: str) -> None:
    """Remember what leases that are about to end were counted under."""
    if are_leases_counted(tx):
        tx.freed.extend(tx.db.execute(_FREED, (seqs,)))


def leases_under(tx: Transaction, key: LimitKey, types: tuple[str, ...], most: int) -> int:
    """Live leases counted under a key, up to `most`; `types`: the tasks of a named limit."""
    source = _COUNTED if are_leases_counted(tx) else _UNCOUNTED
    if key.kind == "named":
        return _count(tx, f"json_each(?) t cross join {source} where x.type = t.value", (as_list(types),), most)
    if key.kind == "tenant" and key.queue:
        return _count(tx, f"{source} where x.queue = ? and x.tenant = ?", (key.queue, key.name), most)
    return _count(tx, f"{source} where x.{key.kind} = ?", (key.name,), most)


def leases_of_tenants(tx: Transaction, tenants: Sequence[str], queue: str, most: int) -> dict[str, int]:
    """The same for many tenants, in one queue or (empty) over all; counted leases only."""
    where = "x.queue = ?3 and x.tenant = n.value" if queue else "?3 = '' and x.tenant = n.value"
    sql = (
        f"select n.value, (select count(*) from (select 1 from {_COUNTED} where {where} limit ?2)) from json_each(?1) n"  # noqa: S608
    )
    return dict(tx.db.execute(sql, (as_list(tenants), most, queue)))


def _count(tx: Transaction, rows: str, params: tuple[object, ...], most: int) -> int:
    [(number,)] = tx.db.execute(f"select count(*) from (select 1 from {rows} limit ?)", (*params, most))  # noqa: S608
    return int(number)


ENDLESS = 1 << 62


class Room:
    """Each key is counted when it is first asked for, and from then on by what is claimed under it."""

    def __init__(self, tx: Transaction, applicable: ApplicableLimits) -> None:
        self._tx, self._applicable = tx, applicable
        self._left: dict[LimitKey, int] = {}
        self._rated: dict[int, list[LimitKey]] = {}
        self._rates: dict[LimitKey, Rate] = {}
        self._held_back: dict[LimitKey, KeyLimit] = {}
        self._full_tasks: set[str] = set()
        """They stay so: room does not grow within a Turn."""
        self._is_short = False
        self.slots_left = ENDLESS
        """How many more jobs under a limit the Want at hand may have."""

    def in_line(self, queue: str, tenant: str) -> int:
        """How many jobs of this tenant in this queue may be claimed, whatever their types."""
        return self._least(self._applicable.of_line(queue, tenant))

    def in_queue(self, queue: str) -> int:
        return self._least(bound for bound in self._applicable.of_line(queue, "") if bound.key.kind == "queue")

    def has_for(self, task: str) -> bool:
        if task in self._full_tasks:
            return False
        if self._least(self._applicable.of_task(task)) > 0:
            return True
        self._is_short = True
        if self.slots_left > 0:
            self._full_tasks.add(task)
        return False

    @property
    def is_short_for_tasks(self) -> bool:
        """Some task was found without room."""
        return self._is_short

    def count_tenants(self, queue: str, tenants: Sequence[str]) -> None:
        """Count many tenants in few statements, before each is asked for."""
        alike: dict[tuple[str, int | None, Rate | None], list[KeyLimit]] = {}
        for tenant in tenants:
            for bound in self._applicable.of_line(queue, tenant):
                if bound.key.kind == "tenant" and bound.key not in self._left and bound.paused_until <= self._tx.now:
                    alike.setdefault((bound.key.queue, bound.running, bound.rate), []).append(bound)
        for (where, running, rate), bounds in alike.items():
            names = [bound.key.name for bound in bounds]
            leases = {} if running is None else leases_of_tenants(self._tx, names, where, running)
            used = {} if rate is None else rates.used_by_tenants(self._tx, names, where, rate)
            for bound in bounds:
                left = ENDLESS if running is None else running - leases[bound.key.name]
                self._left[bound.key] = left if rate is None else min(left, rate.count - used[bound.key.name])

    def claim(self, queue: str, tenant: str, task: str, seq: int) -> None:
        for bound in self._applicable.of_job(queue, tenant, task):
            self._left[bound.key] -= 1
            if bound.rate is not None:
                self._rates[bound.key] = bound.rate
                self._rated.setdefault(seq, []).append(bound.key)

    def rated(self, seqs: Sequence[int]) -> str | None:
        """For each of the claimed the keys whose rate counts it, as JSON; None: no rate counts any."""
        if not self._rated:
            return None
        return as_list([as_list(self._rated[seq]) if seq in self._rated else None for seq in seqs])

    def use(self) -> None:
        """Count what one Want has claimed against its rates."""
        uses = Counter(key for keys in self._rated.values() for key in keys)
        rates.use(self._tx, [(key, self._rates[key], number) for key, number in uses.items()])
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

    def _least(self, bounds: Iterable[KeyLimit]) -> int:
        least = ENDLESS
        for bound in bounds:
            left = self._left.get(bound.key)
            if left is None:
                left = self._left[bound.key] = self._count(bound)
            if left <= 0:
                self._held_back[bound.key] = bound
            is_limit = bound.running is not None or bound.rate is not None
            least = min(least, left, self.slots_left if is_limit else ENDLESS)
        return least

    def _count(self, bound: KeyLimit) -> int:
        if bound.paused_until > self._tx.now:
            return 0
        left = ENDLESS
        if bound.running is not None:
            left = bound.running - leases_under(self._tx, bound.key, bound.types, bound.running)
        if bound.rate is not None and left > 0:
            left = min(left, bound.rate.count - rates.used(self._tx, bound.key, bound.rate, bound.rate.count))
        return left
