"""Tenants: who there is, how much of theirs waits and runs, and their share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from fairlane.api.auth.rights import Right
from fairlane.api.fields import Act, Key, TenantName
from fairlane.api.paging import PageSize
from fairlane.api.problems import Problem
from fairlane.api.request import Here
from fairlane.api.router import Routes
from fairlane.api.routes.limits import LimitSeen, limits_of
from fairlane.core.ops import GetTenant, PageTenants, TenantRecord

routes = Routes("tenants", "/api/jobs/tenants/")


class TenantSeen(BaseModel):
    """Counts are the true ones, up to 1,000."""

    name: str = Field(examples=["acme"])
    weight: float = Field(description="Its share next to the others.", examples=[1.0])
    tier: str | None
    seen_at: datetime | None = Field(description="When it was first seen; null: not yet.")
    paused: bool
    ready: int
    scheduled: int
    held: int
    leased: int
    limits: list[LimitSeen] = Field(description="Set for this very tenant.")


class TenantList(BaseModel):
    tenants: list[TenantSeen]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null: there is none.")


class TenantShare(Act):
    weight: Annotated[float, Field(ge=0.001, le=1000, allow_inf_nan=False)] | None = None
    tier: Key | None = None


@routes.get("", Right.READ)
async def list_tenants(
    here: Here,
    tier: Key | None = None,
    limit: PageSize = 50,
    cursor: Annotated[TenantName | None, Query(description="The `next_cursor` of the page before.")] = None,
) -> TenantList:
    """List tenants by name."""
    page = await here.ask(PageTenants(scope=here.scope, after=cursor or "", tier=tier, limit=limit))
    return TenantList(tenants=[_seen(record) for record in page.tenants], next_cursor=page.next)


@routes.get("{name:path}/", Right.READ)
async def show_tenant(here: Here, name: TenantName) -> TenantSeen:
    """Look at one tenant; one that has never had a job is shown with the defaults."""
    record = await here.ask(GetTenant(scope=here.scope, name=name))
    if record is None:
        raise Problem(404, "tenant_not_found", "no such tenant here")
    return _seen(record)


@routes.put("{name:path}/", Right.ACT, house_wide=True)
async def set_tenant(here: Here, name: TenantName, body: TenantShare) -> TenantSeen:
    """Set a tenant's weight or tier; workers follow within seconds."""
    return _seen(await here.app.tenants.aset(name, weight=body.weight, tier=body.tier, by=here.by, notes=body.notes))


def _seen(record: TenantRecord) -> TenantSeen:
    return TenantSeen(
        name=record.name,
        weight=record.weight,
        tier=record.tier,
        seen_at=record.seen_at,
        paused=record.paused,
        ready=record.ready,
        scheduled=record.scheduled,
        held=record.held,
        leased=record.leased,
        limits=limits_of(record.limits),
    )
