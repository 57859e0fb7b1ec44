"""The pages of failures: dead letters grouped by what failed alike, one by one, and many at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, get_args

from fastapi import Query
from msgspec import Raw
from starlette.responses import RedirectResponse, Response

from fairlane.api.fields import Cursor, RowId, next_cursor, seq_at
from fairlane.api.routes.jobs import whole_job
from fairlane.client.admin.dead_letters import MOST_BEHIND, PER_SECOND, DeadLetterAdmin, DeadLetterVerb
from fairlane.client.admin.filters import DeadLetterFilters, dead_letter_filter
from fairlane.client.admin.short_ids import NUMBER
from fairlane.core.job import DEAD_LETTER_STATUSES
from fairlane.core.ops import COUNT_CAP, ROUGH_CAP, DeadLetterFilter
from fairlane.core.tracebacks import parts_of
from fairlane.errors import DeadLetterNotFound
from fairlane.web.form import Form
from fairlane.web.formats import indented_json
from fairlane.web.page import CurrentPage, Done, Page, Pages, Values
from fairlane.web.search import Search, search

pages = Pages("dead_letters", "/failures", title="Failures", key="f")

Words = Annotated[str, Query(alias="q", max_length=2000)]
UNREVIEWED = "status:pending_review"
PAGE_SIZE = 50
MOST_GROUPS = 50
FIELDS = (*DeadLetterFilters.__annotations__, "tenant")
DONE_TO_MANY: dict[DeadLetterVerb, str] = {
    "acknowledge": "acknowledged",
    "reprocess": "reprocessed",
    "resolve": "closed as resolved",
    "discard": "discarded",
}


def read_search(page: Page, text: str) -> Search:
    return search(text, DeadLetterFilters.__annotations__, _filter, page)


def _filter(given: Mapping[str, Any]) -> DeadLetterFilter:
    fields = dict(given)
    if "status" in fields:  # A search can name several of anything that is called so; a dead letter has one.
        fields["status"] = ",".join(fields["status"])
    if "acknowledged" in fields:
        answer = str(fields["acknowledged"]).lower()
        fields["acknowledged"] = {"yes": True, "true": True, "no": False, "false": False}.get(answer, answer)
    return dead_letter_filter(fields)


@pages.page("", DeadLetterAdmin.agroups, "failures.html")
async def show_failures(page: CurrentPage, q: Words = UNREVIEWED) -> Values:
    """Show groups of dead letters that failed alike, the largest first."""
    asked = read_search(page, q)
    groups: Any = ()
    if asked.problem is None:
        groups = await page.app.dead_letters.agroups(where=asked.where, tenant=asked.tenant, limit=MOST_GROUPS)
    return {
        "search": asked,
        "groups": groups,
        "is_cut": len(groups) == MOST_GROUPS,
        "is_unfiltered": asked.words == (UNREVIEWED,),
        "statuses": DEAD_LETTER_STATUSES,
        "fields": FIELDS,
    }


@pages.page("/letters", DeadLetterAdmin.alist, "dead_letters.html")
async def show_dead_letters(page: CurrentPage, q: Words = UNREVIEWED, cursor: Cursor = None) -> Values | Response:
    """List dead letters, newest first; the number of one leads to it."""
    if NUMBER.fullmatch(q.strip()):
        return RedirectResponse(page.url("show_dead_letter", id=q.strip()), 303)
    asked = read_search(page, q)
    found = None
    if asked.problem is None:
        found = await page.app.dead_letters.alist(
            where=asked.where, tenant=asked.tenant, before=seq_at(cursor), limit=PAGE_SIZE, rough=True
        )
    return {
        "search": asked,
        "letters": () if found is None else found.dead_letters,
        "total": 0 if found is None else found.total,
        "cap": ROUGH_CAP,
        "cursor": cursor,
        "next": None if found is None else next_cursor(found.next),
        "statuses": DEAD_LETTER_STATUSES,
        "fields": FIELDS,
        "verbs": get_args(DeadLetterVerb),
    }


@pages.page("/letters/{id:int}", DeadLetterAdmin.aget, "dead_letter.html", of_one_tenant=True)
async def show_dead_letter(page: CurrentPage, id: RowId) -> Values:
    """Show one dead letter: its error and attempts, and its arguments, which may be edited for another run."""
    detail = await page.app.dead_letters.aget(id, tenant=page.tenant)
    if detail is None:
        raise DeadLetterNotFound(id)
    letter = detail.dead_letter
    whole = await whole_job(page.app, letter.job)
    return {
        "letter": letter,
        "job": letter.job,
        "attempts": [(attempt, parts_of(attempt.traceback or "")) for attempt in reversed(detail.attempts)],
        "payload": indented_json(whole["payload"]),
        "is_editable": letter.job.type in page.app.tasks and isinstance(whole["payload"], Raw),
    }


@pages.page("/many", DeadLetterAdmin.aact_on_many, "confirm.html", of_one_tenant=True)
async def confirm_dead_letters(
    page: CurrentPage,
    act: DeadLetterVerb,
    q: Words = "",
    id: Annotated[list[RowId] | None, Query(max_length=200)] = None,
    all: Annotated[str, Query(max_length=1)] = "",
    cursor: Cursor = None,
    behind: Annotated[int, Query(ge=0, le=MOST_BEHIND)] = 0,
    per_second: Annotated[float, Query(ge=0.01, le=1000)] = PER_SECOND,
) -> Values:
    """Ask whether an act on many dead letters is meant, with their number; again for each part of very many."""
    asked = read_search(page, q)
    ids = None if all else (id or [])
    counted = None
    if asked.problem is None and ids != []:
        counted = await page.app.dead_letters.aact_on_many(
            act,
            ids,
            where=None if ids else asked.where,
            all=bool(all),
            tenant=asked.tenant,
            before=seq_at(cursor),
            dry_run=True,
            by=page.by,
        )
    return {
        "search": asked,
        "verb": act,
        "noun": "dead letter",
        "ids": ids,
        "searched": None,
        "counted": counted,
        "total": None if counted is None else counted.matched if cursor or counted.total is None else counted.total,
        "cap": COUNT_CAP,
        "cursor": cursor,
        "behind": behind,
        "post_to": page.url("act_on_dead_letters"),
        "back": page.url("show_dead_letters", q=q),
        "per_second": per_second if act == "reprocess" else None,
        "needs_reason": act == "discard",
        "is_danger": act == "discard",
    }


@pages.act("/many", DeadLetterAdmin.aact_on_many, done="{n} dead letter{s} {verb}.")
async def act_on_dead_letters(page: CurrentPage, form: Form) -> Done:
    verb: Any = form.one_of("act", get_args(DeadLetterVerb))
    asked = read_search(page, form.text("q") or "")
    ids = form.wholes("id") or None
    per_second, behind = form.number("per_second"), form.whole("behind") or 0
    if verb == "discard":
        form.required("notes")
    acts = await page.app.dead_letters.aact_on_many(
        verb,
        ids,
        where=None if ids else asked.required(),
        all=form.text("all") is not None,
        per_second=PER_SECOND if per_second is None else per_second,
        before=form.whole("cursor"),
        down_to=form.whole("down_to"),
        behind=behind,
        by=page.by,
        notes=form.words("notes"),
        tenant=asked.tenant,
    )
    where = page.url("show_dead_letters", q=form.text("q") or UNREVIEWED)
    following = form.whole("down_to") if acts.next is None else acts.next
    if following is not None:
        # A part that is submitted twice matches nothing the second time; the rest stays behind its jobs all the same.
        behind += max(acts.matched, form.whole("counted") or 0)
        rest = {"cursor": following, "behind": behind, "per_second": per_second}
        where = page.url("confirm_dead_letters", act=verb, q=form.text("q") or "", all="1", **rest)
    return Done(where, n=len(acts.done), refused=len(acts.refused), verb=DONE_TO_MANY[verb])


@pages.act("/letters/{id:int}/reprocess", DeadLetterAdmin.areprocess, done="This is the new job.")
async def reprocess_dead_letter(page: CurrentPage, id: RowId, form: Form) -> str:
    payload = None
    if form.text("payload") is not None:
        payload = await form.json("payload")
        detail = await page.app.dead_letters.aget(id, tenant=page.tenant)
        if detail is not None and json.loads(detail.dead_letter.job.payload) == payload:
            payload = None  # Not edited: it runs even if the task is unknown here, or has another version now.
    made = await page.app.dead_letters.areprocess(
        id, payload=payload, delay=form.number("delay_s"), by=page.by, notes=form.words("notes"), tenant=page.tenant
    )
    return page.url("show_job", id=made.job.id)


@pages.act("/letters/{id:int}/acknowledge", DeadLetterAdmin.aacknowledge, done="You are responsible for it.")
async def acknowledge_dead_letter(page: CurrentPage, id: RowId, form: Form) -> str:
    await page.app.dead_letters.aacknowledge(id, by=page.by, notes=form.words("notes"), tenant=page.tenant)
    return page.url("show_dead_letter", id=id)


@pages.act("/letters/{id:int}/resolve", DeadLetterAdmin.aresolve, done="Closed as resolved.")
async def resolve_dead_letter(page: CurrentPage, id: RowId, form: Form) -> str:
    await page.app.dead_letters.aresolve(id, by=page.by, notes=form.words("notes"), tenant=page.tenant)
    return page.url("show_dead_letter", id=id)


@pages.act("/letters/{id:int}/discard", DeadLetterAdmin.adiscard, done="Discarded.")
async def discard_dead_letter(page: CurrentPage, id: RowId, form: Form) -> str:
    form.required("notes")
    await page.app.dead_letters.adiscard(id, by=page.by, notes=form.words("notes"), tenant=page.tenant)
    return page.url("show_dead_letter", id=id)
