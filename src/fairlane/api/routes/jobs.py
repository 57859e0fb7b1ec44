"""Routes for jobs: list, show, explain why one waits, act on one or many.

Listings never contain payloads, headers or results. Managers get the same listing at `admin/queue/`.
"""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import Depends
from msgspec import Meta
from pydantic import Field

from fairlane.api.fields import (
    ActBody,
    Cursor,
    Matching,
    NextCursor,
    Notes,
    PageSize,
    Selection,
    ShortId,
    Where,
    Words,
    many,
    next_cursor,
    seq_at,
    shape,
    where,
)
from fairlane.api.request import Context, RequestContext, examined
from fairlane.api.router import Routes
from fairlane.client.admin.bulk_acts import MOST_ACTS, ManyActs, RefusedAct
from fairlane.client.admin.explanation import Explanation
from fairlane.client.admin.jobs import JobAdmin, JobVerb
from fairlane.client.app import Fairlane
from fairlane.client.rights import Right
from fairlane.core.job import Job, StepRecord
from fairlane.core.ops import JobDetail, JobFilter
from fairlane.core.payload.codec import stored_json
from fairlane.core.payload.redaction import value_without_secrets
from fairlane.errors import JobNotFound

routes = Routes("jobs", "/api/jobs/")
admin_routes = Routes("admin: queue", "/api/jobs/admin/queue/", at_least=Right.MANAGE)


async def _meant(ctx: Context, id: ShortId) -> UUID:
    return await ctx.app.jobs.aid_of(id)


JobRef = Annotated[UUID, Depends(_meant)]
Filter = Annotated[Where[JobFilter], Depends(where(JobFilter))]
Delay = Annotated[float, Field(ge=0, le=366 * 86_400, allow_inf_nan=False)]

PAYLOAD = Annotated[
    Any,
    Meta(description="The payload as JSON, or its text if it is not valid JSON.", examples=[{"connection_id": 456}]),
]
RESULT = Annotated[
    Any, Meta(description="The task's return value as JSON; secrets are redacted unless the task allows them.")
]

LABEL = Annotated[
    str | None, Meta(description="The label its priority was given by; null for a number, or the default.")
]
JOB = shape("JobSummary", Job, without=("payload", "payload_version", "headers", "result"), priority_label=LABEL)
JOBS = shape("JobList", jobs=many(JOB), next_cursor=NextCursor)
WHOLE_JOB = shape("WholeJob", Job, payload=PAYLOAD, result=RESULT, priority_label=LABEL)
CHILDREN = many(JOB, "Jobs that this job enqueued, newest first, 50 at most.")
DETAIL = shape("JobDetail", JobDetail, job=WHOLE_JOB, children=CHILDREN)
WHY = Selection(
    "Why",
    Explanation,
    *("reasons", "waiting.place", "waiting.ahead", "waiting.more_urgent", "waiting.tenants", "waiting.limits"),
    *("waiting.waiting_limit", "waiting.workers", "waiting.knowing", "waiting.waits_for"),
    *("waiting.key", "waiting.key_ahead"),
    more={"job": JOB},
)


DONE = shape(
    "ActsDone",
    dry_run=bool,
    matched=Annotated[
        int, Meta(description="How many targets this request selects; a dry run: how many it would change.")
    ],
    left=Annotated[
        dict[str, int],
        Meta(
            description="Dry run: targets that would stay as they are, by their state; at most 1,000 with a filter.",
            examples=[{"completed": 20}],
        ),
    ],
    total_count=Annotated[
        int | None, Meta(description="Dry run with a filter: how many match in total; null if not counted.")
    ],
    done=int,
    refused=many(
        shape("RefusedTarget", RefusedAct, without=("message",)),
        "Targets that do not exist, or whose state does not allow the act.",
    ),
    next_cursor=NextCursor,
)


class FailBody(ActBody):
    reason: Words = Field(examples=["External service unavailable"])
    retry_delay_s: Delay | None = Field(
        default=None, description="Run again after this delay. If omitted, the job becomes dead."
    )


class BuryBody(ActBody):
    reason: Words = Field(examples=["Permanent validation error"])


