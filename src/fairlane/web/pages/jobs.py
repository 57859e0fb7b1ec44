"""The pages of jobs: search them, look at one, act on it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from fastapi import Query
from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import RedirectResponse, Response

from fairlane.api.fields import Cursor, next_cursor, seq_at
from fairlane.api.problems import Problem
from fairlane.api.routes.jobs import shown_steps, whole_job
from fairlane.client.admin.explanation import Reason
from fairlane.client.admin.filters import JobFilters, job_filter
from fairlane.client.admin.jobs import JobAdmin, JobSearch, JobVerb, by_state
from fairlane.client.admin.short_ids import is_short_id
from fairlane.client.rights import Right
from fairlane.core.job import STATUSES, Attempt, Job
from fairlane.core.ops import LOG_LINES, MAX_PAGE, JobDetail, JobPage
from fairlane.core.tracebacks import parts_of
from fairlane.core.workflows import NODE_HEADER, WORKFLOW_HEADER
from fairlane.errors import InvalidOption, JobNotFound, NotFound
from fairlane.web.form import Form
from fairlane.web.page import CurrentPage, Done, Page, Pages, Values
from fairlane.web.search import Search, search

pages = Pages("jobs", "/jobs", title="Jobs", key="j")

PAGE_SIZE = 50
NEED_REASON = ("fail", "bury")
DONE_TO_MANY: dict[JobVerb, str] = {
    "cancel": "cancelled",
    "retry": "tried again",
    "fail": "failed",
    "bury": "buried",
    "reset": "reset",
}


@pages.page("", JobAdmin.alist, "jobs.html")
async def show_jobs(
    page: CurrentPage, q: Annotated[str, Query(max_length=2000)] = "", cursor: Cursor = None
) -> Values | Response:
    """Search jobs, newest first; the number or id of one leads to it."""
    asked = read_search(page, q)
    if is_short_id(q.strip()):
        try:
            meant = await page.app.jobs.aid_of(q.strip(), tenant=page.tenant)
            return RedirectResponse(page.url("show_job", id=meant), 303)
        except (InvalidOption, NotFound) as error:
            asked = Search(text=q, tenant=page.tenant, problem=str(error))
    found: JobPage | JobSearch | None = None
    if asked.asks_for_contents:
        found = await _look_into(page, asked, PAGE_SIZE, cursor)
    elif asked.problem is None:
        found = await page.app.jobs.alist(
            where=asked.where, tenant=asked.tenant, before=seq_at(cursor), limit=PAGE_SIZE
        )
    return {
        "search": asked,
        "statuses": STATUSES,
        "fields": (*JobFilters.__annotations__, "tenant", "args.…", "error"),
        "looked_at": found.looked_at if isinstance(found, JobSearch) else None,
        "verbs": [verb for verb in get_args(JobVerb) if page.may(f"{verb}_job")],
        "jobs": () if found is None else found.jobs,
        "cursor": cursor,
        "next": None if found is None else next_cursor(found.next),
    }


def read_search(page: Page, text: str) -> Search:
    may = page.may(Right.CONTENTS)
    return search(text, JobFilters.__annotations__, job_filter, page, may_see_contents=may)


async def _look_into(page: Page, asked: Search, limit: int, cursor: str | None = None) -> JobSearch:
    return await page.app.jobs.asearch(
        args=asked.args,
        error=asked.error,
        where=asked.where,
        tenant=asked.tenant,
        before=seq_at(cursor),
        limit=limit,
    )


@pages.page("/many", JobAdmin.aact_on_many, "confirm.html", of_one_tenant=True)
async def confirm_jobs(
    page: CurrentPage,
    act: JobVerb,
    q: Annotated[str, Query(max_length=2000)] = "",
    id: Annotated[list[UUID] | None, Query(max_length=200)] = None,
    all: Annotated[str, Query(max_length=1)] = "",
    cursor: Cursor = None,
) -> Values:
    """Ask whether an act on many jobs is meant, with their number; again for each part of very many."""
    asked = read_search(page, q)
    ids: list[UUID] | None = None if all else (id or [])
    searched: JobSearch | None = None
    if ids is None and asked.asks_for_contents:
        changed, _ = by_state(asked.where, act)
        searched = await _look_into(page, replace(asked, where=changed or asked.where), MAX_PAGE, cursor)
        ids = [job.id for job in searched.jobs]
    counted = None
    if asked.problem is None and ids != []:
        reason = "counted" if act in NEED_REASON else None
        counted = await page.app.jobs.aact_on_many(
            act,
            ids,
            where=None if ids else asked.where,
            all=bool(all),
            reason=reason,
            tenant=asked.tenant,
            before=seq_at(cursor),
            dry_run=True,
            by=page.by,
        )
    return {
        "search": asked,
        "verb": act,
        "noun": "job",
        "ids": ids,
        "searched": searched,
        "further": page.url("confirm_jobs", act=act, q=q, all="1", cursor=None if searched is None else searched.next),
        "counted": counted,
        "total": None if counted is None else counted.matched,
        "cap": None,
        "cursor": cursor,
        "behind": None,
        "post_to": page.url("act_on_jobs"),
        "back": page.url("show_jobs", q=q),
        "per_second": None,
        "needs_reason": "reason" if act in NEED_REASON else None,
        "is_danger": act != "retry",
    }


@pages.act("/many", JobAdmin.aact_on_many, done="{n} job{s} {verb}.")
async def act_on_jobs(page: CurrentPage, form: Form) -> Done:
    verb: Any = form.one_of("act", get_args(JobVerb))
    asked = read_search(page, form.text("q") or "")
    ids: Any = form.many("id") or None
    if ids is None and asked.asks_for_contents:
        raise Problem(422, "invalid_search", "select the jobs whose contents match; nothing was changed")
    acts = await page.app.jobs.aact_on_many(
        verb,
        ids,
        where=None if ids else asked.required(),
        all=form.text("all") is not None,
        reason=form.required("reason") if verb in NEED_REASON else None,
        by=page.by,
        notes=form.words("notes"),
        tenant=asked.tenant,
        before=form.whole("cursor"),
        down_to=form.whole("down_to"),
    )
    where = page.url("show_jobs", q=form.text("q") or "")
    rest = acts.next or form.whole("down_to") or form.whole("searched_to")
    if rest is not None:
        where = page.url("confirm_jobs", act=verb, q=form.text("q") or "", all="1", cursor=rest)
    return Done(where, n=len(acts.done), refused=len(acts.refused), verb=DONE_TO_MANY[verb])


@pages.page("/{id:uuid}", JobAdmin.adetail, "job.html", of_one_tenant=True)
async def show_job(page: CurrentPage, id: UUID) -> Values:
    """Show one job: its states and attempts, what it was given and returned, and why it waits."""
    detail = await page.app.jobs.adetail(id, tenant=page.tenant)
    if detail is None:
        raise JobNotFound(id)
    job = detail.job
    children = await page.app.jobs.alist(parent=id, tenant=page.tenant)
    needed = Right.MANAGE if job.status == "dead" else Right.CONTENTS
    return {
        "job": job,
        "detail": detail,
        "workflow": _workflow_of(job),
        "node": job.headers.get(NODE_HEADER),
        "attempts": [(attempt, parts_of(attempt.traceback or "")) for attempt in reversed(detail.attempts)],
        "whole": await whole_job(page.app, job),
        "steps": await shown_steps(page.app, detail),
        "shows_contents": page.may(needed),
        "LOG_LINES": LOG_LINES,
        "reasons": await _reasons(page, job),
        "children": children.jobs,
        "has_more_children": children.next is not None,
        "timeline": tuple(_timeline(detail, page.now)),
    }


async def _reasons(page: CurrentPage, job: Job) -> tuple[Reason, ...]:
    if job.status in ("completed", "cancelled"):
        return ()
    return (await page.app.jobs.awhy(job.id, tenant=page.tenant)).reasons


def _workflow_of(job: Job) -> UUID | None:
    try:
        return UUID(job.headers[WORKFLOW_HEADER])
    except (KeyError, ValueError):
        return None


class Step(Struct, frozen=True, kw_only=True):
    """One entry of a job's timeline."""

    at: datetime
    what: str
    kind: Literal["enqueued", "waiting", "running", "good", "bad", "retry", "neutral"]
    took_s: float | None = None
    """How long it lasted, if it is over."""


