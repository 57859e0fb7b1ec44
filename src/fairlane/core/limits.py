"""Limits: how much of something may wait, run at once, or start within a span of time.

queue   one queue as a whole                       type   one task
tenant  one tenant, or every tenant (`*`); over    named  several tasks together: what they all call
        all queues, or in one queue                key    each key of that name: `customer` of `customer:42`

The application's own jobs, of the tenant `system`, belong to nobody: limits of every tenant do not apply to them.
Limits are also read as people write them: `"50/min"`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from fairlane.core.ids import EVERY_TENANT, SYSTEM_TENANT
from fairlane.core.names import NamedFields, check_limit_name, check_queue_name, check_task_name, check_tenant
from fairlane.errors import InvalidOption

LimitKind = Literal["queue", "tenant", "type", "named", "key"]
LIMIT_KINDS: tuple[LimitKind, ...] = ("queue", "tenant", "type", "named", "key")

FullPolicy = Literal["warn", "reject", "hold"]
"""At the waiting limit: queue it all the same and say so, refuse it, or take it in and keep it from being claimed."""

NO_LIMIT = -1
"""As a number set by a person: no limit, whatever is given elsewhere."""
HIGHEST_NUMBER = 2**31 - 1


class Rate(Struct, frozen=True, omit_defaults=True, metaclass=NamedFields):
    """Never more than `count` claims in any span of `period_s`, by the store's clock.

    A job starts a moment after its claim, so the system it calls may see more within one span: `spread` claims one
    job every `period_s / count` instead, and `Rate(5, 1, spread=True)` is `Rate(1, 0.2)`.
    """

    count: int
    period_s: float
    spread: bool = False

    def __post_init__(self) -> None:
        if self.spread:
            force_setattr(self, "spread", False)
            if self.count > 1:
                force_setattr(self, "period_s", self.period_s / self.count)
                force_setattr(self, "count", 1)

    def __str__(self) -> str:
        """`50/min`: the way it is written."""
        if self.count == NO_LIMIT:
            return _NO_LIMIT
        for unit, span_s in (("d", 86_400.0), ("h", 3600.0), ("min", 60.0)):
            if self.period_s % span_s == 0:
                times = self.period_s / span_s
                return f"{self.count}/{'' if times == 1 else f'{times:g}'}{unit}"
        return f"{self.count}/{'' if self.period_s == 1 else f'{self.period_s:g}'}s"


class LimitKey(NamedTuple):
    """What a limit is about."""

    kind: LimitKind
    name: str
    """Of the queue, tenant (or `*`), task, or the limit's own."""
    queue: str = ""
    """For a tenant: in this queue alone; empty: over all of them."""


Figure = Annotated[int, Meta(ge=NO_LIMIT, le=HIGHEST_NUMBER, description="-1: no limit.")]


class Limit(Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=NamedFields):
    """What is allowed to one thing. None: not set here; NO_LIMIT: explicitly without limit."""

    kind: LimitKind
    name: str
    queue: str = ""
    running: Figure | None = None
    """Leases at once."""
    rate: Rate | None = None
    """Claims."""
    waiting: Figure | None = None
    """For a tenant: jobs ready, scheduled, held and leased in one queue."""
    when_full: FullPolicy | None = None
    """For a tenant: what happens at `waiting`; `warn` where nobody says."""
    enqueue_rate: Rate | None = None
    """For a tenant over all queues: jobs enqueued."""
    payload_bytes: Figure | None = None
    """For a tenant: the size of one payload."""
    types: tuple[str, ...] = ()
    """For a named limit: the tasks that share it."""

    @property
    def key(self) -> LimitKey:
        return LimitKey(self.kind, self.name, self.queue)

    @property
    def is_for_claims(self) -> bool:
        """It may hold claims back: a Turn is told of it. The others are for enqueues."""
        return self.kind != "key" and (self.running is not None or self.rate is not None or self.kind == "named")

    def is_for_claims_from(self, queues: frozenset[str]) -> bool:
        """It may hold claims from one of these queues back."""
        queue = self.name if self.kind == "queue" else self.queue
        return self.is_for_claims and (not queue or queue in queues)


