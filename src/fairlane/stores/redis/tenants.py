"""Tenants: their weight and tier, and how many jobs they have."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

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
from fairlane.stores.redis.limits import read_limit
from fairlane.stores.redis.steps import Script, Steps, Work, document, handles, texts

_NAMES_AT_ONCE = 200
_PLACES = {
    "ready": "ready",
    "scheduled": "scheduled",
    "failed": "scheduled",
    "held": "held",
    "prefetched": "leased",
    "processing": "leased",
}


class KeptTenant(Struct, frozen=True, kw_only=True, omit_defaults=True):
    weight: float = 1.0
    tier: str | None = None
    seen: int | None = None


_read_tenant = msgspec.json.Decoder(KeptTenant).decode


@handles
def set_tenant(work: Work, op: SetTenant) -> Steps[TenantRecord]:
    [known] = yield from _kept(work, [op.name])
    weight = known.weight if op.weight is None else op.weight
    tier = known.tier if op.tier is None else op.tier
    changed = (weight, tier) != (known.weight, known.tier)
    if changed or known.seen is None:
        known_now = KeptTenant(weight=weight, tier=tier, seen=work.now if known.seen is None else known.seen)
        _write(work, op.name, known_now)
    if changed:
        facts: list[dict[str, object]] = [
            {"weight": w, "tier": t} for w, t in ((known.weight, known.tier), (weight, tier))
        ]
        work.audit(op, "tenant_set", op.name, f"tenant:{op.name}", *facts)
    yield from work.commit()
    [record] = yield from _records(work, [op.name])
    return record


@handles
def get_tenant(work: Work, op: GetTenant) -> Steps[TenantRecord | None]:
    if not op.scope.admits(op.name):
        return None
    [record] = yield from _records(work, [op.name])
    return record


@handles
def page_tenants(work: Work, op: PageTenants) -> Steps[TenantPage]:
    limit = max(1, min(op.limit, MAX_PAGE))
    found: list[str] = []
    after = op.after
    while len(found) <= limit:
        [names] = yield from work.read(_behind("tenant:names", after), watch=False)
        page = texts(names)
        kept = yield from _kept(work, page)
        found += [
            name
            for name, tenant in zip(page, kept, strict=True)
            if op.scope.admits(name) and op.tier in (None, tenant.tier)
        ]
        if len(page) < _NAMES_AT_ONCE:
            break
        after = page[-1]
    records = yield from _records(work, found[:limit])
    return TenantPage(tenants=tuple(records), next=found[limit - 1] if len(found) > limit else None)


@handles
def has_tenants(work: Work, op: HasTenants) -> Steps[bool]:
    [known] = yield from work.read(("ZRANGE", "tenant:names", 0, 1), watch=False)
    names, page = texts(known), [""]
    while page and not set(names) - {SYSTEM_TENANT}:
        [found] = yield from work.read(_behind("with_jobs", page[-1]), watch=False)
        page = texts(found)
        counts = yield from work.read(*(("ZCARD", f"of:{name}") for name in page), watch=False)
        names = [name for name, count in zip(page, counts, strict=True) if count]
    return bool(set(names) - {SYSTEM_TENANT})


@handles
def add_tenants(work: Work, op: AddTenants) -> Steps[TenantsAdded]:
    """The names are those that `create` in the prelude has met; one whose jobs are all gone is forgotten here."""
    limit = max(op.limit, 0)
    with_jobs: list[str] = []
    after = op.after
    while len(with_jobs) <= limit:
        [names] = yield from work.read(_behind("with_jobs", after), watch=False)
        page = texts(names)
        counts = yield from work.read(*(("ZCARD", f"of:{name}") for name in page))
        with_jobs += [name for name, count in zip(page, counts, strict=True) if count]
        for name, count in zip(page, counts, strict=True):
            if not count:
                work.do("ZREM", "with_jobs", name)
        if len(page) < _NAMES_AT_ONCE:
            break
        after = page[-1]
    kept = yield from _kept(work, with_jobs[:limit])
    new = [name for name, tenant in zip(with_jobs, kept, strict=False) if tenant.seen is None]
    for name in new:
        _write(work, name, KeptTenant(seen=work.now))
    yield from work.commit()
    return TenantsAdded(added=len(new), next=with_jobs[limit - 1] if len(with_jobs) > limit > 0 else None)


@handles
def read_weights(work: Work, op: ReadWeights) -> Steps[Weights]:
    [pairs] = yield from work.read(("HGETALL", "weights"), watch=False)
    return Weights(weights={name.decode(): float(weight) for name, weight in zip(pairs[::2], pairs[1::2], strict=True)})


def _behind(key: str, after: str) -> tuple[str | int, ...]:
    return ("ZRANGEBYLEX", key, f"({after}", "+", "LIMIT", 0, _NAMES_AT_ONCE)


def _kept(work: Work, names: Sequence[str]) -> Generator[Script, Any, list[KeptTenant]]:
    if not names:
        return []
    [documents] = yield from work.read(("HMGET", "tenant", *names))
    return [KeptTenant() if one is None else _read_tenant(one) for one in documents]


def _write(work: Work, name: str, tenant: KeptTenant) -> None:
    work.do("HSET", "tenant", name, document(tenant))
    work.do("ZADD", "tenant:names", 0, name)
    if tenant.weight == 1:
        work.do("HDEL", "weights", name)
    else:
        work.do("HSET", "weights", name, repr(tenant.weight))


def _records(work: Work, names: Sequence[str]) -> Generator[Script, Any, list[TenantRecord]]:
    if not names:
        return []
    kept = yield from _kept(work, names)
    pauses, limits, *counts = yield from work.read(
        ("HMGET", "pause", *(f"tenant:{name}" for name in names)),
        ("HVALS", "limit"),
        *(("HGETALL", f"count:{name}") for name in names),
        watch=False,
    )
    set_for = sorted(
        (limit for limit in map(read_limit, limits) if limit.limit.kind == "tenant"), key=lambda limit: limit.limit.key
    )
    return [
        TenantRecord(
            name=name,
            weight=tenant.weight,
            tier=tenant.tier,
            seen_at=maybe_from_us(tenant.seen),
            paused=pause is not None,
            limits=tuple(limit for limit in set_for if limit.limit.name == name),
            **_counts(fields),
        )
        for name, tenant, pause, fields in zip(names, kept, pauses, counts, strict=True)
    ]


def _counts(fields: Sequence[bytes]) -> dict[str, int]:
    """From the counts of one tenant, `<place>:<queue>`."""
    counted = {"ready": 0, "scheduled": 0, "held": 0, "leased": 0}
    for field, number in zip(fields[::2], fields[1::2], strict=True):
        place = _PLACES.get(field.partition(b":")[0].decode())
        if place is not None:
            counted[place] = min(counted[place] + int(number), TENANT_COUNT_CAP)
    return counted
