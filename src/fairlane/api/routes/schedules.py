"""Routes for schedules: list them, run, pause and resume one."""

from __future__ import annotations

from typing import Any

from fairlane.api.fields import Name, Notes, Selection, many, shape
from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.client.admin.schedules import ScheduleAdmin
from fairlane.core.ids import JobId
from fairlane.core.schedules import Schedule

routes = Routes("schedules", "/api/jobs/schedules/")

SCHEDULE = Selection(
    "ScheduleSummary",
    Schedule,
    *("spec.name", "spec.type", "spec.cron", "spec.timezone", "spec.tenant", "spec.queue", "spec.priority"),
    *("spec.jitter_s", "spec.starts_at", "spec.ends_at"),
    *("spec.catch_up", "spec.overlap", "source", "next_at", "last_at", "last_job_id", "paused_at", "declared_at"),
)
SCHEDULES = shape("ScheduleList", schedules=many(SCHEDULE.type))
STARTED = shape("ScheduleRun", name=str, job_id=JobId)


@routes.get("", ScheduleAdmin.alist, answer=SCHEDULES)
async def list_schedules(ctx: Context) -> object:
    """List schedules by name."""
    return {"schedules": [SCHEDULE.of(schedule) for schedule in await ctx.app.schedules.alist()]}


@routes.post("{name}/run/", ScheduleAdmin.arun, answer=STARTED)
async def run_schedule(ctx: Context, name: Name, notes: Notes) -> object:
    """Enqueue a schedule's job now, in addition to its timetable."""
    handle = await ctx.app.schedules.arun(name, by=ctx.by, notes=notes)
    return {"name": name, "job_id": handle.id}


@routes.post("{name}/pause/", ScheduleAdmin.apause, answer=SCHEDULE.type)
async def pause_schedule(ctx: Context, name: Name, notes: Notes) -> Any:
    """Stop a schedule from firing until it is resumed."""
    await ctx.app.schedules.aget(name)  # A schedule of another tenant is reported as missing.
    return SCHEDULE.of(await ctx.app.schedules.apause(name, by=ctx.by, notes=notes))


@routes.post("{name}/resume/", ScheduleAdmin.aresume, answer=SCHEDULE.type)
async def resume_schedule(ctx: Context, name: Name, notes: Notes) -> Any:
    """Resume a paused schedule, from its next time on."""
    return SCHEDULE.of(await ctx.app.schedules.aresume(name, by=ctx.by, notes=notes))
