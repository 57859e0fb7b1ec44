"""The limits that apply to an operation: those it brings together with those that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from fairlane.core.limits import Limit, LimitKey, LimitsInForce, Rate, StoredLimit
from fairlane.stores.instants import to_us
from fairlane.stores.sqlite.rows import RowReader
from fairlane.stores.sqlite.transaction import Transaction

_KEPT = "select said, by, at, paused_until from fairlane_limit"
# They stand side by side: one short range, at half the time of an `in`.
_STATE = "select name, value from fairlane_meta where name between 'leases_counted' and 'limits_version'"
_GROW = """
insert into fairlane_meta values ('limits_version', 1) on conflict (name) do update set value = value + 1
"""
_stored = RowReader(StoredLimit)
_REMEMBERED = 7


class KeyLimit(NamedTuple):
    """What one key allows to claims."""

    key: LimitKey
    running: int | None
    rate: Rate | None
    paused_until: int
    types: tuple[str, ...]
    """Of a named limit."""


class ApplicableLimits:
    """Limits in force, looked up once and remembered."""

    def __init__(self, given: tuple[Limit, ...], kept: tuple[StoredLimit, ...]) -> None:
        self.force = LimitsInForce(given, kept)
        keys = {*(limit.key for limit in given), *(record.limit.key for record in kept if record.limit.kind != "key")}
        bounds = [bound for key in keys if (bound := self.of(key)) is not None]
        self.counts_leases = any(bound.running is not None for bound in bounds)
        self._always = any(bound.running is not None or bound.rate is not None for bound in bounds)
        self._paused_until = max((bound.paused_until for bound in bounds), default=0)
        self.of_line = lru_cache(maxsize=4096)(self._of_line)
        self.of_task = lru_cache(maxsize=4096)(self._of_task)
        self.of_job = lru_cache(maxsize=4096)(self._of_job)

    def limits_claims(self, now: int) -> bool:
        """Some limit on running, rate or pause is in force."""
        return self._always or self._paused_until > now

    def counted_by(self, queue: str, tenant: str, task: str) -> Iterator[LimitKey]:
        """Under which limits on running a lease counts."""
        return (bound.key for bound in self.of_job(queue, tenant, task) if bound.running is not None)

    def _of_job(self, queue: str, tenant: str, task: str) -> tuple[KeyLimit, ...]:
        return (*self.of_line(queue, tenant), *self.of_task(task))

    def _of_line(self, queue: str, tenant: str) -> tuple[KeyLimit, ...]:
        keys = LimitKey("queue", queue), LimitKey("tenant", tenant), LimitKey("tenant", tenant, queue)
        return tuple(bound for key in keys if (bound := self.of(key)) is not None)

    def _of_task(self, task: str) -> tuple[KeyLimit, ...]:
        keys = LimitKey("type", task), *self.force.named(task)
        return tuple(bound for key in keys if (bound := self.of(key)) is not None)

    def of(self, key: LimitKey) -> KeyLimit | None:
        """What one key allows; None: everything."""
        running, rate, pause = self.force.running(key), self.force.rate(key), self.force.paused_until(key)
        if running is None and rate is None and pause is None:
            return None
        types = self.force.types_of(key) if key.kind == "named" else ()
        return KeyLimit(key, running, rate, 0 if pause is None else to_us(pause), types)


class _Read(NamedTuple):
    version: int
    kept: tuple[StoredLimit, ...]
    together: list[tuple[tuple[Limit, ...], ApplicableLimits]]
    """What operations brought, and what came of it; the newest last."""


class LimitCache:
    """The limits a store has read last, good until their version changes; then all of them are replaced at once."""

    def __init__(self) -> None:
        self._read = _Read(0, (), [])

    def applicable(self, tx: Transaction, given: tuple[Limit, ...], version: int) -> ApplicableLimits | None:
        read = self._read
        if read.version != version:
            read = self._read = _Read(version, read_kept(tx), [])
        if not given and not read.kept:
            return None
        for brought, applicable in read.together:
            if brought == given:
                return applicable
        applicable = ApplicableLimits(given, read.kept)
        read.together[:] = [*read.together[-_REMEMBERED:], (given, applicable)]
        return applicable


def applicable_limits(tx: Transaction, given: tuple[Limit, ...]) -> ApplicableLimits | None:
    """What is in force for this operation; None: nothing at all."""
    state: dict[str, int] = dict(tx.db.execute(_STATE))
    tx.leases_counted = "leases_counted" in state
    tx.keys_used = "limits_keys_used" in state
    tx.has_refusals = state.get("limits_refusals", 0) > 0
    version = state.get("limits_version", 0)
    if not given and not version:
        return None
    return (tx.limit_cache or LimitCache()).applicable(tx, given, version)


def read_kept(tx: Transaction, where: str = "true", params: tuple[object, ...] = ()) -> tuple[StoredLimit, ...]:
    """Limits that people set, by kind, name and queue."""
    rows = tx.db.execute(f"{_KEPT} where {where} order by kind, name, queue", params)
    return tuple(map(_stored, rows))


def forget_read(tx: Transaction) -> None:
    """Let everybody read the limits again."""
    tx.db.execute(_GROW)
