"""Routes for circuit breakers: list, reset and open them."""

from __future__ import annotations

from fairlane.api.fields import Name, Notes
from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.client.admin.breakers import BreakerAdmin
from fairlane.core.breaker import BreakerRecord
from fairlane.core.ops import Breakers

routes = Routes("breakers", "/api/jobs/breakers/")


@routes.get("", BreakerAdmin.alist, all_tenants=True)
async def list_breakers(ctx: Context) -> Breakers:
    """List every breaker that has been used."""
    return Breakers(breakers=await ctx.app.breakers.alist())


@routes.post("{name}/reset/", BreakerAdmin.areset, all_tenants=True)
async def reset_breaker(ctx: Context, name: Name, notes: Notes) -> BreakerRecord:
    """Close a breaker by hand."""
    return await ctx.app.breakers.areset(name, by=ctx.by, notes=notes)


@routes.post("{name}/open/", BreakerAdmin.aopen, all_tenants=True)
async def open_breaker(ctx: Context, name: Name, notes: Notes) -> BreakerRecord:
    """Open a breaker by hand, until somebody resets it."""
    return await ctx.app.breakers.aopen(name, by=ctx.by, notes=notes)
