"""Tenants: their weight and tier, and how many jobs they have."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.core.ids import SYSTEM_TENANT
from fairlane.core.ops import (
    MAX_PAGE,
    TENANT_COUNT_CAP,
    AddTenants,
    GetTenant,
    HasTenants,
    PageTenants,
    ReadWeights,
    SetTenant,
    TenantPage,
    TenantRecord,
    TenantsAdded,
    Weights,
)
from fairlane.stores.instants import maybe_from_us
from fairlane.stores.sqlite.audit import write_audit
from fairlane.stores.sqlite.driver import Row
from fairlane.stores.sqlite.limits.in_force import read_kept
from fairlane.stores.sqlite.transaction import Transaction, as_list, change, reading

_FIND = "select name, weight, tier, seen_at from fairlane_tenant"
_SET = """
insert into fairlane_tenant (name, weight, tier, seen_at) values (?, ?, ?, ?)
on conflict (name) do update set weight = excluded.weight, tier = excluded.tier
"""
_ADD = "insert or ignore into fairlane_tenant select value, 1.0, null, ? from json_each(?) returning 1"
# From name to name by seeks: a tenant costs the same with one job as with a million.
_WITH_JOBS = """
with recursive name(tenant) as (
  select min(tenant) from fairlane_job where tenant > ?1
  union all
  select (select min(tenant) from fairlane_job where tenant > name.tenant) from name where name.tenant is not null)
select tenant from name where tenant is not null limit ?2
"""
_ENDS = """
select min(name) from fairlane_tenant union all select max(name) from fairlane_tenant
union all select min(tenant) from fairlane_job union all select max(tenant) from fairlane_job
"""
_BANDS = """
with recursive
  queues(queue) as (
    select min(queue) from fairlane_ready
    union all
    select (select min(queue) from fairlane_ready where queue > queues.queue)
    from queues where queues.queue is not null),
  bands(queue, band) as (
    select queue, (select min(band) from fairlane_ready r where r.queue = queues.queue) from queues
      where queue is not null
    union all
    select queue, (select min(band) from fairlane_ready r where r.queue = bands.queue and r.band > bands.band)
    from bands where bands.band is not null)
select queue, band from bands where band is not null
"""
_NEXT_QUEUE = {
    "scheduled": "select min(queue) from fairlane_scheduled where queue > ?",
    "held": "select min(queue) from fairlane_held where queue > ?",
    "job_key": "select min(queue) from fairlane_job_key where state = 'held' and queue > ?",
}
_READY = """
select count(*) from (select 1 from json_each(?) b cross join fairlane_ready r
  on r.queue = b.value ->> 0 and r.band = b.value ->> 1 and r.tenant = ? limit ?)
"""
_SCHEDULED = """
select count(*) from (select 1 from json_each(?) q cross join fairlane_scheduled s
  on s.queue = q.value and s.failed in (0, 1) and s.tenant = ? limit ?)
"""
_HELD = """
select count(*) from (select 1 from json_each(?) q cross join fairlane_held h on h.queue = q.value and h.tenant = ?
  limit ?)
"""
_HELD_AT_KEYS = """
select count(*) from (select 1 from json_each(?) q cross join fairlane_job_key k
  on k.state = 'held' and k.queue = q.value and k.tenant = ? limit ?)
"""
_LEASED = """
select j.tenant, count(*) from fairlane_lease l cross join fairlane_job j on j.seq = l.seq
where j.tenant in (select value from json_each(?)) group by j.tenant
"""
_PAUSED = "select name from fairlane_pause where kind = 'tenant' and name in (select value from json_each(?))"


@change
def set_tenant(tx: Transaction, op: SetTenant) -> TenantRecord:
    [(_, weight, tier, seen_at)] = _rows(tx, op.name)
    after = (weight if op.weight is None else op.weight, tier if op.tier is None else op.tier)
    if seen_at is None or after != (weight, tier):
        tx.db.execute(_SET, (op.name, *after, tx.now))
    if after != (weight, tier):
        facts: list[dict[str, object]] = [{"weight": w, "tier": t} for w, t in ((weight, tier), after)]
        write_audit(tx, op, "tenant_set", op.name, f"tenant:{op.name}", *facts)
    return _records(tx, _rows(tx, op.name))[0]


@reading
def get_tenant(tx: Transaction, op: GetTenant) -> TenantRecord | None:
    return _records(tx, _rows(tx, op.name))[0] if op.scope.admits(op.name) else None


@reading
def page_tenants(tx: Transaction, op: PageTenants) -> TenantPage:
    limit = max(1, min(op.limit, MAX_PAGE))
    where, params = "name > ?", [op.after]
    if op.scope.tenant is not None:
        where, params = f"{where} and name = ?", [*params, op.scope.tenant]
    if op.tier is not None:
        where, params = f"{where} and tier = ?", [*params, op.tier]
    rows = tx.db.execute(f"{_FIND} where {where} order by name limit ?", (*params, limit + 1))
    following = rows[limit - 1][0] if len(rows) > limit else None
    return TenantPage(tenants=tuple(_records(tx, rows[:limit])), next=following)


@reading
def has_tenants(tx: Transaction, op: HasTenants) -> bool:
    return any(name not in (None, SYSTEM_TENANT) for (name,) in tx.db.execute(_ENDS))


@change
def add_tenants(tx: Transaction, op: AddTenants) -> TenantsAdded:
    limit = max(op.limit, 0)
    names = [name for (name,) in tx.db.execute(_WITH_JOBS, (op.after, limit + 1))]
    added = tx.db.execute(_ADD, (tx.now, as_list(names[:limit])))
    return TenantsAdded(added=len(added), next=names[limit - 1] if len(names) > limit > 0 else None)


@reading
def read_weights(tx: Transaction, op: ReadWeights) -> Weights:
    return Weights(weights=dict(tx.db.execute("select name, weight from fairlane_tenant where weight <> 1")))


def _rows(tx: Transaction, name: str) -> list[Row]:
    return tx.db.execute(f"{_FIND} where name = ?", (name,)) or [(name, 1.0, None, None)]


def _records(tx: Transaction, rows: Sequence[Row]) -> list[TenantRecord]:
    names = as_list([row[0] for row in rows])
    bands = as_list([list(row) for row in tx.db.execute(_BANDS)])
    scheduled, held, at_keys = (as_list(_queues(tx, table)) for table in _NEXT_QUEUE)
    leased: dict[str, int] = dict(tx.db.execute(_LEASED, (names,)))
    paused = {name for (name,) in tx.db.execute(_PAUSED, (names,))}

    def count(sql: str, places: str, name: str) -> int:
        return int(tx.db.execute(sql, (places, name, TENANT_COUNT_CAP))[0][0])

    return [
        TenantRecord(
            name=name,
            weight=weight,
            tier=tier,
            seen_at=maybe_from_us(seen_at),
            paused=name in paused,
            limits=read_kept(tx, "kind = 'tenant' and name = ?", (name,)),
            ready=count(_READY, bands, name),
            scheduled=count(_SCHEDULED, scheduled, name),
            held=min(count(_HELD, held, name) + count(_HELD_AT_KEYS, at_keys, name), TENANT_COUNT_CAP),
            leased=min(leased.get(name, 0), TENANT_COUNT_CAP),
        )
        for name, weight, tier, seen_at in rows
    ]


def _queues(tx: Transaction, table: str) -> list[str]:
    names: list[str] = []
    last = ""
    while (last := tx.db.execute(_NEXT_QUEUE[table], (last,))[0][0]) is not None:
        names.append(last)
    return names
