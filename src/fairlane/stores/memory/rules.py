"""What is allowed: limits given with an operation and limits kept here, put together once for as long as neither changes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from fairlane.core.limits import Limit, LimitKey, LimitsInForce, Rate, StoredLimit
from fairlane.stores.memory.census import aspect_of

_MANY = 10_000
"""Lines remembered at most: what is asked about again is worked out again."""


class Bounds(NamedTuple):
    """What holds claims under one key back."""

    key: LimitKey
    running: int | None
    rate: Rate | None
    paused_until: datetime | None

    def hold(self, now: datetime) -> bool:
        """False: there was only a pause, and it is over."""
        paused = self.paused_until is not None and self.paused_until > now
        return paused or self.running is not None or self.rate is not None


class Rules:
    """The limits in force, with what was worked out about them."""

    def __init__(self, given: tuple[Limit, ...], stored: Iterable[StoredLimit]) -> None:
        stored = tuple(stored)
        self.given = given
        """Kept alive: it is known by its identity."""
        self.in_force = LimitsInForce(given, stored)
        self._of_line: dict[tuple[str, str], tuple[Bounds, ...]] = {}
        self._of_type: dict[str, tuple[Bounds, ...]] = {}
        known = {limit.key for limit in (*given, *(record.limit for record in stored))}
        about_claims = self.bounds(known)
        self.counted_by = {aspect_of(bounds.key) for bounds in about_claims if bounds.running is not None}
        """What leases have to be counted by."""
        self._always = any(bounds.running is not None or bounds.rate is not None for bounds in about_claims)
        self._pauses = [bounds.paused_until for bounds in about_claims if bounds.paused_until is not None]

    def concern_claims(self, now: datetime) -> bool:
        """Whether there is any limit on running, rate or pause."""
        return self._always or any(until > now for until in self._pauses)

    def of_line(self, queue: str, tenant: str) -> tuple[Bounds, ...]:
        """What holds the claims from a tenant's lines in a queue back."""
        found = self._of_line.get((queue, tenant))
        if found is None:
            if len(self._of_line) >= _MANY:
                self._of_line.clear()
            keys = LimitKey("queue", queue), LimitKey("tenant", tenant), LimitKey("tenant", tenant, queue)
            found = self._of_line[queue, tenant] = self.bounds(keys)
        return found

    def of_type(self, task: str) -> tuple[Bounds, ...]:
        """What holds the claims of a task back."""
        found = self._of_type.get(task)
        if found is None:
            if len(self._of_type) >= _MANY:
                self._of_type.clear()
            found = self._of_type[task] = self.bounds((LimitKey("type", task), *self.in_force.named(task)))
        return found

    def bounds(self, keys: Iterable[LimitKey]) -> tuple[Bounds, ...]:
        """Of those keys under which anything holds claims back, in their order."""
        force = self.in_force
        found = (Bounds(key, force.running(key), force.rate(key), force.paused_until(key)) for key in keys)
        return tuple(bounds for bounds in found if bounds[1:] != (None, None, None))
