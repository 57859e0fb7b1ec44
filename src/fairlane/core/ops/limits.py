"""Limits and tenants: what people set at run time, and what is counted.

Limits come from two sides: the code's travel with each operation that heeds them (`limits`), people's are kept in the store. How the
two go together is said by `core.limits.LimitsInForce`. A claim counts under every key that `LimitsInForce.keys_of` names.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from msgspec import Struct

from fairlane.core.ids import JobId
from fairlane.core.job import Job
from fairlane.core.limits import Limit, LimitKind, Rate, StoredLimit
from fairlane.core.ops.base import Act, Op, Scope
from fairlane.core.ops.pauses import Pause

TENANT_COUNT_CAP = 1_000
"""Counts of one tenant's jobs stop here."""


class Limits(Struct, frozen=True, kw_only=True):
    limits: tuple[StoredLimit, ...]
    """By kind, name, queue."""
    changed: bool = False


class ListLimits(Op[Limits], frozen=True, kw_only=True):
    answer: ClassVar[object] = Limits


class SetLimit(Act[Limits], frozen=True, kw_only=True):
    """Set what is allowed to one thing, in place of what was set for it before; in force from this commit on. A pause stays.

    Setting what is set already writes nothing. Audit: `limit_set`, target `limit:<kind>:<name>`, with `@<queue>` behind it for a tenant in one
    queue; tenant = the name for one tenant's, None for every tenant's; before and after: the limit as JSON, None where there was none or only a pause. Wakes waiting workers.
    """

    answer: ClassVar[object] = Limits

    limit: Limit


class ClearLimit(Act[Limits], frozen=True, kw_only=True):
    """Take back what was set for one thing, pause and all: the code's own limit is in force again. Nothing set: writes nothing.

    Audit: `limit_clear`, likewise, after None (none is written where there was only a pause). Wakes waiting workers.
    """

    answer: ClassVar[object] = Limits

    kind: LimitKind
    name: str
    queue: str = ""


class LimitPaused(Struct, frozen=True, kw_only=True):
    until: datetime


class PauseLimit(Op[LimitPaused], frozen=True, kw_only=True):
    """Let nothing under one limit be claimed for a while, as after a provider's 429; never shortens an earlier pause. Not audited.

    Where nothing is set for it the record is made, saying nothing but the pause; else its `by` and `at` stay.
    """

    answer: ClassVar[object] = LimitPaused

    kind: LimitKind
    name: str
    queue: str = ""
    for_s: float
    by: str


class TokensTaken(Struct, frozen=True, kw_only=True):
    granted: bool
    tenant: str | None = None
    """Refused: the first by name that has too few."""
    rate: Rate | None = None
    """Refused: what is in force for it."""
    retry_at: datetime | None = None
    """Refused: when it will have so many, if nobody else takes any. None though refused: never, they are more than the rate allows."""


class TakeTokens(Op[TokensTaken], frozen=True, kw_only=True):
    """Take tokens of tenants' `enqueue_rate`: all that are asked for, for every tenant, or none. Always on the client's own connection.

    A tenant without such a rate has as many as it likes, and none are counted.
    """

    answer: ClassVar[object] = TokensTaken

    counts: dict[str, int]
    """By tenant."""
    limits: tuple[Limit, ...] = ()


class Unheld(Struct, frozen=True, kw_only=True):
    count: int


class Unhold(Op[Unheld], frozen=True, kw_only=True):
    """Let held jobs go on where their tenant has room again: ready if due, else scheduled; at most `limit`.

    By (queue, tenant), and within by seq: as many as its `waiting` limit exceeds its ready, scheduled and leased jobs there; all, where there is
    no such limit any more. Wakes waiting workers where any became ready.
    """

    answer: ClassVar[object] = Unheld

    limits: tuple[Limit, ...] = ()
    limit: int = 1000


class Aged(Struct, frozen=True, kw_only=True):
    count: int


class Age(Op[Aged], frozen=True, kw_only=True):
    """Move jobs that have been ready for long up in their line: one step of priority for every `every_s` since they were due.

    For each ready job of the queue: its own priority less the whole number of `every_s` in now - `due_at`, not below 0, becomes its band (or its rank,
    where its priority orders only the tenant's own jobs), if that is less than the one it has. At most `limit` moved, in the order of band, tenant, rank, due, seq.
    The job's `priority` stays; its leases show the band and rank it has reached, and it keeps them when it goes back or is retried.
    """

    answer: ClassVar[object] = Aged

    queue: str
    every_s: float
    limit: int = 1000


