"""How things are at this moment, as the store and the workers say."""

from __future__ import annotations

from msgspec import Struct

from fairlane.client.steps import Steps
from fairlane.core.breaker import Breaker
from fairlane.core.ops import (
    ALL_TENANTS,
    Alert,
    Check,
    GetStats,
    Health,
    ListBreakers,
    ListWorkers,
    ReadAlerts,
    Scope,
    Stats,
    Workers,
    only,
)

CAP = 10_000
"""Numbers above are estimates."""
TENANTS_A_LOOK = 5
"""Tenants whose queues are counted in one look; the others keep what they had."""


class Gauges(Struct, frozen=True, kw_only=True):
    stats: Stats
    health: Health | None = None
    """None, like what follows: one tenant's figures alone are asked for."""
    workers: Workers | None = None
    breakers: tuple[Breaker, ...] = ()
    alerts: tuple[Alert, ...] = ()


def look(scope: Scope) -> Steps[Gauges]:
    stats = yield GetStats(scope=scope, cap=CAP, rough=True, parts=("queues", "dead_letters"))
    if scope != ALL_TENANTS:
        return Gauges(stats=stats)
    return Gauges(
        stats=stats,
        health=(yield Check()),
        workers=(yield ListWorkers()),
        breakers=(yield ListBreakers()).breakers,
        alerts=(yield ReadAlerts()).alerts,
    )


class TenantCounts:
    """Unfinished jobs of the tenants that have names, by queue: a few tenants at a time."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, int]] = {}

    def look(self, named: frozenset[str]) -> Steps[None]:
        for gone in self.counts.keys() - named:
            del self.counts[gone]
        new = sorted(named - self.counts.keys())
        # Oldest first: a count that is made anew goes to the end.
        for tenant in [*new, *(tenant for tenant in self.counts)][:TENANTS_A_LOOK]:
            stats: Stats = yield GetStats(scope=only(tenant), cap=CAP, rough=True, parts=("queues",))
            self.counts.pop(tenant, None)
            self.counts[tenant] = {
                queue.queue: queue.pending + queue.failed + queue.processing for queue in stats.queues
            }
