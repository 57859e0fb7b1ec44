"""What operators do to jobs: one at a time, or many."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from fairlane.api.auth.rights import Right
from fairlane.api.fields import Act, Words
from fairlane.api.filters import JobsWhere
from fairlane.api.many import MOST, Done, Many, each, gathered, require_one
from fairlane.api.models.jobs import JobSummary, summary
from fairlane.api.reprocessing import reprocess
from fairlane.api.request import Here, Visit
from fairlane.api.router import Routes
from fairlane.core.ids import JobId, Seq
from fairlane.core.job import Job
from fairlane.core.ops import GetJob, PageJobs
from fairlane.errors import InvalidOption, InvalidState, JobNotFound

routes = Routes("jobs", "/api/jobs/")

Delay = Annotated[float, Field(ge=0, le=366 * 86_400, allow_inf_nan=False)]


class Failing(Act):
    reason: Words = Field(examples=["External service unavailable"])
    retry_delay_s: Delay | None = Field(default=None, description="Run again so much later; left out: it is dead.")


class Burying(Act):
    reason: Words = Field(examples=["Permanent validation error"])


class ManyJobs(Many):
    act: Literal["cancel", "retry", "fail", "bury", "reset"]
    ids: list[UUID] | None = Field(default=None, max_length=MOST, description="These.")
    where: JobsWhere | None = Field(default=None, description="Or those that match.")
    reason: Words | None = Field(default=None, description="For `fail` and `bury`.")
    retry_delay_s: Delay | None = Field(default=None, description="For `fail`.")


@routes.post("{id:uuid}/cancel/", Right.ACT)
async def cancel_job(here: Here, id: UUID, body: Act | None = None) -> JobSummary:
    """End a waiting job as cancelled; ask a running one to stop."""
    return summary(await here.app.jobs.acancel(id, by=here.by, notes=_notes(body), tenant=here.tenant))


@routes.post("{id:uuid}/retry/", Right.ACT)
async def retry_job(here: Here, id: UUID, body: Act | None = None) -> JobSummary:
    """Run a dead job again, as a new one. Safe when clicked twice."""
    return summary(await _retried(here, id, _notes(body)))


@routes.post("{id:uuid}/fail/", Right.ACT)
async def fail_job(here: Here, id: UUID, body: Failing) -> JobSummary:
    """Fail an unfinished job by hand, charging an attempt."""
    job = await here.app.jobs.afail(
        id, body.reason, retry_delay=body.retry_delay_s, by=here.by, notes=body.notes, tenant=here.tenant
    )
    return summary(job)


@routes.post("{id:uuid}/bury/", Right.ACT)
async def bury_job(here: Here, id: UUID, body: Burying) -> JobSummary:
    """Send an unfinished job to the dead letters."""
    return summary(await here.app.jobs.abury(id, body.reason, by=here.by, notes=body.notes, tenant=here.tenant))


@routes.post("{id:uuid}/reset/", Right.ACT)
async def reset_job(here: Here, id: UUID, body: Act | None = None) -> JobSummary:
    """Take a running job from its worker: it is ready again, uncharged."""
    return summary(await here.app.jobs.areset(id, by=here.by, notes=_notes(body), tenant=here.tenant))


@routes.post("many/", Right.ACT)
async def act_on_jobs(here: Here, body: ManyJobs) -> Done:
    """Do the same to many jobs, given by id or by filter; with `dry_run` only say how many."""
    require_one(body.ids, body.where)
    if body.act in {"fail", "bury"} and body.reason is None:
        raise InvalidOption("reason", None, f"a few words, for {body.act}")
    cursor: str | None = None
    if body.where is None:
        ids = list(dict.fromkeys(body.ids or ()))
    else:
        ids, cursor = await _matching(here, body.where, body.most, body.cursor)
    if body.dry_run:
        return Done(dry_run=True, matched=len(ids), done=0, refused=[], next_cursor=cursor)
    done, refused = await each(ids, lambda _, job: _act(here, body, job))
    return Done(dry_run=False, matched=len(ids), done=done, refused=refused, next_cursor=cursor)


async def _matching(here: Visit, where: JobsWhere, most: int, cursor: str | None) -> tuple[list[UUID], str | None]:
    scope = here.required(where.tenant)

    async def page(before: Seq | None, limit: int) -> tuple[list[UUID], Seq | None]:
        found = await here.ask(PageJobs(scope=scope, where=where.filter(), before=before, limit=limit))
        return [job.id for job in found.jobs], found.next

    return await gathered(page, most, cursor)


async def _act(here: Visit, body: ManyJobs, id: UUID) -> object:
    app, by, notes, tenant = here.app, here.by, body.notes, here.tenant
    match body.act:
        case "cancel":
            return await app.jobs.acancel(id, by=by, notes=notes, tenant=tenant)
        case "retry":
            return await _retried(here, id, notes)
        case "fail":
            reason = body.reason or ""
            return await app.jobs.afail(id, reason, retry_delay=body.retry_delay_s, by=by, notes=notes, tenant=tenant)
        case "bury":
            return await app.jobs.abury(id, body.reason or "", by=by, notes=notes, tenant=tenant)
        case "reset":
            return await app.jobs.areset(id, by=by, notes=notes, tenant=tenant)


async def _retried(here: Visit, id: UUID, notes: str | None) -> Job:
    detail = await here.ask(GetJob(scope=here.scope, id=JobId(id)))
    if detail is None:
        raise JobNotFound(id)
    if detail.job.status != "dead":
        raise InvalidState("retry", f"job {id}", detail.job.status)
    job, _ = await reprocess(here, detail.job.seq, notes=notes)
    return job


def _notes(body: Act | None) -> str | None:
    return None if body is None else body.notes
