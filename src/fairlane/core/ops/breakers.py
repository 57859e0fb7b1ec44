"""Circuit breakers shared through the store, which makes each step atomic. The rules are in `core.breaker`."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from fairlane.core.breaker import Admission, BreakerPolicy, BreakerRecord
from fairlane.core.ops.base import Act, Op


class Admit(Op[Admission], frozen=True, kw_only=True):
    """Ask whether a call guarded by this breaker may go ahead, as `core.breaker.admit` says.

    An unknown breaker is closed; asking does not create it.
    """

    name: str
    policy: BreakerPolicy


class Report(Op[BreakerRecord], frozen=True, kw_only=True):
    """Report calls that ended: first `failures`, then `successes`, one by one as `core.breaker.report` says.

    Creates an unknown breaker, whatever is reported.
    """

    repeatable: ClassVar[bool] = False

    name: str
    policy: BreakerPolicy
    failures: int = 0
    successes: int = 0


class Breakers(Struct, frozen=True, kw_only=True):
    breakers: tuple[BreakerRecord, ...]


class ListBreakers(Op[Breakers], frozen=True, kw_only=True):
    """Every breaker, by name."""


class BreakerAct(Struct, frozen=True, kw_only=True):
    breaker: BreakerRecord


class ResetBreaker(Act[BreakerAct], frozen=True, kw_only=True):
    """Close it by hand, known or not.

    Audit, each time: `breaker_reset`, target `breaker:<name>`, no tenant, before and after {"state"}; an unknown
    breaker counts as closed before.
    """

    name: str


class ForceBreaker(Act[BreakerAct], frozen=True, kw_only=True):
    """Open it by hand until somebody resets it, known or not. Audit: `breaker_force_open`, likewise."""

    name: str
