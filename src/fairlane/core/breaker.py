"""Circuit breakers as values: when calls to a failing dependency stop, and how they start again.

closed ──threshold failures in a row──▶ open ──cooldown over, first call──▶ half_open
  ▲                                       ▲                                    │
  └────────── `probes` successes ─────────┼────────────────────────────────────┤
                                          └───────────── a failure ────────────┘
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from fairlane.errors import InvalidOption

BreakerState = Literal["closed", "open", "half_open"]


class BreakerPolicy(Struct, frozen=True, kw_only=True):
    """When a breaker opens and how it closes; the figures of the production profile."""

    threshold: int = 5
    """Failures in a row that open it. Rate-limit answers count."""
    cooldown_s: float = 60.0
    """How long it stays open before a call is tried."""
    probes: int = 1
    """Calls let through at once while half open, and successes that close it."""

    def __post_init__(self) -> None:
        if self.threshold < 1 or self.probes < 1:
            raise InvalidOption("threshold and probes", (self.threshold, self.probes), "whole numbers from 1 on")
        if not 0 < self.cooldown_s <= 86_400:
            raise InvalidOption("cooldown_s", self.cooldown_s, "seconds, above 0 and at most a day")


class BreakerRecord(Struct, frozen=True, kw_only=True):
    """One breaker, as every process sees it."""

    name: str
    state: BreakerState = "closed"
    failures: int = 0
    """In a row, while closed."""
    successes: int = 0
    """Of probes, while half open."""
    probing: int = 0
    """Probes let through and not yet reported."""
    opened_at: datetime | None = None
    half_opened_at: datetime | None = None
    retry_at: datetime | None = None
    """Open: when a call is tried again; None: not before somebody resets it (forced open)."""
    last_failure_at: datetime | None = None
    updated_at: datetime


class Admission(Struct, frozen=True, kw_only=True):
    admitted: bool
    state: BreakerState
    retry_at: datetime | None = None
    """Refused: when to ask again; None: not before somebody resets it."""


def admit(breaker: BreakerRecord, policy: BreakerPolicy, now: datetime) -> tuple[BreakerRecord, Admission]:
    """May a call go ahead? The breaker after asking, and the answer."""
    if breaker.state == "closed":
        return breaker, Admission(admitted=True, state="closed")
    if breaker.state == "open":
        if breaker.retry_at is None or now < breaker.retry_at:
            return breaker, Admission(admitted=False, state="open", retry_at=breaker.retry_at)
        breaker = replace(
            breaker, state="half_open", half_opened_at=now, successes=0, probing=0, retry_at=None, updated_at=now
        )
    # A probe that nobody reports within a cooldown is given up: its process may be gone.
    patience = timedelta(seconds=policy.cooldown_s)
    if breaker.probing >= policy.probes and now - breaker.updated_at < patience:
        return breaker, Admission(admitted=False, state="half_open", retry_at=breaker.updated_at + patience)
    probing = 1 if breaker.probing >= policy.probes else breaker.probing + 1
    return replace(breaker, probing=probing, updated_at=now), Admission(admitted=True, state="half_open")


def report(breaker: BreakerRecord, policy: BreakerPolicy, *, failed: bool, now: datetime) -> BreakerRecord:
    """The breaker after one call's outcome."""
    if breaker.state == "open":
        # From a call begun before it opened: known, but it changes nothing.
        return replace(breaker, last_failure_at=now, updated_at=now) if failed else breaker
    if failed:
        failures = breaker.failures + 1
        if breaker.state == "half_open" or failures >= policy.threshold:
            return replace(
                breaker,
                state="open",
                failures=failures,
                successes=0,
                probing=0,
                opened_at=now,
                retry_at=now + timedelta(seconds=policy.cooldown_s),
                last_failure_at=now,
                updated_at=now,
            )
        return replace(breaker, failures=failures, last_failure_at=now, updated_at=now)
    if breaker.state == "half_open":
        successes, probing = breaker.successes + 1, max(breaker.probing - 1, 0)
        if successes >= policy.probes:
            return reset(breaker, now)
        return replace(breaker, successes=successes, probing=probing, updated_at=now)
    return replace(breaker, failures=0, updated_at=now) if breaker.failures else breaker


def begun_by(breaker: BreakerRecord, now: datetime) -> BreakerRecord:
    """The breaker after the clock was set back to `now`: what began in the future begins now."""
    retry_at = breaker.retry_at
    if retry_at is not None and breaker.opened_at is not None and breaker.opened_at > now:
        retry_at = now + (retry_at - breaker.opened_at)
    names = ("opened_at", "half_opened_at", "last_failure_at", "updated_at")
    instants = {name: at and min(at, now) for name in names for at in [getattr(breaker, name)]}
    return replace(breaker, retry_at=retry_at, **instants)


def reset(breaker: BreakerRecord, now: datetime) -> BreakerRecord:
    return BreakerRecord(name=breaker.name, last_failure_at=breaker.last_failure_at, updated_at=now)


def force_open(breaker: BreakerRecord, now: datetime) -> BreakerRecord:
    """Open until somebody resets it."""
    return replace(breaker, state="open", successes=0, probing=0, opened_at=now, retry_at=None, updated_at=now)