class TenantRecord(Struct, frozen=True, kw_only=True):
    name: str
    weight: float
    tier: str | None
    seen_at: datetime | None
    """When it was first seen; None: not yet, and what stands here are the defaults."""
    paused: bool
    limits: tuple[StoredLimit, ...]
    """Set for this very tenant, by queue."""
    ready: int
    """This and the following: counted up to TENANT_COUNT_CAP."""
    scheduled: int
    held: int
    leased: int


class SetTenant(Act["TenantRecord"], frozen=True, kw_only=True):
    """Set a tenant's weight and tier; None leaves the one it has. Makes the tenant known. What changes nothing is not audited.

    Audit: `tenant_set`, target `tenant:<name>`, tenant = the name, before and after {"weight", "tier"} (before: the defaults 1.0 and None for one not seen yet).
    """

    answer: ClassVar[object] = TenantRecord

    name: str
    weight: float | None = None
    tier: str | None = None


class GetTenant(Op["TenantRecord | None"], frozen=True, kw_only=True):
    """One tenant; one never seen is shown with the defaults. None: outside the scope."""

    answer: ClassVar[object] = TenantRecord | None

    scope: Scope
    name: str


class TenantPage(Struct, frozen=True, kw_only=True):
    tenants: tuple[TenantRecord, ...]
    """By name, byte by byte."""
    next: str | None
    """Pass as `after` for the next page; None: there is none."""


class PageTenants(Op[TenantPage], frozen=True, kw_only=True):
    """Tenants that are known: seen by AddTenants or set by SetTenant. 1 to MAX_PAGE a page."""

    answer: ClassVar[object] = TenantPage

    scope: Scope
    after: str = ""
    tier: str | None = None
    limit: int = 50


class TenantsAdded(Struct, frozen=True, kw_only=True):
    added: int
    next: str | None
    """Where to go on; None: there is no name behind these."""


class AddTenants(Op[TenantsAdded], frozen=True, kw_only=True):
    """Make tenants known that have jobs: looks at the next `limit` names behind `after` among tenants with any job. Costs by the names, not the jobs."""

    answer: ClassVar[object] = TenantsAdded

    after: str = ""
    limit: int = 500


class Weights(Struct, frozen=True, kw_only=True):
    weights: dict[str, float]
    """Of tenants whose weight is not 1."""


class ReadWeights(Op[Weights], frozen=True, kw_only=True):
    """What workers need to share fairly."""

    answer: ClassVar[object] = Weights


WaitPlace = Literal["ready", "scheduled", "held", "leased", "completed", "dead", "cancelled"]


class LimitState(Struct, frozen=True, kw_only=True):
    """One limit a job is under, and how far it is used."""

    kind: LimitKind
    name: str
    queue: str
    running: int | None
    """Allowed; None: no limit."""
    leases: int
    """Leases counted under it now; 0 where `running` is None."""
    rate: Rate | None
    starts: int
    """Claims counted in the rate's last period; 0 where `rate` is None."""
    free_at: datetime | None
    """When the rate, or the pause, lets the next one through; None: now."""


class Waiting(Struct, frozen=True, kw_only=True):
    """The facts about a job's waiting. Counts stop at TENANT_COUNT_CAP."""

    now: datetime
    job: Job
    place: WaitPlace
    ahead: int = 0
    """Ready: jobs before it in its own line."""
    more_urgent: int = 0
    """Ready: jobs of its queue in more urgent bands."""
    tenants: int = 0
    """Ready: other tenants with ready jobs in its queue and band."""
    pauses: tuple[Pause, ...] = ()
    """Those that concern it, by kind."""
    limits: tuple[LimitState, ...] = ()
    """Those with a running limit, a rate or a pause that lasts, in the order of `keys_of`; unfinished jobs only."""
    waiting_limit: int | None = None
    """Its tenant's `waiting` limit in its queue."""
    workers: int = 0
    """Live workers that serve its queue (or name none)."""
    knowing: int = 0
    """Of these, workers that know its type (or name none)."""


class Why(Op["Waiting | None"], frozen=True, kw_only=True):
    """Why a job waits. None: no such job in this scope."""

    answer: ClassVar[object] = Waiting | None

    scope: Scope
    id: JobId
    limits: tuple[Limit, ...] = ()
