"""Whether the server can be trusted with jobs, and what follows when its clock is set back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from fairlane.core.breaker import BreakerRecord, begun_by
from fairlane.core.limits import StoredLimit
from fairlane.core.ops import CLOCK_HELD_S, Alert, BringBack, BroughtBack, Check, Health, ReadSetBack, SetBack
from fairlane.errors import ConfigError, StoreUnavailable
from fairlane.stores.instants import from_us, maybe_from_us, span_us
from fairlane.stores.redis.errors import STORE, UNUSABLE
from fairlane.stores.redis.steps import Commands, Script, Steps, Work, document, handles, pack, texts

FORMAT = 1
"""Of the keys; a server that newer code has written to says a higher one."""
OLDEST = (6, 2)
EVICTS = (
    'maxmemory-policy is "{policy}": when its memory is full this server throws jobs away; '
    'set it to "noeviction", or give Fairlane a server of its own'
)
EVICTS_LATER = (
    'maxmemory-policy is "{policy}": without a maxmemory it throws nothing away, but as soon as one is set Fairlane '
    'refuses this server; set maxmemory-policy to "noeviction"'
)
NO_AOF = (
    "appendonly is off: a crash of the server loses what was acknowledged since its last snapshot ({snapshots}); "
    'set appendonly to "yes"'
)
NOTHING_KEPT = 'appendonly is off and save is empty: a crash of the server loses every job; set appendonly to "yes"'
EVERY_SECOND = (
    'appendfsync is "{fsync}": a power failure may lose {what}; '
    'set it to "always" where no acknowledged job may be lost'
)
FSYNC_UNKNOWN = (
    "appendfsync is unknown, since the server refuses CONFIG GET: a power failure may lose the last second; "
    'allow this user "+config|get", or see to it that appendfsync is "always"'
)
REPLICATED = (
    "a replica that takes over lacks what had not reached it, and this server takes jobs also while no replica does: "
    "a failover may lose what was acknowledged; set min-replicas-to-write to 1, which limits that to the last seconds "
    "(min-replicas-max-lag)"
)
REPLICA = (
    "the server is a replica of {primary} and takes no writes; name the primary in the url, or wait until it is one"
)

SKIPPED = 1_000_000
"""Numbers of jobs: more than are given while writes may still be lost."""


def facts_of(info: bytes) -> dict[str, str]:
    """INFO as a table."""
    lines = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines() if ":" in line)
    return {name: value for name, _, value in lines}


def refuse_unsafe(facts: dict[str, str]) -> None:
    """Raise if jobs must not be put on this server at all."""
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and facts.get("maxmemory", "0") != "0":
        raise ConfigError(EVICTS.format(policy=policy))
    version = facts.get("redis_version", "0.0")
    if "valkey_version" not in facts and tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise ConfigError(f"the server is Redis {version}: Fairlane needs Redis 6.2 or newer, or Valkey")


def skip_numbers(work: Work, facts: dict[str, str]) -> Steps[None]:
    """Give no number twice: a server that was restarted or promoted may have lost the last ones it gave.

    Whoever still runs a lost job holds a lease by its number, and must not settle another job by it.
    """
    run_id = facts.get("run_id")
    if run_id is None or facts.get("role") != "master":
        return
    [[known, seq]] = yield from work.read(("HMGET", "meta", "run_id", "seq"))
    if known is not None and known.decode() == run_id:
        return
    work.do("HSET", "meta", "run_id", run_id)
    if known is not None or seq is not None:
        work.do("HSET", "meta", "seq", int(seq or 0) + SKIPPED)
    yield from work.commit()


@handles
def check(work: Work, op: Check) -> Steps[Health]:
    yield from work.read(watch=False)
    [info] = yield Commands((("INFO",),))
    settings = yield Commands((("CONFIG", "GET", "appendfsync"), ("CONFIG", "GET", "save")), optional=True)
    facts = facts_of(info)
    if facts.get("role") == "slave":
        primary = f"{facts.get('master_host')}:{facts.get('master_port')}"
        raise StoreUnavailable(STORE, REPLICA.format(primary=primary), UNUSABLE)
    appendonly = facts.get("aof_enabled") == "1"
    degraded = [*_losses(appendonly, *map(_setting, settings))]
    if facts.get("connected_slaves", "0") != "0" and "min_slaves_good_slaves" not in facts:
        degraded.append(REPLICATED)
    if facts.get("maxmemory_policy", "noeviction") != "noeviction":
        sentence = EVICTS_LATER if facts.get("maxmemory", "0") == "0" else EVICTS
        degraded.append(sentence.format(policy=facts["maxmemory_policy"]))
    name = f"Valkey {facts['valkey_version']}" if "valkey_version" in facts else f"Redis {facts.get('redis_version')}"
    return Health(
        now=from_us(work.now),
        store="redis",
        server=name,
        schema_version=FORMAT,
        durable=appendonly,
        degraded=tuple(degraded),
        memory_bytes=int(facts.get("used_memory", 0)),
        memory_limit_bytes=int(facts.get("maxmemory", 0)) or None,
    )


def _losses(appendonly: bool, fsync: str | None, save: str | None) -> Iterator[str]:
    """What a crash or a power failure may cost, if anything."""
    if not appendonly and save == "":
        yield NOTHING_KEPT
    elif not appendonly:
        yield NO_AOF.format(snapshots="the server refuses CONFIG GET save" if save is None else f'save is "{save}"')
    elif fsync is None:
        yield FSYNC_UNKNOWN
    elif fsync != "always":
        what = "the last second" if fsync == "everysec" else "the last half minute"
        yield EVERY_SECOND.format(fsync=fsync, what=what)


def _setting(reply: Any) -> str | None:
    """None: this user may not ask."""
    return reply[1].decode() if isinstance(reply, list) and len(reply) == 2 else None


@handles
def bring_back(work: Work, op: BringBack) -> Steps[BroughtBack]:
    call = {"behind": span_us(op.behind_s or 0.0), "held": span_us(CLOCK_HELD_S), "limit": max(op.limit, 0)}
    now, behind_us, moved, more = yield Script("set_back", (work.instant(), pack(call)))
    if int(behind_us) > 0:
        yield from _begin_documents(work)
    return BroughtBack(now=from_us(int(now)), behind_s=int(behind_us) / 1e6, moved=moved, more=bool(more))


def _begin_documents(work: Work) -> Steps[None]:
    """Breakers, alerts and limits: what began in the future begins now."""
    breakers, alerts, limits = yield from work.read(("HGETALL", "breaker"), ("HGETALL", "alert"), ("HGETALL", "limit"))
    now = from_us(work.now)
    for name, text in _fields(breakers):
        breaker = msgspec.json.decode(text, type=BreakerRecord)
        if (begun := begun_by(breaker, now)) != breaker:
            work.do("HSET", "breaker", name, document(begun))
    for name, text in _fields(alerts):
        alert = msgspec.json.decode(text, type=Alert)
        if (changed := alert.begun_by(now)) != alert:
            work.do("HSET", "alert", name, document(changed))
    for name, text in _fields(limits):
        kept = msgspec.json.decode(text, type=StoredLimit)
        if kept.paused_until is not None and kept.paused_until > now:
            work.do("HSET", "limit", name, document(replace(kept, paused_until=None)))
            if kept.limit.kind == "key":
                work.act("look_again", kept.limit.name)
            work.do("HINCRBY", "meta", "limits_version", 1)
    yield from work.commit()


def _fields(reply: list[bytes]) -> Iterator[tuple[str, bytes]]:
    return zip(texts(reply[::2]), reply[1::2], strict=True)


@handles
def read_set_back(work: Work, op: ReadSetBack) -> Steps[SetBack]:
    [[at, behind_us]] = yield from work.read(("HMGET", "meta", "set_back_at", "set_back_by"), watch=False)
    at = maybe_from_us(None if at is None else int(at))
    return SetBack(now=from_us(work.now), at=at, behind_s=int(behind_us or 0) / 1e6)
