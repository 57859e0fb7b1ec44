"""Queues: how full they are; pausing, resuming and draining one."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from fairlane.api.auth.rights import Right
from fairlane.api.fields import Act, Name, Seen
from fairlane.api.request import Here, Visit
from fairlane.api.router import Routes
from fairlane.core.ops import MAX_PAGE, GetStats, JobFilter, ListPauses, PageJobs, Stats

routes = Routes("queues", "/api/jobs/queues/")
admin_routes = Routes("admin: queue", "/api/jobs/admin/queue/")


class QueueSeen(Seen):
    """Counts are the true ones, up to 100,000."""

    queue: str = Field(examples=["default"])
    pending: int = Field(examples=[42])
    ready: int
    scheduled: int
    processing: int = Field(examples=[3])
    failed: int = Field(description="Failed, and waiting for their retry.", examples=[1])
    held: int = Field(description="Kept back until their tenant has room.")
    oldest_due_at: datetime | None
    oldest_pending_s: float | None = Field(default=None, description="How long the oldest ready job has been due.")
    paused: bool = False


class Statistics(BaseModel):
    now: datetime
    queues: list[QueueSeen] = Field(description="Those with unfinished jobs, and those that are paused.")
    pending: int
    processing: int
    failed: int
    completed: int
    dead: int
    cancelled: int
    oldest_pending_s: float | None


class QueueChanged(BaseModel):
    queue: str
    paused: bool


class Drained(QueueChanged):
    running: int = Field(description="Jobs of it that still run, counted up to 200.")
    is_drained: bool = Field(description="Nothing of it runs. Ask again until it says so.")


@routes.get("", Right.READ)
async def list_queues(here: Here) -> Statistics:
    """Count jobs by queue and status."""
    return await _statistics(here)


@admin_routes.get("statistics/", Right.MANAGE)
async def show_queue_statistics(here: Here) -> Statistics:
    """Count jobs by queue and status, for managers."""
    return await _statistics(here)


@routes.post("{name}/pause/", Right.ACT, house_wide=True)
async def pause_queue(here: Here, name: Name, body: Act | None = None) -> QueueChanged:
    """Stop claiming jobs of a queue; what runs goes on, and so does enqueueing."""
    await here.app.queues.apause(name, by=here.by, notes=_notes(body))
    return QueueChanged(queue=name, paused=True)


@routes.post("{name}/resume/", Right.ACT, house_wide=True)
async def resume_queue(here: Here, name: Name, body: Act | None = None) -> QueueChanged:
    """Let a queue be claimed again."""
    await here.app.queues.aresume(name, by=here.by, notes=_notes(body))
    return QueueChanged(queue=name, paused=False)


@routes.post("{name}/drain/", Right.ACT, house_wide=True)
async def drain_queue(here: Here, name: Name, body: Act | None = None) -> Drained:
    """Pause a queue and say how much of it still runs. Safe to ask again and again."""
    await here.app.queues.apause(name, by=here.by, notes=_notes(body))
    where = JobFilter(statuses=("processing",), queue=name)
    running = len((await here.ask(PageJobs(scope=here.scope, where=where, limit=MAX_PAGE))).jobs)
    return Drained(queue=name, paused=True, running=running, is_drained=running == 0)


async def _statistics(here: Visit) -> Statistics:
    stats = await here.ask(GetStats(scope=here.scope))
    pauses = await here.ask(ListPauses())
    paused = {pause.name for pause in pauses.pauses if pause.kind == "queue"}
    return shown(stats, paused if here.tenant is None else paused & {queue.queue for queue in stats.queues})


def shown(stats: Stats, paused: set[str]) -> Statistics:
    queues = [QueueSeen.model_validate(queue) for queue in stats.queues]
    for queue in queues:
        queue.paused = queue.queue in paused
        if queue.oldest_due_at is not None:
            queue.oldest_pending_s = max((stats.now - queue.oldest_due_at).total_seconds(), 0.0)
    for name in sorted(paused - {queue.queue for queue in queues}):
        empty = {"pending": 0, "ready": 0, "scheduled": 0, "processing": 0, "failed": 0, "held": 0}
        queues.append(QueueSeen(queue=name, oldest_due_at=None, paused=True, **empty))
    ages = [queue.oldest_pending_s for queue in queues if queue.oldest_pending_s is not None]
    return Statistics(
        now=stats.now,
        queues=queues,
        pending=sum(queue.pending for queue in queues),
        processing=sum(queue.processing for queue in queues),
        failed=sum(queue.failed for queue in queues),
        completed=stats.completed,
        dead=stats.dead,
        cancelled=stats.cancelled,
        oldest_pending_s=max(ages, default=None),
    )


def _notes(body: Act | None) -> str | None:
    return None if body is None else body.notes
