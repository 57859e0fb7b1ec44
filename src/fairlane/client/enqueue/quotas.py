"""Limits declared by code, applied to enqueues: rate tokens before, refusals and warnings after.

The client's own connection is used, never the caller's: a shared row is never written in a caller's transaction.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fairlane.client.logs import GuardedLogger
from fairlane.client.settings.model import Settings
from fairlane.client.steps import Steps, ask
from fairlane.core.alike import lines_of
from fairlane.core.clock import Clock
from fairlane.core.ids import EVERY_TENANT
from fairlane.core.job import JobSpec
from fairlane.core.limits import Limit, LimitsInForce, Rate, StoredLimit, check_limit, read_rate
from fairlane.core.names import check_limit_name
from fairlane.core.ops import ALL_TENANTS, AddEvents, EnqueueResult, GetStats, LimitHit, ListLimits, TakeTokens, only
from fairlane.core.ops.events import EventDraft
from fairlane.errors import EnqueueRateReached, InvalidOption, StoreError, StoreUnavailable, TenantLimitReached

if TYPE_CHECKING:
    from fairlane.client.task import Definition

logger = GuardedLogger("fairlane.client")

LOOK_EVERY_S = 5.0
"""How soon a process applies an enqueue rate set at run time, and learns of the first tenant."""
WARN_EVERY_S = 60.0
"""How often a warning about a tenant at its limit is logged, instead of for every job."""
COUNT_EVERY_S = 1.0
"""What other processes add is counted this often; a limit that was reached is not counted again before."""
FEW = 8
"""Calls of a second that are counted each; with the next one it is asked how many jobs there is room for."""
REMEMBERED = 1_000
_FURTHER_ONES = {"warn": "queued", "hold": "held", "reject": "refused"}

RateLike = str | int | Rate
"""`"50/min"`, a number of starts a minute, or a Rate."""


def rate_or_none(option: str, given: RateLike | None) -> Rate | None:
    return None if given is None else read_rate(option, given)


class CodeLimits:
    """The limits declared by an application's settings and tasks."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._named: dict[str, Limit] = {}
        self._shared: dict[str, list[str]] = {}
        self._tasks: list[Limit] = []
        self._all: tuple[Limit, ...] | None = None

    def copied(self, settings: Settings) -> CodeLimits:
        """The same declarations with other settings: for tests."""
        found = CodeLimits(settings)
        found._named, found._tasks = dict(self._named), list(self._tasks)
        found._shared = {name: list(tasks) for name, tasks in self._shared.items()}
        return found

    def declare(self, name: str, running: int | None, rate: RateLike | None) -> Limit:
        """Record a named limit, once per name; without figures it is the declared limit, or one set at run time."""
        checked = check_limit_name(name)
        limit = Limit(
            kind="named", name=checked, running=running, rate=None if rate is None else read_rate("rate", rate)
        )
        first = self._named.setdefault(checked, check_limit(limit))
        if (running, rate) != (None, None) and first != limit:
            if (first.running, first.rate) != (None, None):
                raise InvalidOption("limit", name, f"the same figures everywhere: it was {first} before")
            first = self._named[checked] = limit
        self._all = None
        return first

    def add_task(self, task: Definition[Any]) -> None:
        for name in task.limits:
            self.declare(name, None, None)
            self._shared.setdefault(name, []).extend((task.name, *task.aliases))
        if task.running is not None or task.rate is not None:
            if task.aliases:
                # The same figures for its jobs of all names together, until those of the old ones have run.
                self.declare(task.name, task.running, task.rate)
                self._shared.setdefault(task.name, []).extend((task.name, *task.aliases))
            self._tasks.append(check_limit(Limit(kind="type", name=task.name, running=task.running, rate=task.rate)))
        self._all = None

    def gathered(self) -> tuple[Limit, ...]:
        if self._all is None:
            self._all = tuple(self._gather())
        return self._all

    def _gather(self) -> Iterator[Limit]:
        settings = self._settings
        for policy in settings.queues.values():
            yield from policy.limits()
        every = Limit(
            kind="tenant",
            name=EVERY_TENANT,
            running=settings.tenant_running,
            rate=rate_or_none("tenant_rate", settings.tenant_rate),
            enqueue_rate=rate_or_none("tenant_enqueue_rate", settings.tenant_enqueue_rate),
            payload_bytes=settings.tenant_payload_bytes,
        )
        if every != Limit(kind="tenant", name=EVERY_TENANT):
            yield every
        yield from self._tasks
        for name, limit in self._named.items():
            yield Limit(
                kind="named",
                name=name,
                running=limit.running,
                rate=limit.rate,
                types=tuple(sorted(self._shared.get(name, ()))),
            )


