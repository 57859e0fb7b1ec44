"""Why a job waits: its place in line, pauses, limits and workers that concern it."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.core.job import Job
from fairlane.core.limits import LimitKey, LimitsInForce, Rate
from fairlane.core.ops import TENANT_COUNT_CAP, LimitState, Pause, Waiting, Why
from fairlane.core.ops.jobs import WaitPlace
from fairlane.stores.instants import from_us, maybe_from_us, span_us, to_us
from fairlane.stores.redis.job_keys import use_of
from fairlane.stores.redis.jobs.records import find_job, job_of, wait_of
from fairlane.stores.redis.states import FINISHED
from fairlane.stores.redis.steps import Script, Steps, Work, handles, pack

_read_pause = msgspec.json.Decoder(Pause).decode
_read_names = msgspec.msgpack.Decoder(tuple[str, ...]).decode
_PLACES: dict[str, WaitPlace] = {"failed": "scheduled", "waiting": "held", "at_key": "held"}


@handles
def why(work: Work, op: Why) -> Steps[Waiting | None]:
    found = yield from find_job(work, op.id, op.scope.tenant)
    if found is None:
        return None
    job = job_of(found)
    holder = found.state.worker if found.state.place == "leased" else None
    [version, kept, pauses, live, expires] = yield from work.read(
        ("HGET", "meta", "limits_version"),
        ("HVALS", "limit"),
        ("HVALS", "pause"),
        ("ZRANGEBYSCORE", "workers", f"({work.now}", "+inf"),
        ("ZSCORE", "workers", holder or ""),
        watch=False,
    )
    rows = yield from work.read(
        *(("HMGET", f"worker:{worker.decode()}", "queues", "types") for worker in live), watch=False
    )
    work.limits.keep(int(version or 0), kept)
    force = work.limits.in_force(op.limits)
    place: WaitPlace = _PLACES.get(found.state.place, found.state.place)  # type: ignore[arg-type]
    bounds: list[dict[str, Any]] = []
    if force is not None and place in ("ready", "scheduled", "held", "leased"):
        keys = force.keys_of(job.queue, job.tenant, job.type)
        bounds = [bound for key in keys if (bound := _bound(force, key, work.now)) is not None]
    call = {"seq": found.seq, "cap": TENANT_COUNT_CAP, "bounds": bounds}
    ahead, more_urgent, tenants, states, at_key = yield Script("why", (work.instant(), pack(call)))
    key = None
    if found.body.key is not None and found.state.place not in FINISHED:
        key = yield from use_of(work, job.tenant, found.body.key.value)
    workers, knowing = _workers(rows, job)
    return Waiting(
        now=from_us(work.now),
        job=job,
        place=place,
        ahead=ahead,
        more_urgent=more_urgent,
        tenants=tenants,
        pauses=_pauses(pauses, job),
        limits=tuple(_state(bound, *counted) for bound, counted in zip(bounds, states, strict=True)),
        waiting_limit=None if force is None else force.terms(job.tenant, job.queue).waiting,
        workers=workers,
        knowing=knowing,
        waits_for=wait_of(found),
        suspect=found.state.suspect is True,
        worker_until=maybe_from_us(None if expires is None else int(expires)),
        key=key,
        key_ahead=at_key,
    )


def _bound(force: LimitsInForce, key: LimitKey, now: int) -> dict[str, Any] | None:
    """What one key allows, as scripts take it; None: everything."""
    running, rate, pause = force.running(key), force.rate(key), force.paused_until(key)
    paused_until = to_us(pause) if pause is not None and to_us(pause) > now else None
    if running is None and rate is None and paused_until is None:
        return None
    bound: dict[str, Any] = {"kind": key.kind, "of": key.name, "running": running, "paused": paused_until}
    if key.queue:
        bound["queue"] = key.queue
    if rate is not None:
        bound |= {"rate": (rate.count, span_us(rate.period_s)), "period_s": rate.period_s}
    if key.kind == "named":
        bound["types"] = force.types_of(key)
    return bound


def _state(bound: dict[str, Any], leases: int, starts: int, free_at: bytes | None) -> LimitState:
    instants = [at for at in (None if free_at is None else int(free_at), bound["paused"]) if at is not None]
    most = TENANT_COUNT_CAP
    return LimitState(
        kind=bound["kind"],
        name=bound["of"],
        queue=bound.get("queue", ""),
        running=bound["running"],
        leases=min(leases, most),
        rate=Rate(bound["rate"][0], bound["period_s"]) if "rate" in bound else None,
        starts=min(starts, most),
        free_at=maybe_from_us(max(instants, default=None)),
    )


def _pauses(kept: list[bytes], job: Job) -> tuple[Pause, ...]:
    concerning = {("queue", job.queue), ("tenant", job.tenant), ("type", job.type)}
    found = [pause for pause in map(_read_pause, kept) if (pause.kind, pause.name) in concerning]
    return tuple(sorted(found, key=lambda pause: (pause.kind, pause.name)))


def _workers(rows: list[list[bytes]], job: Job) -> tuple[int, int]:
    """Live workers that serve its queue, and those of them that know its type."""
    live = [(_read_names(queues), _read_names(types)) for queues, types in rows]
    serving = [types for queues, types in live if not queues or job.queue in queues]
    return len(serving), sum(not types or job.type in types for types in serving)
