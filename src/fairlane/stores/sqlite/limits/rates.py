"""What has been used of a rate: claims, and tokens for enqueueing, by their instant.

Of a job's key the kind is `key`, the name its tenant, and the key stands where others have their queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from fairlane.core.limits import Rate
from fairlane.core.ops import TakeTokens, TokensTaken
from fairlane.stores.instants import after, before, from_us
from fairlane.stores.sqlite.limits.in_force import applicable_limits
from fairlane.stores.sqlite.transaction import Transaction, as_list, change

RateKey = tuple[str, str, str]
"""Kind (`enqueue` and `key` too), name, queue."""

RateUse = tuple[RateKey, Rate, int]
"""A number of uses against the rate of a key."""

# No further back than the uses that fill the rate: each counts at least one.
_USED = """
select coalesce(sum(number), 0) from
  (select number from fairlane_rate_use where kind = ? and name = ? and queue = ? and at > ? order by at desc limit ?)
"""
_IN_PERIOD = "select at, number from fairlane_rate_use where kind = ? and name = ? and queue = ? and at > ?"
_USED_BY_EACH = """
select n.value, coalesce((select sum(number) from (
  select number from fairlane_rate_use where kind = ?1 and name = n.value and queue = ?2 and at > ?3 order by at desc
    limit ?4)), 0)
from json_each(?5) n
"""
# Kind, name, queue, number, and until when earlier uses are over.
_USE = """
insert into fairlane_rate_use (kind, name, queue, at, number)
select u.value ->> 0, u.value ->> 1, u.value ->> 2, ?2, u.value ->> 3 from json_each(?1) u where true
on conflict (kind, name, queue, at) do update set number = number + excluded.number
"""
_FORGET = """
delete from fairlane_rate_use where (kind, name, queue, at) in (
  select r.kind, r.name, r.queue, r.at from json_each(?) u cross join fairlane_rate_use r
  on r.kind = u.value ->> 0 and r.name = u.value ->> 1 and r.queue = u.value ->> 2 and r.at <= u.value ->> 4)
"""
_UNUSE = "update fairlane_rate_use set number = number - 1 where kind = ? and name = ? and queue = ? and at = ?"
_DROP_UNUSED = "delete from fairlane_rate_use where kind = ? and name = ? and queue = ? and at = ? and number <= 0"
_RATED = """
select leased_at, rated from fairlane_lease where seq in (select value from json_each(?)) and rated is not null
"""
_KNOCK = """
insert into fairlane_knock (tenant, key, at) values (?, ?, 0) on conflict (key, tenant) do update set at = 0
"""
_keys = msgspec.json.Decoder(list[RateKey]).decode


def used(tx: Transaction, key: RateKey, rate: Rate, most: int) -> int:
    """What counts against the rate now; exact below `most`."""
    [(number,)] = tx.db.execute(_USED, (*key, before(tx.now, rate.period_s), max(most, 0)))
    return int(number)


def used_by_tenants(tx: Transaction, tenants: Sequence[str], queue: str, rate: Rate) -> dict[str, int]:
    """The same for many tenants under one rate, up to its count."""
    since = before(tx.now, rate.period_s)
    return dict(tx.db.execute(_USED_BY_EACH, ("tenant", queue, since, max(rate.count, 0), as_list(tenants))))


def use(tx: Transaction, uses: Iterable[RateUse]) -> None:
    """Count uses of now, and forget those of the same keys that are over."""
    rows = as_list([(*key, number, before(tx.now, rate.period_s)) for key, rate, number in uses])
    tx.db.execute(_FORGET, (rows,))
    tx.db.execute(_USE, (rows, tx.now))


def give_back(tx: Transaction, unstarted: Sequence[int]) -> None:
    """Take claims out of the count whose attempts never started; called while their leases are there."""
    if unstarted:
        for leased_at, rated in tx.db.execute(_RATED, (as_list(unstarted),)):
            uses = [(*key, leased_at) for key in _keys(rated)]
            tx.db.executemany(_UNUSE, uses)
            tx.db.executemany(_DROP_UNUSED, uses)
            knock(tx, [(name, key) for kind, name, key in _keys(rated) if kind == "key"])


def knock(tx: Transaction, keys: Sequence[tuple[str, str]]) -> None:
    """Have the next Turn see who may be let in at keys, each with its tenant before it."""
    tx.db.executemany(_KNOCK, keys)


def free_at(tx: Transaction, key: RateKey, rate: Rate, wanted: int = 1) -> int | None:
    """When `wanted` more fit, if nobody else comes; None: they fit now, or never will."""
    uses = sorted(tx.db.execute(_IN_PERIOD, (*key, before(tx.now, rate.period_s))))
    missing = sum(number for _, number in uses) + wanted - rate.count
    if missing <= 0 or wanted > rate.count:
        return None
    for at, number in uses:
        missing -= number
        if missing <= 0:
            return after(at, rate.period_s)
    return None


@change
def take_tokens(tx: Transaction, op: TakeTokens) -> TokensTaken:
    applicable = applicable_limits(tx, op.limits)
    uses: list[RateUse] = []
    for tenant, count in sorted(op.counts.items()):
        rate = None if applicable is None else applicable.force.enqueue_rate(tenant)
        if rate is None:
            continue
        key = ("enqueue", tenant, "")
        if count + used(tx, key, rate, rate.count) > rate.count:
            at = free_at(tx, key, rate, count)
            return TokensTaken(granted=False, tenant=tenant, rate=rate, retry_at=None if at is None else from_us(at))
        if count > 0:
            uses.append((key, rate, count))
    if uses:
        use(tx, uses)
    return TokensTaken(granted=True)
