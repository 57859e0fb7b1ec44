"""How much of a tenant's may wait in one queue: asked by every enqueue that a limit concerns."""

from __future__ import annotations

from dataclasses import dataclass

from fairlane.core.job import JobSpec
from fairlane.core.limits import FullPolicy
from fairlane.core.ops import LimitHit
from fairlane.stores.sqlite.limits.in_force import Heeded
from fairlane.stores.sqlite.limits.leased import count_leases_from_now_on
from fairlane.stores.sqlite.transaction import Transaction

# Band by band, because the line of a tenant is found by its band; a queue has few.
_PRESENT = """
with recursive bands(band) as (
  select min(band) from fairlane_ready where queue = ?1
  union all
  select (select min(band) from fairlane_ready where queue = ?1 and band > bands.band) from bands where bands.band is not null)
select count(*) from (
  select 1 from bands cross join fairlane_ready r on r.queue = ?1 and r.band = bands.band and r.tenant = ?2
  union all
  select 1 from fairlane_scheduled where queue = ?1 and failed in (0, 1) and tenant = ?2
  union all
  select 1 from fairlane_lease where queue = ?1 and tenant = ?2
  {held}
  limit ?3)
"""
_WAITING = _PRESENT.format(held="union all select 1 from fairlane_held where queue = ?1 and tenant = ?2")
_NOT_HELD = _PRESENT.format(held="")


@dataclass(slots=True)
class Quota:
    """One tenant in one queue during one enqueue."""

    limit: int
    policy: FullPolicy
    found: int
    created: int = 0

    @property
    def is_over(self) -> bool:
        return self.found + self.created > self.limit


class Quotas:
    def __init__(self, tx: Transaction, heeded: Heeded) -> None:
        self._tx, self._force = tx, heeded.force
        self._by_line: dict[tuple[str, str], Quota | None] = {}

    def find_too_long(self, jobs: tuple[JobSpec, ...]) -> LimitHit | None:
        """The first job whose payload is longer than its tenant may have."""
        for spec in jobs:
            most, size = self._force.terms(spec.tenant, spec.queue).payload_bytes, len(bytes(spec.payload))
            if most is not None and size > most:
                return LimitHit(
                    tenant=spec.tenant,
                    queue=spec.queue,
                    cause="payload_bytes",
                    limit=most,
                    found=size,
                    policy="reject",
                )
        return None

    def over(self, spec: JobSpec) -> FullPolicy | None:
        """Count a job that is about to be created: what happens to it if it is beyond the limit; None: it is not."""
        line = spec.tenant, spec.queue
        if line not in self._by_line:
            self._by_line[line] = self._open(*line)
        quota = self._by_line[line]
        if quota is None:
            return None
        quota.created += 1
        return quota.policy if quota.is_over else None

    def hit(self, tenant: str, queue: str) -> LimitHit:
        quota = self._by_line[tenant, queue]
        assert quota is not None
        return LimitHit(
            tenant=tenant, queue=queue, cause="waiting", limit=quota.limit, found=quota.found, policy=quota.policy
        )

    def hits(self) -> tuple[LimitHit, ...]:
        """Limits that were run into, by tenant and queue."""
        return tuple(self.hit(*line) for line in sorted(self._by_line) if (q := self._by_line[line]) and q.is_over)

    def _open(self, tenant: str, queue: str) -> Quota | None:
        terms = self._force.terms(tenant, queue)
        if terms.waiting is None:
            return None
        return Quota(terms.waiting, terms.when_full, count_waiting(self._tx, tenant, queue, terms.waiting))


def count_waiting(tx: Transaction, tenant: str, queue: str, most: int, *, held: bool = True) -> int:
    """Jobs of a tenant in a queue that are ready, scheduled, leased or (if asked for) held, up to `most`."""
    count_leases_from_now_on(tx)
    [(number,)] = tx.db.execute(_WAITING if held else _NOT_HELD, (queue, tenant, max(most, 0)))
    return int(number)
