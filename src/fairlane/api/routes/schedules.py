"""Schedules: what runs when; running one now, pausing and resuming it."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import BaseModel, Field

from fairlane.api.auth.rights import Right
from fairlane.api.fields import Act, Name
from fairlane.api.request import Here, Visit
from fairlane.api.router import Routes
from fairlane.core.schedules.schedule import CatchUp, Overlap, Schedule, ScheduleSource
from fairlane.errors import ScheduleNotFound

routes = Routes("schedules", "/api/jobs/schedules/")


class ScheduleSeen(BaseModel):
    name: str = Field(examples=["nightly"])
    type: str = Field(examples=["report.make"])
    cron: str = Field(examples=["0 3 * * *"])
    timezone: str = Field(examples=["Europe/Prague"])
    tenant: str
    queue: str
    priority: int
    catch_up: CatchUp
    overlap: Overlap
    source: ScheduleSource
    next_at: datetime | None
    last_at: datetime | None
    last_job_id: UUID | None
    paused_at: datetime | None
    declared_at: datetime


class ScheduleList(BaseModel):
    schedules: list[ScheduleSeen]


class RunNow(BaseModel):
    name: str
    job_id: UUID


@routes.get("", Right.READ)
async def list_schedules(here: Here) -> ScheduleList:
    """List schedules by name."""
    return ScheduleList(schedules=[_seen(schedule) for schedule in await _visible(here)])


@routes.post("{name}/run/", Right.ACT)
async def run_schedule(here: Here, name: Name, body: Act | None = None) -> RunNow:
    """Enqueue a schedule's job now, beside its timetable."""
    await _require(here, name)
    handle = await here.app.schedules.arun(name, by=here.by, notes=_notes(body))
    return RunNow(name=name, job_id=handle.id)


@routes.post("{name}/pause/", Right.ACT)
async def pause_schedule(here: Here, name: Name, body: Act | None = None) -> ScheduleSeen:
    """Let a schedule fire no more, until it is resumed."""
    await _require(here, name)
    return _seen(await here.app.schedules.apause(name, by=here.by, notes=_notes(body)))


@routes.post("{name}/resume/", Right.ACT)
async def resume_schedule(here: Here, name: Name, body: Act | None = None) -> ScheduleSeen:
    """Let a paused schedule fire again, from its next time on."""
    await _require(here, name)
    return _seen(await here.app.schedules.aresume(name, by=here.by, notes=_notes(body)))


async def _visible(here: Visit) -> list[Schedule]:
    return [one for one in await here.app.schedules.alist() if here.scope.admits(one.spec.tenant)]


async def _require(here: Visit, name: str) -> None:
    # Looked up here first: the client's own error would suggest names of other tenants' schedules.
    known = [schedule.spec.name for schedule in await _visible(here)]
    if name not in known:
        raise ScheduleNotFound(name, known)


def _seen(schedule: Schedule) -> ScheduleSeen:
    spec = schedule.spec
    return ScheduleSeen(
        name=spec.name,
        type=spec.type,
        cron=spec.cron,
        timezone=spec.timezone,
        tenant=spec.tenant,
        queue=spec.queue,
        priority=spec.priority,
        catch_up=spec.catch_up,
        overlap=spec.overlap,
        source=schedule.source,
        next_at=schedule.next_at,
        last_at=schedule.last_at,
        last_job_id=schedule.last_job_id,
        paused_at=schedule.paused_at,
        declared_at=schedule.declared_at,
    )


def _notes(body: Act | None) -> str | None:
    return None if body is None else body.notes
