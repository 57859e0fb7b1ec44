"""`app.breakers`, and the guard around calls to a dependency that may fail.

The state belongs to the store and to every process; `core.breaker` holds the rules. While a breaker is closed and
nothing fails, a process asks the store at most every `FRESH_S` seconds: calls in between cost no round trip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, TypeVar, Unpack

from msgspec import Struct
from msgspec.structs import replace

from fairlane.client.context import job_in_force, require_all_tenants
from fairlane.client.enqueue.options import seconds
from fairlane.client.handle import ActOptions, audited
from fairlane.client.logs import GuardedLogger
from fairlane.client.rights import Right
from fairlane.client.steps import Steps, Verbs, arun_steps, ask, both, run_steps
from fairlane.core.breaker import BreakerPolicy, BreakerRecord
from fairlane.core.chance import Chance
from fairlane.core.clock import Clock
from fairlane.core.error_classes import Classifier
from fairlane.core.names import NamedFields, check_breaker_name
from fairlane.core.ops import Admit, ForceBreaker, ListBreakers, Op, Report, ResetBreaker
from fairlane.errors import BreakerOpen, Cancel, InvalidOption, MissingData, PutOff, Snooze, StoreError

if TYPE_CHECKING:
    from fairlane.client.store_access import StoreAccess


class Breaker(Struct, frozen=True, metaclass=NamedFields):
    """A circuit breaker by name, with figures that override the settings'.

    For instance `Breaker("smtp", threshold=3, cooldown=30)`.
    """

    name: str
    threshold: int | None = None
    """Consecutive failures that open it."""
    cooldown: float | timedelta | None = None
    """Seconds it stays open before a trial call."""
    probes: int | None = None
    """Concurrent trial calls while half open, and successes that close it."""

    def __post_init__(self) -> None:
        check_breaker_name(self.name)
        self.over(BreakerPolicy())

    @property
    def has_figures(self) -> bool:
        return (self.threshold, self.cooldown, self.probes) != (None, None, None)

    def over(self, policy: BreakerPolicy) -> BreakerPolicy:
        """The given policy, overridden by this breaker's own figures."""
        given = {
            "threshold": self.threshold,
            "cooldown_s": None if self.cooldown is None else seconds("cooldown", self.cooldown),
            "probes": self.probes,
        }
        # `replace` would skip the checks of the constructor.
        changed = replace(policy, **{name: value for name, value in given.items() if value is not None})
        return BreakerPolicy(threshold=changed.threshold, cooldown_s=changed.cooldown_s, probes=changed.probes)


def breaker_named(given: object) -> Breaker:
    if isinstance(given, Breaker):
        return given
    if isinstance(given, str):
        return Breaker(given)
    raise InvalidOption("breaker", given, 'a name, or Breaker("smtp", threshold=5, …)')


class BreakerAdmin(Verbs):
    """Methods for circuit breakers."""

    __slots__ = ()

    def _list(self) -> Steps[tuple[BreakerRecord, ...]]:
        """Every breaker that has been used, by name, as all processes see it."""
        return (yield from ask(ListBreakers())).breakers

    def _names(self) -> Steps[frozenset[str]]:
        """The breakers that have been used, and those of this application's tasks."""
        guarding = (task.definition.breaker for task in self._runtime.tasks.values())
        used = yield from self._list()
        return frozenset({record.name for record in used} | {one.name for one in guarding if one is not None})

    def _reset(self, breaker: str | Breaker, **about: Unpack[ActOptions]) -> Steps[BreakerRecord]:
        """Close a breaker by hand. Processes notice within two seconds; postponed jobs run at their scheduled time."""
        require_all_tenants("closing a breaker by hand")
        op = ResetBreaker(name=breaker_named(breaker).name, **audited(about))
        return (yield from ask(op)).breaker

    def _open(self, breaker: str | Breaker, **about: Unpack[ActOptions]) -> Steps[BreakerRecord]:
        """Open a breaker by hand: it stays open until somebody resets it. Processes notice within two seconds."""
        require_all_tenants("opening a breaker by hand")
        op = ForceBreaker(name=breaker_named(breaker).name, **audited(about))
        return (yield from ask(op)).breaker

    list, alist = both(_list, Right.READ)
    names, anames = both(_names, Right.READ)
    reset, areset = both(_reset, Right.ACT)
    open, aopen = both(_open, Right.ACT)

    def guard(self, breaker: str | Breaker) -> Guard:
        """A guard for `with` or `async with`, in any code: raises `BreakerOpen` if calls are not allowed.

        An exception that leaves the block counts as a failure unless it is `non_retryable`. Inside a job
        `BreakerOpen` snoozes the job and counts no attempt. Nested guards of the same breaker do nothing.
        """
        return self._runtime.circuits.guard(breaker)


