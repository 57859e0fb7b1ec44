"""Routes for tenants: list and show them with their jobs, and set their share."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Query
from pydantic import Field

from fairlane.api.fields import ActBody, Key, NextCursor, PageSize, TenantName, many, shape
from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.api.routes.limits import LIMIT, stored_limits
from fairlane.client.admin.tenants import TenantAdmin
from fairlane.core.ops import TenantRecord

routes = Routes("tenants", "/api/jobs/tenants/")

TENANT = shape("TenantSummary", TenantRecord, limits=many(LIMIT))
TENANTS = shape("TenantList", tenants=many(TENANT), next_cursor=NextCursor)


class TenantBody(ActBody):
    weight: Annotated[float, Field(ge=0.001, le=1000, allow_inf_nan=False)] | None = None
    tier: Key | None = None


@routes.get("", TenantAdmin.alist, answer=TENANTS)
async def list_tenants(
    ctx: Context,
    tier: Key | None = None,
    limit: PageSize = 50,
    cursor: Annotated[TenantName | None, Query(description="The previous page's `next_cursor`.")] = None,
) -> object:
    """List tenants by name."""
    page = await ctx.app.tenants.alist(after=cursor or "", tier=tier, limit=limit)
    return {"tenants": [_summary(record) for record in page.tenants], "next_cursor": page.next}


@routes.get("{name:path}/", TenantAdmin.aget, answer=TENANT)
async def show_tenant(ctx: Context, name: TenantName) -> object:
    """Show one tenant; one that has never had a job is shown with the defaults."""
    return _summary(await ctx.app.tenants.aget(name))


@routes.put("{name:path}/", TenantAdmin.aset, all_tenants=True, answer=TENANT)
async def set_tenant(ctx: Context, name: TenantName, body: TenantBody) -> object:
    """Set a tenant's weight or tier; workers apply it within seconds."""
    return _summary(await ctx.app.tenants.aset(name, weight=body.weight, tier=body.tier, by=ctx.by, notes=body.notes))


def _summary(record: TenantRecord) -> object:
    return {**msgspec.structs.asdict(record), "limits": stored_limits(record.limits)}