class StoredLimit(Struct, frozen=True, kw_only=True):
    """A limit set at run time. Field by field it wins over one that the code gives for the same thing."""

    limit: Limit
    by: str
    at: datetime
    paused_until: datetime | None = None
    """Nothing under it is claimed before."""


class TenantTerms(Struct, frozen=True, kw_only=True):
    """What is in force for one tenant's enqueues to one queue. None: no limit."""

    waiting: int | None
    when_full: FullPolicy
    payload_bytes: int | None


class LimitsInForce:
    """What the code gives and what people have set, put together.

    The particular wins over the general (a tenant's own over every tenant's; `system` has only its own), and for the
    same thing what a person set wins over what the code gives.
    """

    def __init__(self, given: Iterable[Limit], stored: Iterable[StoredLimit] = ()) -> None:
        self._given = {limit.key: limit for limit in given}
        self._stored = {record.limit.key: record for record in stored}

    def running(self, key: LimitKey) -> int | None:
        """How many leases at once; for a tenant of its own or, failing that, as every tenant."""
        found = next((limit.running for limit in self._about(key) if limit.running is not None), None)
        return None if found == NO_LIMIT else found

    def rate(self, key: LimitKey) -> Rate | None:
        found = next((limit.rate for limit in self._about(key) if limit.rate is not None), None)
        return None if found is None or found.count == NO_LIMIT else found

    def enqueue_rate(self, tenant: str) -> Rate | None:
        about = self._about(LimitKey("tenant", tenant))
        found = next((limit.enqueue_rate for limit in about if limit.enqueue_rate is not None), None)
        return None if found is None or found.count == NO_LIMIT else found

    def paused_until(self, key: LimitKey) -> datetime | None:
        record = self._stored.get(key)
        return None if record is None else record.paused_until

    def terms(self, tenant: str, queue: str) -> TenantTerms:
        """In turn: the tenant in this queue, the tenant, every tenant in this queue, every tenant."""
        names = (tenant,) if tenant == SYSTEM_TENANT else (tenant, EVERY_TENANT)
        keys = [LimitKey("tenant", name, where) for name in names for where in (queue, "")]
        said = [limit for key in keys for limit in self._at(key)]
        waiting = next((limit.waiting for limit in said if limit.waiting is not None), None)
        size = next((limit.payload_bytes for limit in said if limit.payload_bytes is not None), None)
        return TenantTerms(
            waiting=None if waiting == NO_LIMIT else waiting,
            when_full=next((limit.when_full for limit in said if limit.when_full is not None), "warn"),
            payload_bytes=None if size == NO_LIMIT else size,
        )

    def named(self, task: str) -> list[LimitKey]:
        """The named limits a task is under, by name: as a person listed its tasks, else as the code does."""
        names = {key for key in (*self._given, *self._stored) if key.kind == "named"}
        return sorted(key for key in names if task in self.types_of(key))

    def types_of(self, key: LimitKey) -> tuple[str, ...]:
        """The tasks under a named limit."""
        return next((limit.types for limit in self._at(key) if limit.types), ())

    def keys_of(self, queue: str, tenant: str, task: str) -> list[LimitKey]:
        """Everything a claim of this job is counted under."""
        return [
            LimitKey("queue", queue),
            LimitKey("tenant", tenant),
            LimitKey("tenant", tenant, queue),
            LimitKey("type", task),
            *self.named(task),
        ]

    def _about(self, key: LimitKey) -> Iterator[Limit]:
        yield from self._at(key)
        if key.kind == "tenant" and key.name != SYSTEM_TENANT:
            yield from self._at(key._replace(name=EVERY_TENANT))

    def _at(self, key: LimitKey) -> Iterator[Limit]:
        if key in self._stored:
            yield self._stored[key].limit
        if key in self._given:
            yield self._given[key]


LONGEST_PERIOD_S = 86_400.0
HIGHEST_COUNT = 1_000_000
"""A rate is exact because its starts are remembered, up to this many."""