logger = GuardedLogger("fairlane.breakers")

T = TypeVar("T")
Heard = Callable[[Report, BreakerRecord], None]
"""Called with what the store answered to a report."""

Verdict = Literal["success", "failure", "neither"]

FRESH_S = 2.0
"""How long a process trusts the state it last read of a breaker."""
SPREAD = 0.1
"""Jobs postponed by a breaker return spread over this share of its cooldown, not all at once."""


class Permit(NamedTuple):
    """A call may begin. The outcome of a trial call is always reported, because others wait for it."""

    name: str
    is_probe: bool = False


permits_in_force: ContextVar[tuple[tuple[str, Permit | None], ...]] = ContextVar("fairlane_permits", default=())
"""The guards around this code, outermost first; None if an outer guard of the same breaker reports for it."""


class Known:
    """The state of one breaker, as this process last read it."""

    __slots__ = ("failures", "heard_s", "is_closed", "retry_at")

    def __init__(self) -> None:
        self.is_closed = True
        self.failures = 0
        self.retry_at: datetime | None = None
        self.heard_s: float | None = None
        """None: read the store before the next call."""


class Circuits:
    """The breakers of one application, as this process knows them. Safe to share between threads and loops."""

    def __init__(
        self, access: StoreAccess, clock: Clock, chance: Chance, classifier: Classifier, policy: BreakerPolicy
    ) -> None:
        self._access, self._clock, self._chance, self._classifier = access, clock, chance, classifier
        self.policy = policy
        """For breakers without figures of their own."""
        self._declared: dict[str, Breaker] = {}
        self._known: dict[str, Known] = {}

    def copied(self, access: StoreAccess, clock: Clock, policy: BreakerPolicy) -> Circuits:
        """The same declarations over another store and clock, with nothing known of their state: for tests."""
        found = Circuits(access, clock, self._chance, self._classifier, policy)
        found._declared = dict(self._declared)
        return found

    def declare(self, given: str | Breaker) -> str:
        """Record a breaker's figures, once per name; returns the name."""
        breaker = breaker_named(given)
        if breaker.has_figures:
            first = self._declared.setdefault(breaker.name, breaker)
            if first != breaker:
                raise InvalidOption("breaker", breaker, f"the same figures everywhere: it was {first} before")
        return breaker.name

    def policy_of(self, name: str) -> BreakerPolicy:
        declared = self._declared.get(name)
        return self.policy if declared is None else declared.over(self.policy)

    def guard(self, given: str | Breaker) -> Guard:
        return Guard(self, self.declare(given))

    def entering(self, name: str, heard: Heard | None = None) -> Steps[Permit]:
        """Allow a call to begin, or raise `BreakerOpen`."""
        known = self._known.setdefault(name, Known())
        now_s = self._clock.monotonic()
        is_fresh = known.heard_s is not None and now_s - known.heard_s < FRESH_S
        if known.is_closed and not is_fresh:
            if known.heard_s is not None:
                known.heard_s = now_s  # One read is enough: calls that begin meanwhile use the last known state.
            yield from self._report(known, Report(name=name, policy=self.policy_of(name)), heard)
        if known.is_closed:
            return Permit(name)
        if is_fresh:
            raise self._open(name, known.retry_at)
        known.heard_s = now_s
        admission = yield from self._ask(Admit(name=name, policy=self.policy_of(name)))
        if admission is None:
            if known.retry_at is not None and known.retry_at <= self._clock.now():
                return Permit(name)
            raise self._open(name, known.retry_at)
        if not admission.admitted:
            known.retry_at = admission.retry_at
            raise self._open(name, admission.retry_at)
        known.heard_s = None
        known.is_closed = admission.state == "closed"
        return Permit(name, is_probe=not known.is_closed)

    def leaving(self, permit: Permit, verdict: Verdict, heard: Heard | None = None) -> Steps[None]:
        """Record how a call ended. A success is reported only if it changes the state."""
        known = self._known[permit.name]
        policy = self.policy_of(permit.name)
        if verdict == "failure":
            yield from self._report(known, Report(name=permit.name, policy=policy, failures=1), heard)
        elif verdict == "success" and (permit.is_probe or known.failures):
            yield from self._report(known, Report(name=permit.name, policy=policy, successes=1), heard)

    def verdict(self, error: BaseException | None) -> Verdict:
        """Whether an exception counts as a failure of the dependency."""
        if error is None:
            return "success"
        if not isinstance(error, Exception):
            # Cancellation from outside is not a failure, unless the call timed out.
            job = job_in_force.get()
            return "failure" if job is not None and job.stopping == "timeout" else "neither"
        if isinstance(error, (Cancel, MissingData, PutOff, Snooze)):
            return "neither"
        return "neither" if self._classifier.classify(error) == "non_retryable" else "failure"

    def run(self, steps: Steps[T]) -> T:
        return run_steps(self._access, steps)

    async def arun(self, steps: Steps[T]) -> T:
        return await arun_steps(self._access, steps)

    def _ask(self, op: Op[T]) -> Steps[T | None]:
        """The store's answer; None while it is unreachable, so that work continues without breakers."""
        try:
            return (yield from ask(op))
        except StoreError as error:
            logger.warning("breakers use their last known state: %s", error)
            return None

    def _report(self, known: Known, report: Report, heard: Heard | None) -> Steps[None]:
        breaker = yield from self._ask(report)
        if breaker is None:
            return
        known.is_closed = breaker.state == "closed"
        known.failures, known.retry_at = breaker.failures, breaker.retry_at
        known.heard_s = None if breaker.state == "half_open" else self._clock.monotonic()
        if heard is not None:
            heard(report, breaker)

    def _open(self, name: str, retry_at: datetime | None) -> BreakerOpen:
        # The instant is the store's, the clock is local: never wait longer than a cooldown, whatever the skew.
        cooldown_s = self.policy_of(name).cooldown_s
        left_s = cooldown_s if retry_at is None else (retry_at - self._clock.now()).total_seconds()
        wait_s = min(max(left_s, 0.0), cooldown_s) + SPREAD * cooldown_s * self._chance.fraction()
        return BreakerOpen(name, wait_s, retry_at)