_KINDS: dict[str, Literal["good", "bad", "retry", "neutral"]] = {
    "completed": "good",
    "dead": "bad",
    "failed": "retry",
    "lost": "retry",
    "failed_by_hand": "retry",
}


def _timeline(detail: JobDetail, now: datetime) -> list[Step]:
    """From its enqueueing to now: each attempt with its wait before it, and where it is now."""
    job = detail.job
    steps = [Step(at=job.enqueued_at, what="Enqueued", kind="enqueued")]
    if job.scheduled_at > job.enqueued_at:
        steps.append(Step(at=job.scheduled_at, what="Due", kind="waiting"))
    steps += [_attempted(attempt) for attempt in detail.attempts]
    if job.status == "processing" and job.started_at is not None:
        steps.append(Step(at=job.started_at, what=f"Attempt {job.attempt} runs", kind="running"))
    elif job.status == "pending" and job.run_at <= now:
        steps.append(Step(at=job.run_at, what="Waits for its turn", kind="waiting"))
    elif job.status == "failed":
        steps.append(Step(at=job.run_at, what="Next attempt", kind="waiting"))
    elif job.status == "completed" and not any(attempt.outcome == "completed" for attempt in detail.attempts):
        ran_s = None if job.started_at is None else _seconds(job.started_at, job.finished_at)
        if job.started_at is not None:
            steps.append(Step(at=job.started_at, what=f"Attempt {job.attempt} completed", kind="good", took_s=ran_s))
    elif job.status == "cancelled" and job.finished_at is not None:
        steps.append(Step(at=job.finished_at, what="Cancelled", kind="neutral"))
    return sorted(steps, key=lambda step: step.at)