_UNITS = {"s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
_UNITS |= {"d": 86_400.0, "day": 86_400.0}
_TEXT = re.compile(r"\s*(\d{1,9})\s*(?:/|per)\s*(\d{1,6}(?:\.\d{1,9})?)?\s*([a-z]+)(\s+spread)?\s*")
_NO_LIMIT = "no limit"
_EXPECTED = f'"50/min", "10/s", "100/5min", "10/s spread", or {NO_LIMIT} for no limit'


def read_rate(option: str, given: object) -> Rate:
    """A rate from its text, such as `50/min`, `100 per 5min` or `10/s spread`; from a number: that many a minute.

    `-1`: explicitly without limit.
    """
    if isinstance(given, str) and given.strip().lower() in (str(NO_LIMIT), _NO_LIMIT):
        given = NO_LIMIT
    if isinstance(given, str):
        found = _TEXT.fullmatch(given.lower())
        unit = found and _UNITS.get(found[3])
        if not found or unit is None:
            raise InvalidOption(option, given, _EXPECTED)
        given = Rate(int(found[1]), float(found[2] or 1) * unit, spread=bool(found[4]))
    elif isinstance(given, int) and not isinstance(given, bool):
        given = Rate(given, 60.0)
    if not isinstance(given, Rate):
        raise InvalidOption(option, given, _EXPECTED)
    if given.count == NO_LIMIT:
        return given
    if not (0 <= given.count <= HIGHEST_COUNT and 0.001 <= given.period_s <= LONGEST_PERIOD_S):
        is_writable = abs(given.count) <= 1000 * HIGHEST_COUNT
        raise InvalidOption(
            option,
            str(given) if is_writable else given,
            f"0 to {HIGHEST_COUNT:,} starts in a period of 1 ms to {timedelta(days=1)}",
        )
    return given


def check_limit(limit: Limit) -> Limit:
    """The limit itself, or an error that says what is wrong with it."""
    if limit.kind not in LIMIT_KINDS:
        raise InvalidOption("kind of limit", limit.kind, f"one of {', '.join(LIMIT_KINDS)}")
    {
        "queue": check_queue_name,
        "tenant": lambda name: name if name == EVERY_TENANT else check_tenant(name),
        "type": check_task_name,
        "named": check_limit_name,
        "key": check_limit_name,
    }[limit.kind](limit.name)
    if limit.queue:
        check_queue_name(limit.queue)
    for option in ("running", "waiting", "payload_bytes"):
        number = getattr(limit, option)
        if number is not None and (
            isinstance(number, bool) or not isinstance(number, int) or not NO_LIMIT <= number <= HIGHEST_NUMBER
        ):
            raise InvalidOption(
                option, number, f"a whole number from 0 to {HIGHEST_NUMBER}, or {NO_LIMIT} for no limit"
            )
    for option in ("rate", "enqueue_rate"):
        if getattr(limit, option) is not None:
            read_rate(option, getattr(limit, option))
    if limit.when_full not in (None, "warn", "reject", "hold"):
        raise InvalidOption("when_full", limit.when_full, '"warn", "reject" or "hold"')
    for task in limit.types:
        check_task_name(task)
    _check_place(limit)
    return limit


def _check_place(limit: Limit) -> None:
    """Some limits only make sense on some things."""
    if limit.kind != "tenant":
        for option in ("queue", "waiting", "when_full", "enqueue_rate", "payload_bytes"):
            if getattr(limit, option) not in (None, ""):
                raise InvalidOption(
                    option, getattr(limit, option), f"nothing: only a tenant's limit has one, this is a {limit.kind}'s"
                )
    if limit.queue and limit.enqueue_rate is not None:
        raise InvalidOption(
            "enqueue_rate", str(limit.enqueue_rate), "a limit over all queues: a tenant's without a queue"
        )
    if limit.types and limit.kind != "named":
        raise InvalidOption("types", limit.types, "a named limit: only that is shared by tasks")
