"""Dead letters, one at a time, behind the managers' gates."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import BaseModel, Field

from fairlane.api.auth.rights import Right
from fairlane.api.fields import Act, RowId, TenantName
from fairlane.api.filters import DeadLettersWhere, dead_letters_where
from fairlane.api.models.dead_letters import (
    DeadLetterList,
    DeadLetterSeen,
    Reprocessed,
    Reviewed,
    item,
    seen,
)
from fairlane.api.paging import Cursor, PageSize, next_cursor, seq_at
from fairlane.api.reprocessing import reprocess
from fairlane.api.request import Here
from fairlane.api.router import Routes
from fairlane.core.ids import Seq
from fairlane.core.job import DEAD_LETTER_STATUSES
from fairlane.core.ops import GetDeadLetter, GetStats, PageDeadLetters
from fairlane.errors import DeadLetterNotFound

routes = Routes("admin: dead letters", "/api/jobs/admin/dlq/")

Where = Annotated[DeadLettersWhere, Depends(dead_letters_where)]


class DeadLetterCounts(BaseModel):
    total_count: int
    pending_review: int
    retried: int
    resolved: int
    discarded: int


class Reprocessing(Act):
    payload: dict[str, Any] | None = Field(
        default=None, description="Run with this one instead; the dead letter keeps its own. Checked as at an enqueue."
    )
    delay_s: Annotated[float, Field(ge=0, le=366 * 86_400, allow_inf_nan=False)] | None = Field(
        default=None, description="Run so much later."
    )


@routes.get("", Right.MANAGE)
async def list_dead_letters(
    here: Here,
    where: Where,
    tenant: Annotated[TenantName | None, Query(description="Look at one tenant only.")] = None,
    limit: PageSize = 50,
    cursor: Cursor = None,
) -> DeadLetterList:
    """List dead letters, newest first."""
    op = PageDeadLetters(scope=here.narrowed(tenant), where=where.filter(), before=seq_at(cursor), limit=limit)
    page = await here.ask(op)
    return DeadLetterList(
        dlq_items=[item(letter) for letter in page.dead_letters],
        total_count=page.total,
        next_cursor=next_cursor(page.next),
    )


@routes.get("statistics/", Right.MANAGE)
async def count_dead_letters(here: Here) -> DeadLetterCounts:
    """Count dead letters by status, each up to 100,000."""
    found = (await here.ask(GetStats(scope=here.scope))).dead_letters
    counts = {status: found.get(status, 0) for status in DEAD_LETTER_STATUSES}
    return DeadLetterCounts(total_count=sum(counts.values()), **counts)


@routes.get("{id}/", Right.MANAGE)
async def show_dead_letter(here: Here, id: RowId) -> DeadLetterSeen:
    """Look at one dead letter, with its payload and every attempt."""
    detail = await here.ask(GetDeadLetter(scope=here.scope, id=Seq(id)))
    if detail is None:
        raise DeadLetterNotFound(id)
    return seen(detail)


@routes.post("{id}/reprocess/", Right.MANAGE)
async def reprocess_dead_letter(here: Here, id: RowId, body: Reprocessing | None = None) -> Reprocessed:
    """Make a new job of a dead one. Safe when clicked twice: one job lives at a time."""
    asked = body or Reprocessing()
    job, repeated = await reprocess(here, Seq(id), notes=asked.notes, payload=asked.payload, delay_s=asked.delay_s)
    return Reprocessed(
        message="DLQ item was reprocessed already" if repeated else "DLQ item reprocessed successfully",
        dlq_id=id,
        new_job_id=job.id,
        new_idempotency_key=job.idempotency_key,
    )


@routes.post("{id}/discard/", Right.MANAGE)
async def discard_dead_letter(here: Here, id: RowId, body: Act | None = None) -> Reviewed:
    """Close a dead letter as not worth another try."""
    letter = await here.app.dead_letters.adiscard(id, by=here.by, notes=_notes(body), tenant=here.tenant)
    return Reviewed(message="DLQ item discarded", dlq_id=id, item=item(letter))


@routes.post("{id}/resolve/", Right.MANAGE)
async def resolve_dead_letter(here: Here, id: RowId, body: Act | None = None) -> Reviewed:
    """Close a dead letter as dealt with."""
    letter = await here.app.dead_letters.aresolve(id, by=here.by, notes=_notes(body), tenant=here.tenant)
    return Reviewed(message="DLQ item resolved", dlq_id=id, item=item(letter))


@routes.post("{id}/acknowledge/", Right.MANAGE)
async def acknowledge_dead_letter(here: Here, id: RowId, body: Act | None = None) -> Reviewed:
    """Say that you look after a dead letter; the first name stays."""
    letter = await here.app.dead_letters.aacknowledge(id, by=here.by, notes=_notes(body), tenant=here.tenant)
    return Reviewed(message="DLQ item acknowledged", dlq_id=id, item=item(letter))


def _notes(body: Act | None) -> str | None:
    return None if body is None else body.notes
