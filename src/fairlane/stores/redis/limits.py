"""Limits that people set at run time, and which limits are in force for an operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from fairlane.core.ids import EVERY_TENANT
from fairlane.core.limits import NO_LIMIT, Limit, LimitKey, LimitsInForce, Rate, StoredLimit
from fairlane.core.ops import (
    ClearLimit,
    LimitPaused,
    Limits,
    ListLimits,
    PauseLimit,
    SetLimit,
    TakeTokens,
    TokensTaken,
    Unheld,
    Unhold,
)
from fairlane.stores.instants import after, from_us, span_us, to_us
from fairlane.stores.redis.states import joined
from fairlane.stores.redis.steps import Script, Steps, Work, handles, pack

HELD_LINES = 200
"""Lines of held jobs that one call looks at."""
read_limit = msgspec.json.Decoder(StoredLimit).decode
_REMEMBERED = 7


class KeptLimits:
    """What people have set, as last read. A script that was sent an older version answers with the newest ones."""

    def __init__(self) -> None:
        self.version = 0
        self._kept: tuple[StoredLimit, ...] = ()
        self._together: list[tuple[tuple[Limit, ...], LimitsInForce]] = []
        self._packed: list[tuple[tuple[Limit, ...], Raw]] = []
        self._of_keys: Raw | None = None

    def keep(self, version: int, documents: Sequence[bytes]) -> None:
        kept = tuple(read_limit(document) for document in documents)
        self.version, self._kept, self._together, self._packed = version, kept, [], []
        of_keys = [record for record in kept if record.limit.kind == "key"]
        self._of_keys = Raw(pack(_for_keys(of_keys))) if of_keys else None

    def in_force(self, given: tuple[Limit, ...]) -> LimitsInForce | None:
        """What is in force for an operation that brings these; None: nothing at all."""
        if not given and not self._kept:
            return None
        for brought, force in self._together:
            if brought == given:
                return force
        force = LimitsInForce(given, self._kept)
        self._together[:] = [*self._together[-_REMEMBERED:], (given, force)]
        return force

    def for_claims(self, given: tuple[Limit, ...]) -> Raw | None:
        """The same as scripts/claims.lua takes it, which knows nothing of keys."""
        if not given and all(record.limit.kind == "key" for record in self._kept):
            return None
        for brought, packed in self._packed:
            if brought == given:
                return packed
        force = self.in_force(given)
        assert force is not None
        for_claims = [record for record in self._kept if record.limit.kind != "key"]
        packed = Raw(pack(_for_claims(force, given, for_claims)))
        self._packed[:] = [*self._packed[-_REMEMBERED:], (given, packed)]
        return packed

    def of_key(self, name: str) -> StoredLimit | None:
        """What people have set for keys of a name."""
        found = LimitKey("key", name)
        return next((record for record in self._kept if record.limit.key == found), None)

    def for_keys(self) -> Raw | None:
        """What people have set for keys, as scripts/job_keys.lua takes it; None: nothing."""
        return self._of_keys


def limit_name(key: LimitKey) -> str:
    """`limit_name` in scripts/claims.lua."""
    return f"{key.kind}:{joined(key.name, key.queue)}"


def _for_claims(force: LimitsInForce, given: tuple[Limit, ...], kept: Sequence[StoredLimit]) -> dict[str, Any]:
    said: dict[LimitKey, dict[str, Any]] = {}
    for limit in (*given, *(record.limit for record in kept)):  # what people set wins, field by field
        at = said.setdefault(limit.key, {})
        if limit.running is not None:
            at["running"] = limit.running
        if limit.rate is not None:
            at["rate"] = _rate(limit.rate)
    for record in kept:
        if record.paused_until is not None:
            said[record.limit.key]["paused"] = to_us(record.paused_until)
    named = [key for key in said if key.kind == "named"]
    types = {key.name: force.types_of(key) for key in named}
    bounds = [(force.running(key), force.rate(key)) for key in said]
    return {
        "at": {limit_name(key): at for key, at in said.items()},
        "named": {task: [key.name for key in force.named(task)] for tasks in types.values() for task in tasks},
        "types": types,
        "counts": any(running is not None for running, _ in bounds),
        "always": any(running is not None or rate is not None for running, rate in bounds),
        "paused": max((at.get("paused", 0) for at in said.values()), default=0),
    }


def _for_keys(kept: Sequence[StoredLimit]) -> dict[str, Any]:
    at: dict[str, dict[str, Any]] = {}
    for record in kept:
        limit, paused = record.limit, record.paused_until
        said = {"running": limit.running, "rate": None if limit.rate is None else _rate(limit.rate)}
        said["paused"] = None if paused is None else to_us(paused)
        at[limit.name] = {name: value for name, value in said.items() if value is not None}
    return at


def _rate(rate: Rate) -> tuple[int, int]:
    return (NO_LIMIT, 0) if rate.count == NO_LIMIT else (rate.count, span_us(rate.period_s))


@handles
def list_limits(work: Work, op: ListLimits) -> Steps[Limits]:
    kept = yield from _all(work)
    return Limits(limits=kept)


@handles
def set_limit(work: Work, op: SetLimit) -> Steps[Limits]:
    known = yield from _find(work, op.limit.key)
    changed = known is None or known.limit != op.limit
    if changed:
        paused_until = None if known is None else known.paused_until
        _write(work, StoredLimit(limit=op.limit, by=op.by, at=from_us(work.now), paused_until=paused_until))
        _audit(work, op, "limit_set", op.limit.key, _said(known), op.limit)
        _hold_again(work, op.limit.key)
        work.act("wake_for_ready")
        yield from work.commit()
    kept = yield from _all(work)
    return Limits(limits=kept, changed=changed)


@handles
def clear_limit(work: Work, op: ClearLimit) -> Steps[Limits]:
    key = LimitKey(op.kind, op.name, op.queue)
    known = yield from _find(work, key)
    if known is not None:
        work.do("HDEL", "limit", limit_name(key))
        work.do("HINCRBY", "meta", "limits_version", 1)
        if (said := _said(known)) is not None:
            _audit(work, op, "limit_clear", key, said, None)
        _hold_again(work, key)
        work.act("wake_for_ready")
        yield from work.commit()
    kept = yield from _all(work)
    return Limits(limits=kept, changed=known is not None)


@handles
def pause_limit(work: Work, op: PauseLimit) -> Steps[LimitPaused]:
    key = LimitKey(op.kind, op.name, op.queue)
    known = yield from _find(work, key)
    until = from_us(after(work.now, op.for_s))
    if known is None:
        known = StoredLimit(limit=_nothing_said(key), by=op.by, at=from_us(work.now))
    elif known.paused_until is not None and known.paused_until >= until:
        return LimitPaused(until=known.paused_until)
    _write(work, msgspec.structs.replace(known, paused_until=until))
    _hold_again(work, key)
    yield from work.commit()
    return LimitPaused(until=until)


def _find(work: Work, key: LimitKey) -> Steps[StoredLimit | None]:
    [found] = yield from work.read(("HGET", "limit", limit_name(key)))
    return None if found is None else read_limit(found)


def _all(work: Work) -> Steps[tuple[StoredLimit, ...]]:
    [documents] = yield from work.read(("HVALS", "limit"), watch=False)
    return tuple(sorted((read_limit(document) for document in documents), key=lambda record: record.limit.key))


def _write(work: Work, record: StoredLimit) -> None:
    work.do("HSET", "limit", limit_name(record.limit.key), msgspec.json.encode(record).decode())
    work.do("HINCRBY", "meta", "limits_version", 1)


def _hold_again(work: Work, key: LimitKey) -> None:
    """What is in force for a key has changed: nobody has been let in yet."""
    if key.kind == "key":
        work.act("hold_again", key.name)


def _nothing_said(key: LimitKey) -> Limit:
    return Limit(kind=key.kind, name=key.name, queue=key.queue)


def _said(known: StoredLimit | None) -> Limit | None:
    """None also for a record that was made for a pause alone."""
    return None if known is None or known.limit == _nothing_said(known.limit.key) else known.limit


def _audit(
    work: Work, op: SetLimit | ClearLimit, action: str, key: LimitKey, before: Limit | None, after: Limit | None
) -> None:
    tenant = key.name if key.kind == "tenant" and key.name != EVERY_TENANT else None
    target = f"limit:{key.kind}:{key.name}" + (f"@{key.queue}" if key.queue else "")
    facts = [None if limit is None else msgspec.to_builtins(limit) for limit in (before, after)]
    work.audit(op, action, tenant, target, *facts)


@handles
def take_tokens(work: Work, op: TakeTokens) -> Steps[TokensTaken]:
    while True:
        force = work.limits.in_force(op.limits)
        rates = [
            (tenant, count, rate)
            for tenant, count in sorted(op.counts.items())
            if force is not None and (rate := force.enqueue_rate(tenant)) is not None
        ]
        asked = [
            {"tenant": tenant, "count": count, "most": rate.count, "period": span_us(rate.period_s)}
            for tenant, count, rate in rates
        ]
        call = {"version": work.limits.version, "asked": asked}
        reply = yield Script("limits", (work.instant(), "tokens", pack(call)))
        if reply[0] == b"limits":
            work.limits.keep(reply[1], reply[2])
            continue
        if reply[0] == b"granted":
            return TokensTaken(granted=True)
        tenant, _, rate = rates[reply[1] - 1]
        at = None if reply[2] is None else from_us(int(reply[2]))
        return TokensTaken(granted=False, tenant=tenant, rate=rate, retry_at=at)


@handles
def unhold(work: Work, op: Unhold) -> Steps[Unheld]:
    freed, last, limit = 0, "-", max(op.limit, 0)
    while freed < limit:
        [found] = yield from work.read(("ZRANGEBYLEX", "held", last, "+", "LIMIT", 0, HELD_LINES), watch=False)
        if not found:
            break
        last = f"({found[-1].decode()}"
        reply: Any = [b"limits"]
        while reply[0] == b"limits":
            force = work.limits.in_force(op.limits)
            lines = []
            for queue, tenant in (member.decode().split("\0") for member in found):
                most = None if force is None else force.terms(tenant, queue).waiting
                lines.append({"queue": queue, "tenant": tenant, "most": most})
            call = {"version": work.limits.version, "lines": lines, "limit": limit - freed}
            reply = yield Script("limits", (work.instant(), "unhold", pack(call)))
            if reply[0] == b"limits":
                work.limits.keep(reply[1], reply[2])
        freed += reply[1]
    return Unheld(count=freed)
