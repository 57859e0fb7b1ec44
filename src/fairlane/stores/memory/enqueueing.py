"""Putting jobs in: every job is read before the first is written, so a refused call changes nothing."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime

from msgspec import structs

from fairlane.core.job import JobSpec
from fairlane.core.ops import Enqueue, EnqueueResult, Receipt
from fairlane.errors import StoreRefused
from fairlane.stores.memory.admitting import admit
from fairlane.stores.memory.facts import Facts, Row
from fairlane.stores.memory.moving import as_utc, create, later
from fairlane.stores.memory.room import rules_for

Read = tuple[JobSpec, str, datetime]
"""A request whose instants and texts are known to be good: itself, its payload, when it is due."""


def enqueue(facts: Facts, op: Enqueue, now: datetime) -> EnqueueResult:
    depth = None
    if op.capacity is not None:
        depth = min(facts.ready.count + len(facts.scheduled.rows) + facts.held.count, op.capacity)
        if depth + len(op.jobs) > op.capacity:
            return EnqueueResult(full=True, depth=depth)
    jobs = read(op.jobs, now)
    if not op.limits and not facts.limits:
        return EnqueueResult(receipts=put(facts, jobs, now), depth=depth)
    admission = admit(facts, rules_for(facts, op.limits).in_force, [spec for spec, _, _ in jobs])
    if admission.refused is not None:
        return EnqueueResult(depth=depth, refused=admission.refused)
    return EnqueueResult(receipts=put(facts, jobs, now, admission.held), depth=depth, hits=admission.hits)


def read(specs: Sequence[JobSpec], now: datetime) -> list[Read]:
    return [(_own(spec), _payload_of(spec), _due_at(spec, now)) for spec in specs]


def put(facts: Facts, jobs: Sequence[Read], now: datetime, held: Container[int] = ()) -> tuple[Receipt, ...]:
    """Write them; those whose place in the call is in `held` are kept back."""
    if held:
        return tuple([_put(facts, *job, now, held=nth in held) for nth, job in enumerate(jobs)])
    return tuple([_put(facts, *job, now) for job in jobs])


def _own(spec: JobSpec) -> JobSpec:
    """The request with dictionaries that its sender cannot change any more."""
    if spec.refs or spec.headers:
        return structs.replace(spec, refs=dict(spec.refs), headers=dict(spec.headers))
    return spec


def _payload_of(spec: JobSpec) -> str:
    try:
        return str(spec.payload, "utf-8")
    except UnicodeDecodeError as error:
        raise StoreRefused(
            "memory", f"the payload of job {spec.id} is not UTF-8: {error}; nothing was changed"
        ) from error


def _due_at(spec: JobSpec, now: datetime) -> datetime:
    if spec.timeout_s is not None:
        later(now, spec.timeout_s)
    if spec.run_at is None:
        return now if spec.delay_s is None else later(now, spec.delay_s)
    return as_utc(f"run_at of job {spec.id}:", spec.run_at)


def _put(facts: Facts, spec: JobSpec, payload: str, due_at: datetime, now: datetime, *, held: bool = False) -> Receipt:
    there = facts.ids.get(spec.id)
    if there is not None:
        return Receipt(
            disposition="replayed" if _same_content(there, spec, payload) else "conflict", id=spec.id, seq=there.seq
        )
    if spec.idempotency_key is not None:
        there = facts.idempotency.get((spec.tenant, spec.idempotency_key))
        if there is not None:
            return Receipt(disposition="duplicate", id=there.spec.id, seq=there.seq, key="idempotency")
    if spec.dedup_key is not None:
        there = facts.dedup.get((spec.tenant, spec.type, spec.dedup_key))
        if there is not None:
            return Receipt(disposition="duplicate", id=there.spec.id, seq=there.seq, key="dedup")
    if held:
        row = create(facts, spec, payload, due_at, now, held=True)
        return Receipt(disposition="created", id=spec.id, seq=row.seq, held=True)
    return Receipt(disposition="created", id=spec.id, seq=create(facts, spec, payload, due_at, now).seq)


def _same_content(row: Row, spec: JobSpec, payload: str) -> bool:
    old = row.spec
    return (
        row.payload == payload
        and (old.type, old.tenant, old.queue, old.priority) == (spec.type, spec.tenant, spec.queue, spec.priority)
        and (old.idempotency_key, old.dedup_key, old.parent_id)
        == (spec.idempotency_key, spec.dedup_key, spec.parent_id)
    )
