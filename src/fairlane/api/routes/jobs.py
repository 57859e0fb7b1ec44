"""Jobs to look at: by filter, by id, and why one waits. The same listing stands behind the managers' gates as `admin/queue`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query
from pydantic import BaseModel, Field

from fairlane.api.auth.rights import Right
from fairlane.api.fields import Seen, TenantName
from fairlane.api.filters import JobsWhere, jobs_where
from fairlane.api.models.jobs import JobInFull, JobList, JobSummary, in_full, summary
from fairlane.api.paging import Cursor, PageSize, next_cursor, seq_at
from fairlane.api.request import Here, Visit
from fairlane.api.router import Routes
from fairlane.core.ids import JobId
from fairlane.core.limits import LimitKind
from fairlane.core.ops import GetJob, JobFilter, PageJobs
from fairlane.errors import JobNotFound

routes = Routes("jobs", "/api/jobs/")
admin_routes = Routes("admin: queue", "/api/jobs/admin/queue/")

Where = Annotated[JobsWhere, Depends(jobs_where)]
Tenant = Annotated[TenantName | None, Query(description="Look at one tenant only.")]


class RateSeen(Seen):
    count: int
    period_s: float


class LimitStateSeen(Seen):
    """One limit the job is under, and how far it is used."""

    kind: LimitKind
    name: str
    queue: str
    running: int | None
    leases: int
    rate: RateSeen | None
    starts: int
    free_at: datetime | None


class Why(BaseModel):
    reasons: list[str] = Field(
        description="What keeps it, the strongest first.", examples=[["it is ready: 12 of its tenant before it"]]
    )
    place: str = Field(examples=["ready"])
    ahead: int = Field(description="Jobs before it in its own line, counted up to 1,000.")
    more_urgent: int
    tenants: int = Field(description="Other tenants that take turns with it.")
    limits: list[LimitStateSeen]
    waiting_limit: int | None
    workers: int = Field(description="Live workers that serve its queue.")
    knowing: int = Field(description="Of these, workers that know its task.")
    job: JobSummary


@routes.get("", Right.READ)
async def list_jobs(
    here: Here, where: Where, tenant: Tenant = None, limit: PageSize = 50, cursor: Cursor = None
) -> JobList:
    """List jobs, newest first."""
    return await _page(here, where, tenant, limit, cursor)


@routes.get("{id:uuid}/", Right.READ)
async def show_job(here: Here, id: UUID) -> JobInFull:
    """Look at one job: its payload, its attempts, its children."""
    return await _in_full(here, id)


@routes.get("{id:uuid}/why/", Right.READ)
async def explain_job(here: Here, id: UUID) -> Why:
    """Say why a job waits."""
    told = await here.app.jobs.awhy(id, tenant=here.tenant)
    waiting = told.waiting
    return Why(
        reasons=list(told.reasons),
        place=waiting.place,
        ahead=waiting.ahead,
        more_urgent=waiting.more_urgent,
        tenants=waiting.tenants,
        limits=[LimitStateSeen.model_validate(limit) for limit in waiting.limits],
        waiting_limit=waiting.waiting_limit,
        workers=waiting.workers,
        knowing=waiting.knowing,
        job=summary(waiting.job),
    )


@admin_routes.get("", Right.MANAGE)
async def list_queue(
    here: Here, where: Where, tenant: Tenant = None, limit: PageSize = 50, cursor: Cursor = None
) -> JobList:
    """List jobs with filters, for managers."""
    return await _page(here, where, tenant, limit, cursor)


@admin_routes.get("{id:uuid}/", Right.MANAGE)
async def show_queued_job(here: Here, id: UUID) -> JobInFull:
    """Look at one job, for managers."""
    return await _in_full(here, id)


async def _page(here: Visit, where: JobsWhere, tenant: str | None, limit: int, cursor: str | None) -> JobList:
    op = PageJobs(scope=here.narrowed(tenant), where=where.filter(), before=seq_at(cursor), limit=limit)
    page = await here.ask(op)
    return JobList(jobs=[summary(job) for job in page.jobs], next_cursor=next_cursor(page.next))


async def _in_full(here: Visit, id: UUID) -> JobInFull:
    detail = await here.ask(GetJob(scope=here.scope, id=JobId(id)))
    if detail is None:
        raise JobNotFound(id)
    children = await here.ask(PageJobs(scope=here.scope, where=JobFilter(parent_id=JobId(id))))
    task = here.app.tasks.get(detail.job.type)
    return in_full(detail, children, (task and task.definition.sensitive) or here.app.runtime.settings.sensitive)
