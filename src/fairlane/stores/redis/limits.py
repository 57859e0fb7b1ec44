"""Limits that people set at run time, and which limits are in force for an operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from fairlane.core.limits import NO_LIMIT, Limit, LimitKey, LimitsInForce, Rate, StoredLimit
from fairlane.stores.instants import span_us, to_us
from fairlane.stores.redis.states import joined
from fairlane.stores.redis.steps import pack

read_limit = msgspec.json.Decoder(StoredLimit).decode
_REMEMBERED = 7


class KeptLimits:
    """What people have set, as last read. A script that was sent an older version answers with the newest ones."""

    def __init__(self) -> None:
        self.version = 0
        self._kept: tuple[StoredLimit, ...] = ()
        self._together: list[tuple[tuple[Limit, ...], LimitsInForce]] = []
        self._packed: list[tuple[tuple[Limit, ...], Raw]] = []

    def keep(self, version: int, documents: Sequence[bytes]) -> None:
        kept = tuple(read_limit(document) for document in documents)
        self.version, self._kept, self._together, self._packed = version, kept, [], []

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
        """The same as scripts/claims.lua takes it."""
        if not given and not self._kept:
            return None
        for brought, packed in self._packed:
            if brought == given:
                return packed
        force = self.in_force(given)
        assert force is not None
        packed = Raw(pack(_for_claims(force, given, self._kept)))
        self._packed[:] = [*self._packed[-_REMEMBERED:], (given, packed)]
        return packed


def limit_name(key: LimitKey) -> str:
    """`limit_name` in scripts/claims.lua."""
    return f"{key.kind}:{joined(key.name, key.queue)}"


def _for_claims(force: LimitsInForce, given: tuple[Limit, ...], kept: tuple[StoredLimit, ...]) -> dict[str, Any]:
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


def _rate(rate: Rate) -> tuple[int, int]:
    return (NO_LIMIT, 0) if rate.count == NO_LIMIT else (rate.count, span_us(rate.period_s))
