"""Counts a tenant's jobs in one queue, and releases held ones when there is room."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane.core.ops import Unheld, Unhold
from fairlane.stores.sqlite.facts import hold_at_keys
from fairlane.stores.sqlite.job_keys.places import look_again
from fairlane.stores.sqlite.limits.in_force import applicable_limits
from fairlane.stores.sqlite.limits.room import count_leases_from_now_on
from fairlane.stores.sqlite.listener import addresses_to_wake
from fairlane.stores.sqlite.transaction import Transaction, as_list, change

_NEXT_QUEUE = "select min(queue) from fairlane_held where queue > ?"
_NEXT_TENANT = "select min(tenant) from fairlane_held where queue = ? and tenant > ?"
_FIRST = """
select h.seq, j.due_at <= ?1 or j.due_at <= j.enqueued_at
from fairlane_held h cross join fairlane_job j on j.seq = h.seq
where h.queue = ?2 and h.tenant = ?3 order by h.seq limit ?4
"""
_UNHOLD = "delete from fairlane_held where seq in (select value from json_each(?))"
_READY = """
insert into fairlane_ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect)
select j.seq, j.queue, j.band, j.tenant, j.rank, min(j.due_at, ?2), j.type, 0, 0, 0, 0
from json_each(?1) c cross join fairlane_job j on j.seq = c.value
"""
_SCHEDULED = """
insert into fairlane_scheduled (seq, queue, tenant, failed, due_at, attempt, attempts, crashes, suspect)
select j.seq, j.queue, j.tenant, 0, j.due_at, 0, 0, 0, 0
from json_each(?) c cross join fairlane_job j on j.seq = c.value
"""

# Band by band, because the line of a tenant is found by its band; a queue has few.
_PRESENT = """
with recursive bands(band) as (
  select min(band) from fairlane_ready where queue = ?1
  union all
  select (select min(band) from fairlane_ready where queue = ?1 and band > bands.band) from bands
    where bands.band is not null)
select count(*) from (
  select 1 from bands cross join fairlane_ready r on r.queue = ?1 and r.band = bands.band and r.tenant = ?2
  union all
  select 1 from fairlane_scheduled where queue = ?1 and failed in (0, 1) and tenant = ?2
  union all
  select 1 from fairlane_lease where queue = ?1 and tenant = ?2
  union all
  select 1 from fairlane_job_key where state = 'held' and queue = ?1 and tenant = ?2
  {held}
  limit ?3)
"""
_WAITING = _PRESENT.format(held="union all select 1 from fairlane_held where queue = ?1 and tenant = ?2")
_NOT_HELD = _PRESENT.format(held="")


@change
def unhold(tx: Transaction, op: Unhold) -> Unheld:
    applicable = applicable_limits(tx, op.limits)
    look_again(tx)
    left = max(op.limit, 0)
    queues: set[str] = set()
    for queue, tenant in _lines(tx):
        most = None if applicable is None else applicable.force.terms(tenant, queue).waiting
        room = left if most is None else min(left, most - count_waiting(tx, tenant, queue, most, held=False))
        freed = tx.db.execute(_FIRST, (tx.now, queue, tenant, room)) if room > 0 else []
        due = [seq for seq, is_due in freed if is_due]
        tx.db.execute(_READY, (as_list(due), tx.now))
        hold_at_keys(tx, due)
        tx.db.execute(_SCHEDULED, (as_list([seq for seq, is_due in freed if not is_due]),))
        tx.db.execute(_UNHOLD, (as_list([seq for seq, _ in freed]),))
        if due:
            queues.add(queue)
        left -= len(freed)
        if left <= 0:
            break
    if queues:
        tx.wakes.extend(addresses_to_wake(tx, "if_waiting", queues))
    return Unheld(count=max(op.limit, 0) - left)


def _lines(tx: Transaction) -> Iterator[tuple[str, str]]:
    """Queues and tenants with held jobs, each found by a seek behind the one before."""
    queue = ""
    while (queue := tx.db.execute(_NEXT_QUEUE, (queue,))[0][0]) is not None:
        tenant = ""
        while (tenant := tx.db.execute(_NEXT_TENANT, (queue, tenant))[0][0]) is not None:
            yield queue, tenant


def count_waiting(tx: Transaction, tenant: str, queue: str, most: int, *, held: bool = True) -> int:
    """Jobs of a tenant in a queue that are ready, scheduled, leased or (if asked for) held, up to `most`."""
    count_leases_from_now_on(tx)
    [(number,)] = tx.db.execute(_WAITING if held else _NOT_HELD, (queue, tenant, max(most, 0)))
    return int(number)