class ManyBody(ActBody):
    """Options of a bulk act."""

    dry_run: bool = Field(default=False, description="Change nothing; count what would be changed, and what not.")
    all: bool = Field(default=False, description="With an empty `where`, or without one: every one there is.")
    most: Annotated[int, Field(ge=1, le=MOST_ACTS)] = Field(
        default=MOST_ACTS, description="With a filter: at most this many in one request."
    )
    cursor: Annotated[str, Field(pattern=r"^[0-9]{1,18}$")] | None = Field(
        default=None, description="With a filter: continue from the previous request's `next_cursor`."
    )

    def about(self, by: str) -> dict[str, Any]:
        """Arguments common to all bulk acts."""
        before = seq_at(self.cursor)
        how = {"dry_run": self.dry_run, "all": self.all, "limit": self.most, "before": before}
        return {**how, "by": by, "notes": self.notes}


class ManyJobsBody(ManyBody):
    act: JobVerb
    ids: list[UUID] | None = Field(default=None, max_length=MOST_ACTS, description="Ids of the jobs.")
    where: Annotated[Where[JobFilter], Matching(JobFilter)] | None = Field(
        default=None, description="Filter that selects the jobs, instead of `ids`."
    )
    reason: Words | None = Field(default=None, description="For `fail` and `bury`.")
    retry_delay_s: Delay | None = Field(default=None, description="For `fail`.")


@routes.get("", JobAdmin.alist, answer=JOBS)
async def list_jobs(ctx: Context, where: Filter, limit: PageSize = 50, cursor: Cursor = None) -> object:
    """List jobs, newest first."""
    return await _page(ctx, where, limit, cursor)


@admin_routes.get("", JobAdmin.alist, answer=JOBS)
async def list_queue(ctx: Context, where: Filter, limit: PageSize = 50, cursor: Cursor = None) -> object:
    """List jobs with filters, for managers."""
    return await _page(ctx, where, limit, cursor)


@routes.get("{id:short_id}/", JobAdmin.adetail, answer=DETAIL)
async def show_job(ctx: Context, id: JobRef) -> object:
    """Show one job with its payload, its attempts and its children."""
    return await _detail(ctx, id)


@admin_routes.get("{id:short_id}/", JobAdmin.adetail, answer=DETAIL)
async def show_queued_job(ctx: Context, id: JobRef) -> object:
    """Show one job, for managers."""
    return await _detail(ctx, id)


@routes.get("{id:short_id}/why/", JobAdmin.awhy, answer=WHY.type)
async def explain_job(ctx: Context, id: JobRef) -> object:
    """Explain why a job waits."""
    explanation = await ctx.app.jobs.awhy(id)
    # Converted here: a field of a ready answer is sent as it is, and a whole job has a payload.
    return WHY.of(explanation, job=msgspec.convert(explanation.waiting.job, JOB, from_attributes=True))


@routes.post("{id:short_id}/cancel/", JobAdmin.acancel, answer=JOB)
async def cancel_job(ctx: Context, id: JobRef, notes: Notes) -> Job:
    """Cancel a waiting job; ask a running one to stop."""
    return await ctx.app.jobs.acancel(id, by=ctx.by, notes=notes)


@routes.post("{id:short_id}/retry/", JobAdmin.aretry, answer=JOB)
async def retry_job(ctx: Context, id: JobRef, notes: Notes) -> Job:
    """Run a dead job again, as a new job.

    A repeated request returns that job unless it is dead, cancelled or removed.
    """
    return await ctx.app.jobs.aretry(id, by=ctx.by, notes=notes)


@routes.post("{id:short_id}/fail/", JobAdmin.afail, answer=JOB)
async def fail_job(ctx: Context, id: JobRef, body: FailBody) -> Job:
    """Fail an unfinished job by hand, counting one attempt."""
    return await ctx.app.jobs.afail(id, body.reason, retry_delay=body.retry_delay_s, by=ctx.by, notes=body.notes)


