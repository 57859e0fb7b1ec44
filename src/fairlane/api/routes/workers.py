"""Route for workers: the processes that run jobs."""

from __future__ import annotations

from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.client.admin.workers import WorkerAdmin
from fairlane.core.ops import Workers

routes = Routes("workers", "/api/jobs/workers/")


@routes.get("", WorkerAdmin.alist, all_tenants=True)
async def list_workers(ctx: Context) -> Workers:
    """List every registered worker."""
    return await ctx.app.workers.alist()
