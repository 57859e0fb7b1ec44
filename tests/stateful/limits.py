"""Lives under limits: given by the code, set and paused by people, used up and given back; tenants, held jobs, aging."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from fairlane.core.ids import JobId
from fairlane.core.limits import NO_LIMIT, FullPolicy, Limit, LimitKey, LimitKind, Rate
from fairlane.core.ops import (
    AddTenants,
    Age,
    ClearLimit,
    GetTenant,
    HasTenants,
    ListLimits,
    PageTenants,
    PauseLimit,
    ReadWeights,
    Renew,
    Scope,
    SetLimit,
    SetTenant,
    TakeTokens,
    Unhold,
    Why,
)
from tests.stateful.interruptions import InterruptedLives
from tests.stateful.strategies import QUEUES, TENANTS, TYPES, bounds, scopes

PERIODS = {"queue": 10.0, "tenant": 61.0, "type": 5.0, "named": 10.0}
"""One for each kind: what a store still knows of a longer period than it had to keep is its own affair."""
KEYS = [LimitKey("queue", name) for name in QUEUES]
KEYS += [LimitKey("tenant", name, queue) for name in ("a", "b", "*") for queue in ("", "bulk")]
KEYS += [LimitKey("type", name) for name in TYPES]
KEYS += [LimitKey("named", "smtp"), LimitKey("named", "disk")]

keys = st.sampled_from(KEYS)


def one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


@st.composite
def some_limit(draw: st.DrawFn) -> Limit:
    kind, name, queue = draw(keys)
    said: dict[str, Any] = {"running": draw(one_of(None, None, 1, 1, 2, 3, 0, NO_LIMIT))}
    count = draw(one_of(None, None, 1, 2, 3, NO_LIMIT))
    said["rate"] = None if count is None else Rate(count, PERIODS[kind])
    if kind == "tenant":
        said["waiting"] = draw(one_of(None, None, 0, 1, 2, 4, NO_LIMIT))
        said["when_full"] = draw(one_of(None, "hold", "hold", "warn", "reject"))
        said["payload_bytes"] = draw(one_of(None, None, None, 1000, NO_LIMIT, 12))
    if kind == "tenant" and not queue:
        said["enqueue_rate"] = draw(one_of(None, Rate(2, 10.0), Rate(3, 10.0), Rate(NO_LIMIT, 10.0)))
    if kind == "named":
        said["types"] = draw(one_of(TYPES, TYPES[:1], TYPES[1:]))
    elif all(value is None for value in said.values()):
        said["running"] = 2
    return Limit(kind=kind, name=name, queue=queue, **said)


class LimitedLives(InterruptedLives):
    @initialize(given=st.lists(some_limit(), max_size=4, unique_by=lambda limit: limit.key))
    def be_limited(self, given: list[Limit]) -> None:
        self.given = tuple(given)

    def limits(self, data: st.DataObject) -> tuple[Limit, ...]:
        some: tuple[Limit, ...] = getattr(self, "given", ())
        return data.draw(one_of(some, some, some, some[:1], ()), label="limits") if some else ()

    @rule(data=st.data(), limit=some_limit())
    def set_a_limit_and_claim(self, data: st.DataObject, limit: Limit) -> None:
        self.run(SetLimit(limit=limit, by="ada", notes="n"))
        self.claim(data)

    @rule(data=st.data(), key=keys, for_s=one_of(3.0, 10.0))
    def pause_a_limit_and_claim(self, data: st.DataObject, key: LimitKey, for_s: float) -> None:
        self.run(PauseLimit(kind=key.kind, name=key.name, queue=key.queue, for_s=for_s, by="worker"))
        self.claim(data)

    @rule(data=st.data(), period_s=st.sampled_from(sorted(set(PERIODS.values()))))
    def claim_before_and_after_a_period(self, data: st.DataObject, period_s: float) -> None:
        for span in (timedelta(0), timedelta(seconds=period_s, microseconds=-1), timedelta(microseconds=1)):
            self.now += span
            self.claim(data)

    @rule(data=st.data(), full=st.sampled_from(TYPES), kind=one_of("type", "named"), running=one_of(0, 0, 1))
    def claim_past_a_full_type(self, data: st.DataObject, full: str, kind: LimitKind, running: int) -> None:
        """Rows of the full type lie between others in the lines of all tenants."""
        jobs = data.draw(st.lists(self.new_specs([]), min_size=4, max_size=8), label="jobs")
        self.put([msgspec.structs.replace(job, queue="default", priority=5, priority_scope="queue") for job in jobs])
        types = (full,) if kind == "named" else ()
        self.run(SetLimit(limit=Limit(kind=kind, name=full, running=running, types=types), by="ada"))
        self.claim(data)
        self.run(ClearLimit(kind=kind, name=full, by="ada"))

    @rule(data=st.data(), key=keys)
    def clear_a_limit(self, data: st.DataObject, key: LimitKey) -> None:
        kept = [record.limit.key for record in self.run(ListLimits()).limits]
        kind, name, queue = data.draw(st.sampled_from(kept * 3 + [key]), label="key")
        self.run(ClearLimit(kind=kind, name=name, queue=queue, by="grace"))

    @rule(data=st.data(), waiting=one_of(0, 1, 2, 4), policy=one_of("hold", "hold", "hold", "warn", "reject"))
    def flood(self, data: st.DataObject, waiting: int, policy: FullPolicy) -> None:
        """Two tenants in one queue, so that they fill up."""
        known = list(self.specs)
        jobs = data.draw(st.lists(self.new_specs(known), min_size=3, max_size=6), label="jobs")
        crowd = [msgspec.structs.replace(job, tenant=min(job.tenant, "b"), queue="bulk") for job in jobs]
        self.put(crowd, limits=(Limit(kind="tenant", name="*", waiting=waiting, when_full=policy),))
        more = data.draw(one_of(0, 1, 1, 2, 9), label="room for more")
        if more:
            self.run(Unhold(limits=(Limit(kind="tenant", name="*", waiting=waiting + more),), limit=data.draw(bounds)))

    @rule(data=st.data(), limit=bounds, waiting=one_of(None, None, 1, 2, 4))
    def unhold(self, data: st.DataObject, limit: int, waiting: int | None) -> None:
        some = self.limits(data) if waiting is None else (Limit(kind="tenant", name="*", waiting=waiting),)
        self.run(Unhold(limits=some, limit=limit))

    @rule(queue=st.sampled_from(QUEUES), every_s=one_of(1.0, 2.5, 5.0, 61.0), limit=bounds)
    def age(self, queue: str, every_s: float, limit: int) -> None:
        self.run(Age(queue=queue, every_s=every_s, limit=limit))

    @rule(data=st.data(), asked=st.lists(st.dictionaries(st.sampled_from(TENANTS), one_of(1, 1, 2, 3)), max_size=3))
    def take_tokens(self, data: st.DataObject, asked: list[dict[str, int]]) -> None:
        for counts in asked:
            self.run(TakeTokens(counts=counts, limits=self.limits(data)))

    @rule(name=st.sampled_from((*TENANTS, "d")), weight=one_of(None, 1.0, 0.5, 3.0), tier=one_of(None, "gold", "free"))
    def set_a_tenant(self, name: str, weight: float | None, tier: str | None) -> None:
        self.run(SetTenant(name=name, weight=weight, tier=tier, by="ada", notes="n"))
        self.run(ReadWeights())
        self.run(HasTenants())

    @rule(after=one_of("", "", "a", "b"), limit=one_of(500, 500, 2, 1), scope=scopes, page=one_of(50, 1, 2))
    def look_at_tenants(self, after: str, limit: int, scope: Scope, page: int) -> None:
        self.run(AddTenants(after=after, limit=limit))
        self.run(PageTenants(scope=scope, after=after, limit=page))
        self.run(GetTenant(scope=scope, name="b"))

    @rule(data=st.data(), queues=one_of((), QUEUES[:1]), types=one_of((), TYPES[:1]))
    def ask_why(self, data: st.DataObject, queues: tuple[str, ...], types: tuple[str, ...]) -> None:
        self.run(Renew(worker=self.workers[-1], lease_s=15.0, queues=queues, types=types))
        for job in self.some_jobs(data):
            self.run(Why(scope=data.draw(scopes), id=job, limits=self.limits(data)))

    def some_jobs(self, data: st.DataObject) -> list[JobId]:
        return [self.any_job(data) for _ in range(3)]

    @invariant()
    def limits_look_the_same(self) -> None:
        self.run(ListLimits())
        self.run(PageTenants(scope=Scope(None)))