def _attempted(attempt: Attempt) -> Step:
    began = attempt.started_at or attempt.leased_at
    return Step(
        at=began,
        what=f"Attempt {attempt.attempt} {attempt.outcome.replace('_', ' ')}",
        kind=_KINDS.get(attempt.outcome, "neutral"),
        took_s=None if attempt.started_at is None else _seconds(attempt.started_at, attempt.ended_at),
    )


def _seconds(begin: datetime, end: datetime | None) -> float | None:
    return None if end is None else max((end - begin).total_seconds(), 0.0)


def _back(page: Page, job: Job) -> str:
    return page.url("show_job", id=job.id)


@pages.act("/{id:uuid}/cancel", JobAdmin.acancel, done="The job is cancelled, or asked to stop if it was running.")
async def cancel_job(page: CurrentPage, id: UUID, form: Form) -> str:
    return _back(page, await page.app.jobs.acancel(id, **_about(page, form)))


@pages.act("/{id:uuid}/retry", JobAdmin.aretry, done="This is the new job, with the same arguments as the dead one.")
async def retry_job(page: CurrentPage, id: UUID, form: Form) -> str:
    return _back(page, await page.app.jobs.aretry(id, **_about(page, form)))


@pages.act("/{id:uuid}/fail", JobAdmin.afail, done="The attempt is counted as failed.")
async def fail_job(page: CurrentPage, id: UUID, form: Form) -> str:
    reason, delay_s = form.required("reason"), form.number("retry_delay_s")
    return _back(page, await page.app.jobs.afail(id, reason, retry_delay=delay_s, **_about(page, form)))


@pages.act("/{id:uuid}/bury", JobAdmin.abury, done="The job is with the dead letters.")
async def bury_job(page: CurrentPage, id: UUID, form: Form) -> str:
    return _back(page, await page.app.jobs.abury(id, form.required("reason"), **_about(page, form)))


@pages.act("/{id:uuid}/reset", JobAdmin.areset, done="The job was taken from its worker and is ready again.")
async def reset_job(page: CurrentPage, id: UUID, form: Form) -> str:
    return _back(page, await page.app.jobs.areset(id, **_about(page, form)))


@pages.act(
    "/{id:uuid}/free-place", JobAdmin.afree_place, done="Its place is free: the next job with its key may start."
)
async def free_place(page: CurrentPage, id: UUID, form: Form) -> str:
    job = await page.app.jobs.afree_place(id, **_about(page, form))
    return page.url("show_limits") if form.text("from") == "limits" else _back(page, job)


def _about(page: Page, form: Form) -> Any:
    return {"by": page.by, "notes": form.words("notes"), "tenant": page.tenant}
