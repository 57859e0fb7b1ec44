"""What is allowed: limits given with an operation and limits kept here, put together once for as long as neither changes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from fairlane.core.limit import Limit, LimitKey, LimitsInForce, Rate, StoredLimit

_MANY = 10_000
"""Keys remembered at most: a tenant that is asked about again is worked out again."""


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
        self._bounds: dict[LimitKey, Bounds | None] = {}
        self._named: dict[str, tuple[LimitKey, ...]] = {}
        known = {limit.key for limit in (*given, *(record.limit for record in stored))}
        about_claims = [bounds for bounds in map(self.bounds, known) if bounds is not None]
        self.count_leases = any(bounds.running is not None for bounds in about_claims)
        self._always = self.count_leases or any(bounds.rate is not None for bounds in about_claims)
        self._pauses = [bounds.paused_until for bounds in about_claims if bounds.paused_until is not None]

    def concern_claims(self, now: datetime) -> bool:
        """Whether there is any limit on running, rate or pause."""
        return self._always or any(until > now for until in self._pauses)

    def bounds(self, key: LimitKey) -> Bounds | None:
        """None: nothing holds claims under it back."""
        try:
            return self._bounds[key]
        except KeyError:
            found = Bounds(key, self.in_force.running(key), self.in_force.rate(key), self.in_force.paused_until(key))
            if len(self._bounds) >= _MANY:
                self._bounds.clear()
            bounds = self._bounds[key] = None if found[1:] == (None, None, None) else found
            return bounds

    def named(self, task: str) -> tuple[LimitKey, ...]:
        """The named limits a task is under."""
        named = self._named.get(task)
        if named is None:
            if len(self._named) >= _MANY:
                self._named.clear()
            named = self._named[task] = tuple(self.in_force.named(task))
        return named
