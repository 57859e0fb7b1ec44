"""Dead letters by the dozen: groups that failed alike, and acts on many at a bounded rate."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Depends
from pydantic import BaseModel, Field

from fairlane.api.auth.rights import Right
from fairlane.api.fields import Key, RowId, Seen
from fairlane.api.filters import DeadLettersWhere, dead_letters_where
from fairlane.api.many import MOST, Done, Many, each, gathered, require_one
from fairlane.api.paging import PageSize
from fairlane.api.reprocessing import reprocess
from fairlane.api.request import Here, Visit
from fairlane.api.router import Routes
from fairlane.core.ids import Seq
from fairlane.core.ops import GroupDeadLetters, PageDeadLetters

routes = Routes("admin: dead letters", "/api/jobs/admin/dlq/")

PerSecond = Annotated[float, Field(ge=0.01, le=1000, allow_inf_nan=False)]
PER_SECOND = 10.0


class GroupSeen(Seen):
    """Dead letters that failed alike."""

    fingerprint: str
    type: str
    error_type: str
    reason: str = Field(description="Of the newest.")
    count: int
    tenants: int
    first_at: datetime
    last_at: datetime
    newest: int


class Groups(BaseModel):
    groups: list[GroupSeen]


class ManyDeadLetters(Many):
    act: Literal["reprocess", "discard", "resolve", "acknowledge"]
    ids: list[RowId] | None = Field(default=None, max_length=MOST, description="These.")
    where: DeadLettersWhere | None = Field(default=None, description="Or those that match.")
    per_second: PerSecond = Field(
        default=PER_SECOND, description="For `reprocess`: so many of the new jobs become due a second."
    )


class WholeGroup(Many):
    per_second: PerSecond = Field(default=PER_SECOND, description="So many of the new jobs become due a second.")


@routes.get("groups/", Right.MANAGE)
async def group_dead_letters(
    here: Here, where: Annotated[DeadLettersWhere, Depends(dead_letters_where)], limit: PageSize = 50
) -> Groups:
    """Put dead letters together that failed alike, most first; those pending review, unless a status is asked for."""
    if where.status is None:
        where = where.model_copy(update={"status": "pending_review"})
    found = await here.ask(GroupDeadLetters(scope=here.scope, where=where.filter(), limit=limit))
    return Groups(groups=[GroupSeen.model_validate(group) for group in found.groups])


@routes.post("groups/{fingerprint}/reprocess/", Right.MANAGE)
async def reprocess_group(here: Here, fingerprint: Key, body: WholeGroup | None = None) -> Done:
    """Reprocess everything pending review that failed alike, spread over time."""
    asked = body or WholeGroup()
    where = DeadLettersWhere(status="pending_review", fingerprint=fingerprint)
    many = ManyDeadLetters(act="reprocess", where=where, **asked.model_dump())
    return await act_on_dead_letters(here, many)


@routes.post("many/", Right.MANAGE)
async def act_on_dead_letters(here: Here, body: ManyDeadLetters) -> Done:
    """Do the same to many dead letters, given by id or by filter; with `dry_run` only say how many."""
    require_one(body.ids, body.where)
    cursor: str | None = None
    total: int | None = None
    if body.where is None:
        ids = list(dict.fromkeys(body.ids or ()))
    else:
        ids, cursor = await _matching(here, body.where, body.most, body.cursor)
        total = await _total(here, body.where) if body.dry_run else None
    if body.dry_run:
        return Done(dry_run=True, matched=len(ids), total_count=total, done=0, refused=[], next_cursor=cursor)
    done, refused = await each(ids, lambda index, letter: _act(here, body, index, letter))
    return Done(dry_run=False, matched=len(ids), done=done, refused=refused, next_cursor=cursor)


async def _matching(
    here: Visit, where: DeadLettersWhere, most: int, cursor: str | None
) -> tuple[list[int], str | None]:
    scope = here.required(where.tenant)

    async def page(before: Seq | None, limit: int) -> tuple[list[int], Seq | None]:
        found = await here.ask(PageDeadLetters(scope=scope, where=where.filter(), before=before, limit=limit))
        return [int(letter.id) for letter in found.dead_letters], found.next

    return await gathered(page, most, cursor)


async def _total(here: Visit, where: DeadLettersWhere) -> int:
    return (await here.ask(PageDeadLetters(scope=here.required(where.tenant), where=where.filter(), limit=1))).total


async def _act(here: Visit, body: ManyDeadLetters, index: int, id: int) -> object:
    app, by, notes, tenant = here.app, here.by, body.notes, here.tenant
    match body.act:
        case "reprocess":
            delay_s = index / body.per_second
            return await reprocess(here, Seq(id), notes=notes, delay_s=delay_s or None)
        case "discard":
            return await app.dead_letters.adiscard(id, by=by, notes=notes, tenant=tenant)
        case "resolve":
            return await app.dead_letters.aresolve(id, by=by, notes=notes, tenant=tenant)
        case "acknowledge":
            return await app.dead_letters.aacknowledge(id, by=by, notes=notes, tenant=tenant)
