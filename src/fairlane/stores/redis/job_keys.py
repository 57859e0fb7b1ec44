"""Keys of jobs: who is held at one and who has a place; what a new job does where there is none."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Literal, cast

from fairlane.core.ids import JobId
from fairlane.core.job import JobSpec
from fairlane.core.job_keys import JobKey, key_name
from fairlane.core.limits import NO_LIMIT, LimitKey, Rate, StoredLimit
from fairlane.core.ops import HOLDERS_SHOWN, MAX_PAGE, KeyUse, KeyUses, ListKeys, PlaceHolder
from fairlane.stores.instants import from_us
from fairlane.stores.redis.jobs.acts import as_table
from fairlane.stores.redis.jobs.records import KeptJob, read_jobs
from fairlane.stores.redis.limits import KeptLimits, limit_name, read_limit
from fairlane.stores.redis.states import FINISHED, joined
from fairlane.stores.redis.steps import Script, Steps, Work, handles

KEYS_AT_ONCE = 500
"""Keys that one step of a listing reads."""


@handles
def list_keys(work: Work, op: ListKeys) -> Steps[KeyUses]:
    limit = max(1, min(op.limit, MAX_PAGE))
    found: list[tuple[str, str]] = []
    below = "+inf"
    while len(found) < limit:
        most = ("ZREVRANGEBYSCORE", "keys", below, "-inf", "WITHSCORES", "LIMIT", 0, 1)
        [top] = yield from work.read(most, watch=False)
        if not top:
            break
        found += yield from _with_as_many(work, op, top[1].decode(), limit - len(found))
        below = f"({top[1].decode()}"
    uses = []
    for tenant, key in found:
        use = yield from use_of(work, tenant, key)
        uses += [] if use is None else [use]
    return KeyUses(keys=tuple(uses))


def _with_as_many(work: Work, op: ListKeys, held: str, most: int) -> Generator[Script, Any, list[tuple[str, str]]]:
    """The first keys that are asked for of those with this number of held jobs, by tenant and key."""
    found: list[tuple[str, str]] = []
    first, page = 0, [b""]
    while page and len(found) < most:
        [page] = yield from work.read(("ZRANGEBYSCORE", "keys", held, held, "LIMIT", first, KEYS_AT_ONCE), watch=False)
        first += len(page)
        for tenant, _, key in (one.decode().partition("\0") for one in page):
            if op.scope.admits(tenant) and op.name in (None, key_name(key)) and op.key in (None, key):
                found.append((tenant, key))
    return found[:most]


def use_of(work: Work, tenant: str, value: str) -> Generator[Script, Any, KeyUse | None]:
    """How far a key is used; None: nobody is held there, and nobody has a place."""
    name = joined(tenant, value)
    [waiting, first, in_use, places, kept] = yield from work.read(
        ("ZCARD", f"key:{name}"),
        ("ZRANGE", f"key:{name}", 0, 0),
        ("ZCARD", f"key_places:{name}"),
        ("ZRANGE", f"key_places:{name}", 0, HOLDERS_SHOWN - 1),
        ("HGET", "limit", limit_name(LimitKey("key", key_name(value)))),
        watch=False,
    )
    jobs = yield from read_jobs(work, [*map(_seq_at_key, first), *map(int, places)], watch=False)
    key = next((job.body.key for job in jobs if job is not None and job.body.key is not None), None)
    if key is None:
        return None
    running, rate = _terms(key.as_given(), None if kept is None else read_limit(kept))
    return KeyUse(
        tenant=tenant,
        key=value,
        running=running,
        rate=rate,
        ordered=key.ordered,
        in_use=in_use,
        waiting=waiting,
        holders=tuple(_holder(job) for job in jobs[len(first) :] if job is not None),
    )


def _seq_at_key(position: bytes) -> int:
    """`position_at_key` in scripts/prelude.lua."""
    return int.from_bytes(position[-8:], "big")


def _terms(key: JobKey, kept: StoredLimit | None) -> tuple[int | None, Rate | None]:
    """`terms_at_key` in scripts/job_keys.lua."""
    said = None if kept is None else kept.limit
    running = key.running if said is None or said.running is None else said.running
    rate = key.rate if said is None or said.rate is None else said.rate
    if key.ordered:
        running = 1 if running == NO_LIMIT else min(running, 1)
    return (
        None if running == NO_LIMIT else running,
        None if rate is None or rate.count == NO_LIMIT else rate,
    )


def _holder(job: KeptJob) -> PlaceHolder:
    state = job.state
    place = "scheduled" if state.place == "failed" else state.place
    since = state.leased if place == "leased" else state.finished if place in FINISHED else state.due
    return PlaceHolder(
        id=JobId(job.body.id),
        seq=job.seq,
        type=job.body.type,
        state=cast("Literal['ready', 'scheduled', 'leased', 'dead']", place),
        since=from_us(since or 0),
    )


def conflict_of(spec: JobSpec, limits: KeptLimits) -> dict[str, Any]:
    """What scripts/job_keys.lua is told of a new job that does not wait at its key."""
    key = spec.key
    if key is None or key.on_conflict == "wait":
        return {}
    running, _ = _terms(key, limits.of_key(key.name))
    return {"policy": key.on_conflict, "most": running}


Unfinished = dict[str, list[KeptJob | JobId]]
"""By tenant and key: the unfinished jobs there, oldest first; an id: the commit that is gathered makes it."""


def meet_at_key(work: Work, spec: JobSpec, found: Unfinished) -> Generator[Script, Any, JobId | None]:
    """What scripts/job_keys.lua does for an enqueue: the job that stands for this one; else those it replaces end."""
    key = spec.key
    if key is None:
        return None
    name = joined(spec.tenant, key.value)
    if name not in found:
        used, held = yield from work.read(("ZRANGE", f"key_jobs:{name}", 0, -1), ("ZRANGE", f"key:{name}", 0, -1))
        kept = yield from read_jobs(work, sorted([*map(int, used), *map(_seq_at_key, held)]))
        found[name] = [job for job in kept if job is not None]
    [limit] = yield from work.read(("HGET", "limit", limit_name(LimitKey("key", key.name))))
    running, _ = _terms(key, None if limit is None else read_limit(limit))
    line = found[name]
    if key.on_conflict != "wait" and running is not None and line and len(line) >= running:
        if key.on_conflict == "discard":
            return JobId(line[0].body.id) if isinstance(line[0], KeptJob) else line[0]
        line[:] = [one for one in line if _goes_on(work, one, asks=key.on_conflict == "cancel_running")]
    line.append(spec.id)
    return None


def _goes_on(work: Work, one: KeptJob | JobId, *, asks: bool) -> bool:
    """End a job that another one replaces, unless it is leased: then it may be asked to."""
    if not isinstance(one, KeptJob):
        work.act("cancel_replaced", 0, one.hex)
        return False
    if one.state.place != "leased":
        work.act("cancel_replaced", one.seq)
        return False
    if asks and not one.state.cancel:
        work.act("move", one.seq, {**as_table(one.state), "cancel": True})
    return True
