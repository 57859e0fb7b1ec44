"""Circuit breakers for an application: what they are called, when they open, and the guard around a call.

The state is the store's and every process's; `core.breaker` holds the rules. A process looks at most every `FRESH_S`
seconds while a breaker is closed and nothing fails: calls in between cost no question to the store.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from fairlane.client.asking import Ask, both
from fairlane.client.handle import BY_DEFAULT
from fairlane.client.options import seconds
from fairlane.client.scoping import require_all_tenants
from fairlane.core.breaker import Breaker as BreakerRecord, BreakerPolicy
from fairlane.core.names import check_breaker_name, check_key
from fairlane.core.ops import BreakerAct, Breakers, ForceBreaker, ListBreakers, ResetBreaker
from fairlane.errors import InvalidOption

if TYPE_CHECKING:
    from fairlane.client.guarding import Circuits, Guard
    from fairlane.client.opening import StoreAccess


PROFILE_POLICIES = {
    "development": BreakerPolicy(threshold=3, cooldown_s=30.0),
    "production": BreakerPolicy(threshold=5, cooldown_s=60.0),
}


class Breaker(Struct, frozen=True):
    """A breaker by name, with its own figures where they differ from the profile's: `Breaker("smtp", threshold=3, cooldown=30)`."""

    name: str
    threshold: int | None = None
    """Failures in a row that open it."""
    cooldown: float | timedelta | None = None
    """Seconds it stays open before a call is tried."""
    probes: int | None = None
    """Calls tried at once while half open, and successes that close it."""

    def __post_init__(self) -> None:
        check_breaker_name(self.name)
        self.over(BreakerPolicy())

    @property
    def has_figures(self) -> bool:
        return (self.threshold, self.cooldown, self.probes) != (None, None, None)

    def over(self, policy: BreakerPolicy) -> BreakerPolicy:
        """The given policy with this breaker's own figures in place of its."""
        given = {
            "threshold": self.threshold,
            "cooldown_s": None if self.cooldown is None else seconds("cooldown", self.cooldown),
            "probes": self.probes,
        }
        # `replace` would pass by the checks of the constructor.
        changed = replace(policy, **{name: value for name, value in given.items() if value is not None})
        return BreakerPolicy(threshold=changed.threshold, cooldown_s=changed.cooldown_s, probes=changed.probes)


def breaker_named(given: object) -> Breaker:
    if isinstance(given, Breaker):
        return given
    if isinstance(given, str):
        return Breaker(given)
    raise InvalidOption("breaker", given, 'a name, or Breaker("smtp", threshold=5, …)')


def _breakers() -> Ask[Breakers, tuple[BreakerRecord, ...]]:
    """Every breaker that has been used, by name, as all processes see it."""
    return Ask(ListBreakers(), lambda answer: answer.breakers)


def _reset_breaker(
    breaker: str | Breaker, *, by: str = BY_DEFAULT, notes: str | None = None
) -> Ask[BreakerAct, BreakerRecord]:
    """Close a breaker by hand. Processes notice within two seconds; jobs it put off run when their time comes."""
    require_all_tenants("closing a breaker by hand")
    op = ResetBreaker(name=breaker_named(breaker).name, by=check_key("by", by), notes=notes)
    return Ask(op, lambda act: act.breaker)


def _force_breaker(
    breaker: str | Breaker, *, by: str = BY_DEFAULT, notes: str | None = None
) -> Ask[BreakerAct, BreakerRecord]:
    """Open a breaker by hand: it stays open until somebody resets it. Processes notice within two seconds."""
    require_all_tenants("opening a breaker by hand")
    op = ForceBreaker(name=breaker_named(breaker).name, by=check_key("by", by), notes=notes)
    return Ask(op, lambda act: act.breaker)


class Breaking:
    """The verbs of `Fairlane` about breakers."""

    if TYPE_CHECKING:

        @property
        def access(self) -> StoreAccess: ...

        circuits: Circuits

    breakers, abreakers = both(_breakers)
    reset_breaker, areset_breaker = both(_reset_breaker)
    force_breaker, aforce_breaker = both(_force_breaker)

    def breaker(self, breaker: str | Breaker) -> Guard:
        """A guard for `with` or `async with`, in any code: raises `BreakerOpen` instead of letting a call begin.

        An exception that leaves the block counts as a failure unless it is `non_retryable`. Inside a job `BreakerOpen` snoozes the
        job, uncharged. Around a block guarded by the same breaker already, it does nothing.
        """
        return self.circuits.guard(breaker)
