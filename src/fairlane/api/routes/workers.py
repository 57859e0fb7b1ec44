"""Routes for workers: the processes that run jobs, and what their jobs last raised."""

from __future__ import annotations

from fairlane.api.fields import many, shape
from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.client.admin.workers import WorkerAdmin
from fairlane.core.ops import WorkerException, Workers

routes = Routes("workers", "/api/jobs/workers/")

EXCEPTIONS = shape("ExceptionList", exceptions=many(WorkerException))


@routes.get("", WorkerAdmin.alist, all_tenants=True)
async def list_workers(ctx: Context) -> Workers:
    """List every registered worker."""
    return await ctx.app.workers.alist()


@routes.get("exceptions/", WorkerAdmin.aexceptions, answer=EXCEPTIONS)
async def list_exceptions(ctx: Context) -> object:
    """List the newest exceptions of jobs, 20 of each registered worker."""
    return {"exceptions": await ctx.app.workers.aexceptions()}