@contextmanager
def around_by_caller(breaker: str | None) -> Iterator[None]:
    """Disable guards of this breaker inside the block: the caller, perhaps in another process, checks and reports."""
    token = permits_in_force.set(() if breaker is None else ((breaker, None),))
    try:
        yield
    finally:
        permits_in_force.reset(token)


class Guard:
    """A breaker around calls. Reusable, also concurrently."""

    __slots__ = ("_circuits", "name")

    def __init__(self, circuits: Circuits, name: str) -> None:
        self._circuits, self.name = circuits, name

    def __enter__(self) -> Self:
        permit = None if self._is_held() else self._circuits.run(self._circuits.entering(self.name))
        self._hold(permit)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if (permit := self._let_go()) is not None:
            self._circuits.run(self._circuits.leaving(permit, self._circuits.verdict(error)))

    async def __aenter__(self) -> Self:
        permit = None if self._is_held() else await self._circuits.arun(self._circuits.entering(self.name))
        self._hold(permit)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if (permit := self._let_go()) is not None:
            await self._circuits.arun(self._circuits.leaving(permit, self._circuits.verdict(error)))

    def __repr__(self) -> str:
        return f"<breaker {self.name}>"

    def _is_held(self) -> bool:
        return any(name == self.name for name, _ in permits_in_force.get())

    def _hold(self, permit: Permit | None) -> None:
        permits_in_force.set((*permits_in_force.get(), (self.name, permit)))

    def _let_go(self) -> Permit | None:
        *outer, (_, permit) = permits_in_force.get()
        permits_in_force.set(tuple(outer))
        return permit
