"""Counting leases under limits.

A lease carries what it is counted by only once a limit has asked for it: the first to ask writes it to the leases that
are there and says so in `fairlane_meta`, and every claim from then on writes it too. Counts stop at what the limit
allows.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.core.limits import LimitKey
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
        return _count(tx, f"json_each(?) t cross join {source} on x.type = t.value", (as_list(types),), most)
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
