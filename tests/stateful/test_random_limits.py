"""The store in memory and the model under limits: a random life with tenants, rates, held jobs and aging looks alike."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlane.core import ops
from fairlane.core.ids import EVERY_TENANT
from fairlane.core.limits import NO_LIMIT, Limit, LimitKey, Rate
from fairlane.stores.sqlite import MemoryStore
from tests.model import Model
from tests.stateful.test_random_life import QUEUES, TENANTS, TYPES, Wanderer

NAMED = ("smtp", "disk")
STEPS = 500
SEEDS = range(25)


class LimitedWanderer(Wanderer):
    """Draws the operations of limits and tenants, too, and gives limits with the others."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.given = [(), *(tuple(self.limit() for _ in range(self.rng.randint(1, 5))) for _ in range(3))]
        steps = {self.set_limit: 3, self.unset_limit: 2, self.unhold: 3, self.age: 2, self.ask: 9, self.name_tenants: 2}
        self.steps += steps
        self.weights += steps.values()

    def key(self) -> LimitKey:
        kind = self.some("queue", "tenant", "tenant", "tenant", "type", "named")
        if kind == "tenant":
            return LimitKey("tenant", self.some(EVERY_TENANT, *TENANTS), self.some("", "", *QUEUES))
        return LimitKey(kind, self.some(*{"queue": QUEUES, "type": TYPES, "named": NAMED}[kind]))

    def rate(self) -> Rate:
        return Rate(self.some(0, 1, 2, 3, 5, NO_LIMIT), self.some(0.5, 5.0, 20.0, 60.0))

    def limit(self) -> Limit:
        kind, name, queue = self.key()
        of_tenants = kind == "tenant"
        return Limit(
            kind=kind,
            name=name,
            queue=queue,
            running=self.some(None, None, 0, 1, 2, 4, NO_LIMIT),
            rate=self.some(None, None, self.rate()),
            waiting=self.some(None, 0, 3, 6, NO_LIMIT) if of_tenants else None,
            when_full=self.some(None, "warn", "reject", "hold", "hold") if of_tenants else None,
            enqueue_rate=self.some(None, self.rate()) if of_tenants and not queue else None,
            payload_bytes=self.some(None, None, 7, 8, NO_LIMIT) if of_tenants else None,
            types=tuple(self.rng.sample(TYPES, self.rng.randint(0, 2))) if kind == "named" else (),
        )

    def limits(self) -> tuple[Limit, ...]:
        """The same tuples again and again, as programs give them, and now and then another."""
        return (self.limit(), self.limit()) if self.rng.random() < 0.1 else self.some(*self.given)

    def enqueue(self) -> ops.Enqueue:
        return replace(super().enqueue(), limits=self.limits())

    def turn(self) -> ops.Turn:
        self.last_turn = replace(super().turn(), limits=self.limits())
        return self.last_turn

    def want(self) -> ops.Want:
        return replace(super().want(), survey=self.some(0, 0, 1, 2, 1000), slots=self.some(None, None, 0, 1, 2, 4))

    def set_limit(self) -> Any:
        return ops.SetLimit(now=self.now, limit=self.limit(), by="ada", notes=self.some(None, "so"))

    def unset_limit(self) -> Any:
        kind, name, queue = self.key()
        about: dict[str, Any] = {"now": self.now, "kind": kind, "name": name, "queue": queue, "by": "bob"}
        clear = ops.ClearLimit(**about)
        return self.some(clear, clear, clear, ops.PauseLimit(**about, for_s=self.some(0.0, 1.0, 8.0)))

    def unhold(self) -> ops.Unhold:
        return ops.Unhold(now=self.now, limits=self.limits(), limit=self.some(0, 1, 2, 1000))

    def age(self) -> ops.Age:
        return ops.Age(
            now=self.now, queue=self.some(*QUEUES), every_s=self.some(0.5, 3.0, 30.0), limit=self.some(0, 1, 3, 1000)
        )

    def name_tenants(self) -> Any:
        name, weight, tier = self.some(*TENANTS), self.some(None, 1.0, 3.0), self.some(None, "gold")
        return self.some(
            ops.SetTenant(now=self.now, name=name, weight=weight, tier=tier, by="ada"),
            ops.AddTenants(now=self.now, after=self.some("", "", "b", "z"), limit=self.some(1, 2, 500)),
        )

    def counts(self) -> dict[str, int]:
        return {tenant: self.some(1, 1, 3) for tenant in self.rng.sample(TENANTS, self.some(1, 1, 2))}

    def ask(self) -> Any:
        seen: dict[str, Any] = {"now": self.now, "scope": self.scope()}
        tier, after = self.some(None, None, "gold"), self.some("", "", "acme", "c")
        return self.some(
            ops.ListLimits(now=self.now),
            ops.TakeTokens(now=self.now, counts=self.counts(), limits=self.limits()),
            ops.GetTenant(**seen, name=self.some(*TENANTS, "nobody")),
            ops.PageTenants(**seen, after=after, tier=tier, limit=self.some(0, 1, 2, 50)),
            ops.ReadWeights(now=self.now),
            ops.HasTenants(now=self.now),
            ops.Why(**seen, id=self.job_id(), limits=self.limits()),
            ops.Why(**seen, id=self.job_id(), limits=self.limits()),
        )


