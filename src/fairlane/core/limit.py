"""Limits: how much of something may wait, run at once, or start within a span of time.

queue   one queue as a whole                       type   one task
tenant  one tenant, or every tenant (`*`); over    named  several tasks together: what they all call
        all queues, or in one queue

The application's own jobs, of the tenant `system`, belong to nobody: what is said of every tenant is not meant for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal, NamedTuple

from msgspec import Struct

from fairlane.core.ids import SYSTEM_TENANT

LimitKind = Literal["queue", "tenant", "type", "named"]
LIMIT_KINDS: tuple[LimitKind, ...] = ("queue", "tenant", "type", "named")

FullPolicy = Literal["warn", "reject", "hold"]
"""At the waiting limit: queue it all the same and say so, refuse it, or take it in and keep it from being claimed."""

EVERY_TENANT = "*"
"""Each one but `system`, which has only what is said of it by name."""
NO_LIMIT = -1
"""As a number set by a person: no limit, whatever is given elsewhere."""


class Rate(Struct, frozen=True):
    """Never more than `count` in any span of `period_s`, by the store's clock."""

    count: int
    period_s: float


class LimitKey(NamedTuple):
    """What a limit is about."""

    kind: LimitKind
    name: str
    """Of the queue, tenant (or `*`), task, or the limit's own."""
    queue: str = ""
    """For a tenant: in this queue alone; empty: over all of them."""


class Limit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is allowed to one thing. None: nothing is said here; NO_LIMIT: no limit, said out loud."""

    kind: LimitKind
    name: str
    queue: str = ""
    running: int | None = None
    """Leases at once."""
    rate: Rate | None = None
    """Claims."""
    waiting: int | None = None
    """For a tenant: jobs ready, scheduled, held and leased in one queue."""
    when_full: FullPolicy | None = None
    """For a tenant: what happens at `waiting`; `warn` where nobody says."""
    enqueue_rate: Rate | None = None
    """For a tenant over all queues: jobs enqueued."""
    payload_bytes: int | None = None
    """For a tenant: the size of one payload."""
    types: tuple[str, ...] = ()
    """For a named limit: the tasks that share it."""

    @property
    def key(self) -> LimitKey:
        return LimitKey(self.kind, self.name, self.queue)


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

    The particular wins over the general (a tenant's own over every tenant's; `system` has only its own), and for the same thing what a
    person set wins over what the code gives.
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
