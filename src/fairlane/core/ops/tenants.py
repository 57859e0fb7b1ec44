"""Tenants: their weight and tier, and how many jobs they have."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from fairlane.core.limits import StoredLimit
from fairlane.core.ops.base import Act, Listing, Op, Scope

TENANT_COUNT_CAP = 1_000
"""Counts of one tenant's jobs stop here."""


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


class SetTenant(Act[TenantRecord], frozen=True, kw_only=True):
    """Set a tenant's weight and tier; None leaves the one it has. Makes the tenant known.

    A call that changes nothing is not audited.
    Audit: `tenant_set`, target `tenant:<name>`, tenant = the name, before and after {"weight", "tier"} (before: the
    defaults 1.0 and None for one not seen yet).
    """

    name: str
    weight: float | None = None
    tier: str | None = None


class GetTenant(Op[TenantRecord | None], frozen=True, kw_only=True):
    """One tenant; one never seen is shown with the defaults. None: outside the scope."""

    scope: Scope
    name: str


class TenantPage(Listing, Struct, frozen=True, kw_only=True):
    shown = ("tenants", "name", "weight", "tier", "ready", "scheduled", "held", "leased")

    tenants: tuple[TenantRecord, ...]
    """By name, byte by byte."""
    next: str | None
    """Pass as `after` for the next page; None: there is none."""


class PageTenants(Op[TenantPage], frozen=True, kw_only=True):
    """Tenants that are known: seen by AddTenants or set by SetTenant. 1 to MAX_PAGE a page."""

    scope: Scope
    after: str = ""
    tier: str | None = None
    limit: int = 50


class HasTenants(Op[bool], frozen=True, kw_only=True):
    """Whether a tenant besides the application itself is known or has a job. Asked by an enqueue that names none."""


class TenantsAdded(Struct, frozen=True, kw_only=True):
    added: int
    next: str | None
    """Where to go on; None: there is no name behind these."""


class AddTenants(Op[TenantsAdded], frozen=True, kw_only=True):
    """Make tenants known that have jobs: looks at the next `limit` names behind `after` among tenants with any job.

    Its cost grows with the names, not with the jobs.
    """

    after: str = ""
    limit: int = 500


class Weights(Struct, frozen=True, kw_only=True):
    weights: dict[str, float]
    """Of tenants whose weight is not 1."""


class ReadWeights(Op[Weights], frozen=True, kw_only=True):
    """What workers need to share fairly."""