def told(answer: Any) -> Any:
    """What has to agree: whether and when to look again are hints."""
    return replace(answer, held_back=False, limited_until=None) if isinstance(answer, ops.TurnResult) else answer


@pytest.mark.requirement("I2", "I3")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_life_under_limits_looks_the_same_in_memory_and_in_the_model(seed: int) -> None:
    store, model, wanderer = MemoryStore(), Model(), LimitedWanderer(seed)
    for step in range(STEPS):
        op = wanderer.next()
        expected = model.run(op)
        assert told(store.run(op)) == told(expected), f"step {step}: {op}"
        wanderer.learn(op, expected)


def test_the_walk_meets_every_way_a_limit_can_bite() -> None:
    """A walk that never meets a case proves nothing about it."""
    met: set[str] = set()
    for seed in SEEDS:
        model, wanderer = Model(), LimitedWanderer(seed)
        for _ in range(STEPS):
            op = wanderer.next()
            answer = model.run(op)
            wanderer.learn(op, answer)
            met |= {f"{type(op).__name__}:{part}" for part in _parts(answer)}
    assert not EXPECTED - met


EXPECTED = {f"Enqueue:{word}" for word in ("held", "warn", "hold", "refused waiting", "refused payload_bytes")}
EXPECTED |= {"Turn:limited", "Turn:held back", "Turn:surveyed", "Unhold:some", "Age:some", "TakeTokens:refused"}
EXPECTED |= {f"Why:{word}" for word in ("held", "ready", "scheduled", "leased", "full", "behind", "rate used")}


def _parts(answer: Any) -> set[str]:
    if isinstance(answer, ops.EnqueueResult):
        held = {"held"} if any(receipt.held for receipt in answer.receipts) else set()
        refused = set() if answer.refused is None else {f"refused {answer.refused.cause}"}
        return held | refused | {hit.policy for hit in answer.hits}
    if isinstance(answer, ops.TurnResult):
        facts: dict[str, object] = {
            "limited": answer.limited,
            "held back": answer.limited_until,
            "surveyed": answer.surveys,
        }
        return {name for name, found in facts.items() if found}
    if isinstance(answer, ops.Unheld | ops.Aged):
        return {"some"} if answer.count else set()
    if isinstance(answer, ops.TokensTaken):
        return {"granted" if answer.granted else "refused"}
    if isinstance(answer, ops.Waiting):
        full = any(limit.running is not None and limit.leases >= limit.running > 0 for limit in answer.limits)
        used = any(limit.starts for limit in answer.limits)
        more = {"full": full, "rate used": used, "behind": bool(answer.ahead or answer.more_urgent)}
        return {answer.place} | {name for name, found in more.items() if found}
    return set()
