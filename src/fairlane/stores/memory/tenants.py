"""Tenants: who they are, their weights, and how much they have waiting and running."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from heapq import nsmallest
from itertools import islice

from fairlane.core.ops import (
    MAX_PAGE,
    TENANT_COUNT_CAP,
    AddTenants,
    GetTenant,
    PageTenants,
    ReadWeights,
    SetTenant,
    TenantPage,
    TenantRecord,
    TenantsAdded,
    Weights,
)
from fairlane.stores.memory.acting import record_act
from fairlane.stores.memory.admitting import census_of
from fairlane.stores.memory.facts import Facts, Tenant


def set_tenant(facts: Facts, op: SetTenant, now: datetime) -> TenantRecord:
    tenant = facts.tenants.setdefault(op.name, Tenant(now))
    before = _shown(tenant)
    if op.weight is not None:
        tenant.weight = op.weight
    if op.tier is not None:
        tenant.tier = op.tier
    after = _shown(tenant)
    if after != before:
        target = f"tenant:{op.name}"
        record_act(facts, "tenant_set", target, op.name, by=op.by, notes=op.notes, before=before, after=after, now=now)
    return _records(facts, [op.name])[0]


def get_tenant(facts: Facts, op: GetTenant, now: datetime) -> TenantRecord | None:
    return _records(facts, [op.name])[0] if op.scope.admits(op.name) else None


def page_tenants(facts: Facts, op: PageTenants, now: datetime) -> TenantPage:
    limit = max(1, min(op.limit, MAX_PAGE))
    asked_for = (
        name
        for name, tenant in facts.tenants.items()
        if name > op.after and op.scope.admits(name) and op.tier in (None, tenant.tier)
    )
    names = nsmallest(limit + 1, asked_for)
    return TenantPage(tenants=_records(facts, names[:limit]), next=names[limit - 1] if len(names) > limit else None)


def add_tenants(facts: Facts, op: AddTenants, now: datetime) -> TenantsAdded:
    limit = max(op.limit, 1)
    names = nsmallest(limit + 1, (name for name in census_of(facts).jobs if name > op.after))
    unseen = [name for name in islice(names, limit) if name not in facts.tenants]
    for name in unseen:
        facts.tenants[name] = Tenant(now)
    return TenantsAdded(added=len(unseen), next=names[limit - 1] if len(names) > limit else None)


def read_weights(facts: Facts, op: ReadWeights, now: datetime) -> Weights:
    return Weights(weights={name: tenant.weight for name, tenant in facts.tenants.items() if tenant.weight != 1})


def _shown(tenant: Tenant) -> dict[str, float | str | None]:
    return {"weight": tenant.weight, "tier": tenant.tier}


def _records(facts: Facts, names: Collection[str]) -> tuple[TenantRecord, ...]:
    counts = _count(facts, names)
    return tuple(_record(facts, name, counts[name]) for name in names)


def _record(facts: Facts, name: str, counts: _Counts) -> TenantRecord:
    known = facts.tenants.get(name)
    return TenantRecord(
        name=name,
        weight=1.0 if known is None else known.weight,
        tier=None if known is None else known.tier,
        seen_at=None if known is None else known.seen_at,
        paused=name in facts.paused["tenant"],
        limits=tuple(facts.limits[key] for key in sorted(facts.limits) if key[:2] == ("tenant", name)),
        ready=min(counts.ready, TENANT_COUNT_CAP),
        scheduled=min(counts.scheduled, TENANT_COUNT_CAP),
        held=min(counts.held, TENANT_COUNT_CAP),
        leased=min(counts.leased, TENANT_COUNT_CAP),
    )


class _Counts:
    def __init__(self) -> None:
        self.ready = self.scheduled = self.held = self.leased = 0


def _count(facts: Facts, names: Collection[str]) -> dict[str, _Counts]:
    """Every one's jobs, in one pass over those that wait or run."""
    counts = {name: _Counts() for name in names}
    for (_, _, tenant), line in facts.ready.lines.items():
        if tenant in counts:
            counts[tenant].ready += len(line)
    for row in facts.scheduled.rows.values():
        if row.spec.tenant in counts:
            counts[row.spec.tenant].scheduled += 1
    for (_, tenant), held in facts.held.lines.items():
        if tenant in counts:
            counts[tenant].held += len(held)
    for worker in facts.workers.values():
        for row in worker.leases.values():
            if row.spec.tenant in counts:
                counts[row.spec.tenant].leased += 1
    return counts