class CountedLine:
    """How far one tenant is from a limit that only warns, in one queue, during one second."""

    __slots__ = ("calls", "jobs", "room", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s, self.calls, self.jobs = since_s, 0, 0
        self.room: float | None = None
        """How many more jobs cannot pass the limit, while nobody else adds any; None: it is counted at each call."""

    def add(self, jobs: int) -> None:
        self.calls += 1
        self.jobs += jobs
        self.use(jobs)

    def use(self, jobs: int) -> None:
        if self.room is not None:
            self.room = None if jobs > self.room else self.room - jobs


class TenantQuotas:
    """Applies tenants' limits to one application's enqueues."""

    def __init__(self, limits: CodeLimits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._gathered: tuple[Limit, ...] | None = None
        self._rates: tuple[Limit, ...] = ()
        self._depths: tuple[Limit, ...] = ()
        self._look_at_s = float("-inf")
        self._stored: tuple[StoredLimit, ...] = ()
        self._warned_s: dict[tuple[str, str], float] = {}
        self._lines: dict[tuple[str, str], CountedLine] = {}
        """By tenant and queue."""

    def _of_code(self) -> tuple[tuple[Limit, ...], tuple[Limit, ...]]:
        """What the code says of tenants' rates of enqueueing, and of how much of theirs may wait."""
        every = self._limits.gathered()
        if every is not self._gathered:
            self._gathered = every
            self._rates = tuple(limit for limit in every if limit.enqueue_rate is not None)
            self._depths = tuple(
                limit
                for limit in every
                if limit.kind == "tenant" and (limit.waiting is not None or limit.payload_bytes is not None)
            )
        return self._rates, self._depths

    def applied_to(self, specs: Sequence[JobSpec]) -> tuple[Limit, ...]:
        """The code's limits that an enqueue of these jobs runs under."""
        _, depths = self._of_code()
        if not depths:
            return ()
        queues = {queue for _, queue in lines_of(specs)}
        return tuple([limit for limit in depths if not limit.queue or limit.queue in queues])

    def warns(
        self, specs: Sequence[JobSpec], limits: Sequence[Limit], conn: object | None, *, asks: bool
    ) -> Steps[bool]:
        """Whether limits that only warn are to be counted: where these jobs could pass one, by what is known of the
        last second; one that was reached is not counted again before the second has passed.

        Counting reads as many jobs as the limit allows: with 500 it took PostgreSQL six times as long as the enqueue.
        """
        if not limits and not self._stored:
            return True
        now_s, is_due = self._clock.monotonic(), False
        for name, jobs in lines_of(specs).items():
            line = self._lines.get(name)
            if line is None or now_s - line.since_s >= COUNT_EVERY_S:
                if len(self._lines) >= REMEMBERED:
                    self._lines.clear()
                line = self._lines[name] = CountedLine(now_s)
            line.add(jobs)
            if line.room is None and asks and line.calls > FEW:
                unseen = 0 if conn is None else line.jobs  # in the caller's transaction
                line.room = (yield from self._room(*name, limits)) - unseen
                line.use(jobs)
            is_due = is_due or line.room is None
        return is_due

    def _room(self, tenant: str, queue: str, limits: Sequence[Limit]) -> Steps[float]:
        """How many more jobs a tenant may have in a queue before a limit warns."""
        terms = LimitsInForce(limits, self._stored).terms(tenant, queue)
        if terms.waiting is None or terms.when_full != "warn":
            return math.inf
        try:
            stats = yield from ask(GetStats(scope=only(tenant), cap=terms.waiting, parts=("queues",)))
        except StoreUnavailable:
            return -1.0
        found = sum(one.pending + one.processing + one.failed for one in stats.queues if one.queue == queue)
        return terms.waiting - found

    def before(self, specs: Sequence[JobSpec], unless: Callable[[], Steps[bool]] | None = None) -> Steps[None]:
        """Take the tokens these jobs need; raises `EnqueueRateReached` if there are not enough.

        `unless` is asked only where a rate is in force: none are taken if it says so.
        """
        given, _ = self._of_code()
        now_s = self._clock.monotonic()
        if now_s >= self._look_at_s:
            self._look_at_s = now_s + LOOK_EVERY_S
            self._stored = (yield from ask(ListLimits())).limits
        rated = [stored for stored in self._stored if stored.limit.enqueue_rate is not None]
        if not given and not rated:
            return
        in_force = LimitsInForce(given, rated)
        counts: Counter[str] = Counter()
        for (tenant, _), count in lines_of(specs).items():
            if in_force.enqueue_rate(tenant) is not None:
                counts[tenant] += count
        if not counts or (unless is not None and (yield from unless())):
            return
        taken = yield from ask(TakeTokens(counts=counts, limits=given))
        if not taken.granted:
            assert taken.tenant is not None
            assert taken.rate is not None
            wait_s = None if taken.retry_at is None else (taken.retry_at - self._clock.now()).total_seconds()
            wait_s = None if wait_s is None else max(wait_s, 0.1)
            raise EnqueueRateReached(taken.tenant, str(taken.rate), wait_s)

    def after(self, result: EnqueueResult, *, may_tell: bool) -> Steps[None]:
        """Warn about limits that were reached, then raise if one of them refused the call.

        With `may_tell`, an event is written for each warning.
        """
        refused = result.refused
        for hit in result.hits:
            if hit.policy == "warn" and (line := self._lines.get((hit.tenant, hit.queue))) is not None:
                line.since_s, line.room = self._clock.monotonic(), math.inf
        reached = result.hits if refused is None else (refused,) if refused.cause == "waiting" else ()
        events = tuple(warning_of(hit) for hit in reached if self._is_news(hit))
        if events and may_tell:
            try:
                yield AddEvents(events=events)
            except StoreError:
                # The caller's answer matters more than the event: without it a refusal would read like an outage.
                logger.warning("the warning about a tenant's limit could not be written as an event", exc_info=True)
        if refused is not None:
            raise TenantLimitReached(refused.tenant, refused.queue, refused.cause, refused.limit, refused.found)

    def _is_news(self, hit: LimitHit) -> bool:
        now_s, line = self._clock.monotonic(), (hit.tenant, hit.queue)
        if now_s - self._warned_s.get(line, float("-inf")) < WARN_EVERY_S:
            return False
        if len(self._warned_s) >= REMEMBERED:
            self._warned_s.clear()
        self._warned_s[line] = now_s
        return True


def warning_of(hit: LimitHit) -> EventDraft:
    """Log that a tenant is at its limit; the event that says so, too."""
    logger.warning(
        'tenant "%s" is at its limit of %d jobs in queue "%s"; further ones are %s',
        hit.tenant,
        hit.limit,
        hit.queue,
        _FURTHER_ONES[hit.policy],
        extra={"tenant": hit.tenant, "queue": hit.queue, "limit": hit.limit},
    )
    data = {"organization": hit.tenant, "queue": hit.queue, "limit": hit.limit, "policy": hit.policy}
    return EventDraft(kind="job_limit_warning", tenant=hit.tenant, data=data)


class DepthWarning:
    """Logs a warning each time the number of waiting jobs grows past the warning depth.

    With a capacity the store counts at every enqueue; without one this counts where its own jobs could have reached
    the depth, and once a second for what others add.
    """

    def __init__(self, depth: int, clock: Clock) -> None:
        self._warn_depth, self._clock = depth, clock
        self._next_count_s = float("-inf")
        self._room = 0
        self._is_deep = False

    def after(self, result: EnqueueResult) -> Steps[None]:
        if result.depth is not None:
            created = sum(receipt.disposition == "created" for receipt in result.receipts)
            self._compare(result.depth + created)
            return
        now_s = self._clock.monotonic()
        self._room -= len(result.receipts)
        if now_s < self._next_count_s and (self._room > 0 or self._is_deep):
            return
        self._next_count_s = now_s + COUNT_EVERY_S
        stats = yield from ask(GetStats(scope=ALL_TENANTS, cap=self._warn_depth + 1, parts=("queues",)))
        self._compare(sum(queue.ready + queue.scheduled for queue in stats.queues))

    def _compare(self, depth: int) -> None:
        self._room = self._warn_depth - depth
        was_deep, self._is_deep = self._is_deep, depth >= self._warn_depth
        if self._is_deep and not was_deep:
            logger.warning("%d jobs or more are waiting, the warning depth is %d", depth, self._warn_depth)