@routes.post("{id:short_id}/bury/", JobAdmin.abury, answer=JOB)
async def bury_job(ctx: Context, id: JobRef, body: BuryBody) -> Job:
    """Send an unfinished job to the dead letters."""
    return await ctx.app.jobs.abury(id, body.reason, by=ctx.by, notes=body.notes)


@routes.post("{id:short_id}/reset/", JobAdmin.areset, answer=JOB)
async def reset_job(ctx: Context, id: JobRef, notes: Notes) -> Job:
    """Take a running job from its worker: the job becomes ready again and no attempt is counted."""
    return await ctx.app.jobs.areset(id, by=ctx.by, notes=notes)


@routes.post("{id:short_id}/free-place/", JobAdmin.afree_place, answer=JOB)
async def free_place(ctx: Context, id: JobRef, notes: Notes) -> Job:
    """Give up the place that a job has at its key: the next one starts beside it."""
    return await ctx.app.jobs.afree_place(id, by=ctx.by, notes=notes)


@routes.post("many/", JobAdmin.aact_on_many, answer=DONE)
async def act_on_jobs(ctx: Context, body: ManyJobsBody) -> object:
    """Apply one act to many jobs, given by id or by filter; with `dry_run` only count them."""
    acts = await ctx.app.jobs.aact_on_many(
        body.act,
        body.ids,
        where=body.where and body.where.filter,
        tenant=body.where and body.where.tenant,
        reason=body.reason,
        retry_delay=body.retry_delay_s,
        **body.about(ctx.by),
    )
    return done(acts, body)


def done(acts: ManyActs[Any], body: ManyBody) -> object:
    """The result of a bulk act as a response body."""
    return {
        "dry_run": body.dry_run,
        "matched": acts.matched,
        "left": acts.left,
        "total_count": acts.total,
        "done": len(acts.done),
        "refused": acts.refused,
        "next_cursor": next_cursor(acts.next),
    }


async def _page(ctx: RequestContext, where: Where[JobFilter], limit: int, cursor: str | None) -> object:
    before = seq_at(cursor)
    page = await ctx.app.jobs.alist(where=where.filter, tenant=where.tenant, before=before, limit=limit)
    return {"jobs": page.jobs, "next_cursor": next_cursor(page.next)}


async def _detail(ctx: RequestContext, id: UUID) -> object:
    detail = await ctx.app.jobs.adetail(id)
    if detail is None:
        raise JobNotFound(id)
    children = await ctx.app.jobs.alist(parent=id)
    whole = await whole_job(ctx.app, detail.job)
    steps = await shown_steps(ctx.app, detail)
    return {**msgspec.structs.asdict(detail), "job": whole, "steps": steps, "children": children.jobs}


async def whole_job(app: Fairlane, job: Job) -> dict[str, Any]:
    """A job with its payload and result as JSON.

    Payloads are checked against the task's secrets policy when stored; results are redacted here.
    """
    return await examined(len(job.payload) + len(job.result or ""), _whole, app, job)


async def shown_steps(app: Fairlane, detail: JobDetail) -> tuple[StepRecord, ...]:
    """A job's durable steps, their results redacted like the job's own."""
    return await examined(sum(len(step.result or "") for step in detail.steps), _steps, app, detail)


def _steps(app: Fairlane, detail: JobDetail) -> tuple[StepRecord, ...]:
    return tuple(
        step if step.result is None else msgspec.structs.replace(step, result=_shown(app, detail.job.type, step.result))
        for step in detail.steps
    )


def _whole(app: Fairlane, job: Job) -> dict[str, Any]:
    result = None if job.result is None else stored_json(_shown(app, job.type, job.result))
    more = {"payload": stored_json(job.payload), "result": result, "priority_label": job.priority_label}
    return {**msgspec.structs.asdict(job), **more}


def _shown(app: Fairlane, type: str, result: str) -> str:
    """A result without secrets, unless its task's policy allows them."""
    task = app.tasks.get(type)
    policy = (task and task.definition.sensitive) or app.runtime.settings.sensitive
    if policy == "allow":
        return result
    value = stored_json(result)
    value = msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
    return msgspec.json.encode(value_without_secrets(value)).decode()
