"""Tenants' limits at the enqueue: what a call may put in, what it has to be told, what is held."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.core.job import JobSpec
from fairlane.core.limits import LimitsInForce, TenantTerms
from fairlane.core.ops import LimitHit
from fairlane.stores.memory.census import Census
from fairlane.stores.memory.facts import Facts


class Admission:
    """What the limits say to one call."""

    def __init__(self) -> None:
        self.refused: LimitHit | None = None
        self.held: set[int] = set()
        """Places in the call."""
        self._hits: dict[tuple[str, str], LimitHit] = {}

    @property
    def hits(self) -> tuple[LimitHit, ...]:
        return tuple(self._hits[key] for key in sorted(self._hits))

    def run_into(self, nth: int, hit: LimitHit) -> None:
        if hit.policy == "reject":
            self.refused = hit
            return
        self._hits[hit.tenant, hit.queue] = hit
        if hit.policy == "hold":
            self.held.add(nth)


def census_of(facts: Facts) -> Census:
    """The count of jobs, begun now if nobody has asked before."""
    if facts.census is None:
        facts.census = Census(facts.rows.values())
    return facts.census


def admit(facts: Facts, in_force: LimitsInForce, specs: Sequence[JobSpec]) -> Admission:
    """Look at a whole call before any of it is written."""
    admission = Admission()
    terms = {key: in_force.terms(*key) for key in {(spec.tenant, spec.queue) for spec in specs}}
    for spec in specs:
        allowed = terms[spec.tenant, spec.queue].payload_bytes
        if allowed is not None and len(bytes(spec.payload)) > allowed:
            admission.refused = LimitHit(
                tenant=spec.tenant,
                queue=spec.queue,
                cause="payload_bytes",
                limit=allowed,
                found=len(bytes(spec.payload)),
                policy="reject",
            )
            return admission
    if any(some.waiting is not None for some in terms.values()):
        _admit_waiting(facts, terms, specs, admission)
    return admission


def _admit_waiting(
    facts: Facts, terms: dict[tuple[str, str], TenantTerms], specs: Sequence[JobSpec], admission: Admission
) -> None:
    census, added = census_of(facts), dict.fromkeys(terms, 0)
    for nth in _new_ones(facts, specs):
        key = tenant, queue = specs[nth].tenant, specs[nth].queue
        limit = terms[key].waiting
        if limit is None:
            continue
        added[key] += 1
        waiting = census.unfinished(queue, tenant)
        if waiting + added[key] <= limit:
            continue
        found, policy = min(waiting, limit), terms[key].when_full
        hit = LimitHit(tenant=tenant, queue=queue, cause="waiting", limit=limit, found=found, policy=policy)
        admission.run_into(nth, hit)
        if admission.refused is not None:
            return


def _new_ones(facts: Facts, specs: Sequence[JobSpec]) -> list[int]:
    """Which of them would be created: neither known, nor the duplicate of a job that is there or comes before it."""
    ids, keys, dedups, new = set(), set(), set(), []
    for nth, spec in enumerate(specs):
        key = None if spec.idempotency_key is None else (spec.tenant, spec.idempotency_key)
        dedup = None if spec.dedup_key is None else (spec.tenant, spec.type, spec.dedup_key)
        if (
            spec.id in facts.ids
            or spec.id in ids
            or (key is not None and (key in facts.idempotency or key in keys))
            or (dedup is not None and (dedup in facts.dedup or dedup in dedups))
        ):
            continue
        new.append(nth)
        ids.add(spec.id)
        keys.add(key)
        dedups.add(dedup)
    return new
