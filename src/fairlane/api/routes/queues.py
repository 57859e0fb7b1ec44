"""Routes for queues: count their jobs, pause, resume and drain one."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import asdict

from fairlane.api.fields import Name, Notes, PausingBody, many, shape
from fairlane.api.request import Context, RequestContext
from fairlane.api.router import Routes
from fairlane.client.admin.queues import QueueAdmin, QueueState
from fairlane.client.rights import Right
from fairlane.core.ops import Stats

routes = Routes("queues", "/api/jobs/queues/")
admin_routes = Routes("admin: queue", "/api/jobs/admin/queue/", at_least=Right.MANAGE)


STATISTICS = shape(
    "QueueStatistics",
    Stats,
    without=("dead_letters",),
    queues=many(QueueState, "Queues with unfinished jobs, and paused queues."),
    pending=int,
    processing=int,
    failed=int,
    oldest_pending_s=float | None,
)


class QueueChanged(Struct, frozen=True, kw_only=True):
    queue: str
    paused: bool


class QueueDrained(QueueChanged, frozen=True, kw_only=True):
    running: int
    """Running jobs of the queue, counted up to 200."""
    is_drained: bool
    """True if no job of the queue runs. Repeat the request until it is true."""


@routes.get("", QueueAdmin.alist, answer=STATISTICS)
async def list_queues(ctx: Context) -> object:
    """Count jobs by queue and status."""
    return await _statistics(ctx)


@admin_routes.get("statistics/", QueueAdmin.alist, answer=STATISTICS)
async def show_queue_statistics(ctx: Context) -> object:
    """Count jobs by queue and status, for managers."""
    return await _statistics(ctx)


@routes.post("{name}/pause/", QueueAdmin.apause, all_tenants=True)
async def pause_queue(ctx: Context, name: Name, body: PausingBody | None = None) -> QueueChanged:
    """Stop claiming jobs of a queue; running jobs continue, and enqueueing unless it is refused."""
    await _pause(ctx, name, body)
    return QueueChanged(queue=name, paused=True)


@routes.post("{name}/resume/", QueueAdmin.aresume, all_tenants=True)
async def resume_queue(ctx: Context, name: Name, notes: Notes) -> QueueChanged:
    """Resume claims of a queue."""
    await ctx.app.queues.aresume(name, by=ctx.by, notes=notes)
    return QueueChanged(queue=name, paused=False)


@routes.post("{name}/drain/", QueueAdmin.apause, all_tenants=True)
async def drain_queue(ctx: Context, name: Name, body: PausingBody | None = None) -> QueueDrained:
    """Pause a queue and count its running jobs. Safe to repeat."""
    await _pause(ctx, name, body)
    running = await ctx.app.queues.arunning(name)
    return QueueDrained(queue=name, paused=True, running=running, is_drained=running == 0)


async def _pause(ctx: RequestContext, name: str, body: PausingBody | None) -> None:
    body = body or PausingBody()
    await ctx.app.queues.apause(name, refuse=body.refuse, by=ctx.by, notes=body.notes)


async def _statistics(ctx: RequestContext) -> object:
    queues, counts = await ctx.app.queues.alist(), await ctx.app.statistics.acounts()
    ages = [queue.oldest_pending_s for queue in queues if queue.oldest_pending_s is not None]
    return {
        **asdict(counts),
        "queues": queues,
        "pending": sum(queue.pending for queue in queues),
        "processing": sum(queue.processing for queue in queues),
        "failed": sum(queue.failed for queue in queues),
        "oldest_pending_s": max(ages, default=None),
    }
