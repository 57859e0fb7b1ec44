"""Routes for circuit breakers: list, reset and open them."""

from __future__ import annotations

from fairlane.api.fields import Name, Notes
from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.client.admin.breakers import BreakerAdmin
from fairlane.client.app import Fairlane
from fairlane.core.breaker import BreakerRecord
from fairlane.core.ops import Breakers
from fairlane.errors import BreakerNotFound

routes = Routes("breakers", "/api/jobs/breakers/")


@routes.get("", BreakerAdmin.alist, all_tenants=True)
async def list_breakers(ctx: Context) -> Breakers:
    """List every breaker that has been used."""
    return Breakers(breakers=await ctx.app.breakers.alist())


@routes.post("{name}/reset/", BreakerAdmin.areset, all_tenants=True)
async def reset_breaker(ctx: Context, name: Name, notes: Notes) -> BreakerRecord:
    """Close a breaker by hand."""
    await require_known(ctx.app, name)
    return await ctx.app.breakers.areset(name, by=ctx.by, notes=notes)


@routes.post("{name}/open/", BreakerAdmin.aopen, all_tenants=True)
async def open_breaker(ctx: Context, name: Name, notes: Notes) -> BreakerRecord:
    """Open a breaker by hand, until somebody resets it."""
    await require_known(ctx.app, name)
    return await ctx.app.breakers.aopen(name, by=ctx.by, notes=notes)


async def require_known(app: Fairlane, name: str) -> None:
    """Refuse an unknown breaker. An open one fires an alert: made-up names would send mail about nothing."""
    known = await app.breakers.anames()
    if name not in known:
        raise BreakerNotFound(name, known)
