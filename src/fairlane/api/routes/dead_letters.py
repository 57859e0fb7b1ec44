"""Routes for dead letters, for managers: one at a time, grouped by fingerprint, or many at a bounded rate.

Responses use the field names that existing consoles expect: `dlq_id`, `job_type`, `error_message`, `created_at`.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends
from msgspec import Meta, Struct
from pydantic import Field

from fairlane.api.fields import (
    ActBody,
    Cursor,
    Key,
    Matching,
    NextCursor,
    Notes,
    PageSize,
    RowId,
    Selection,
    Where,
    many,
    next_cursor,
    seq_at,
    shape,
    where,
)
from fairlane.api.request import Context, examined
from fairlane.api.router import Routes
from fairlane.api.routes.jobs import DONE, PAYLOAD, ManyBody, done
from fairlane.client.admin.bulk_acts import MOST_ACTS
from fairlane.client.admin.dead_letters import MOST_BEHIND, PER_SECOND, DeadLetterAdmin, DeadLetterVerb
from fairlane.client.rights import Right
from fairlane.core.ids import JobId
from fairlane.core.job import Attempt, DeadLetter
from fairlane.core.ops import DeadLetterFilter, DeadLetterGroups
from fairlane.core.payload.codec import stored_json
from fairlane.errors import DeadLetterNotFound

routes = Routes("admin: dead letters", "/api/jobs/admin/dlq/", at_least=Right.MANAGE)

Filter = Annotated[Where[DeadLetterFilter], Depends(where(DeadLetterFilter))]
PerSecond = Annotated[float, Field(ge=0.01, le=1000, allow_inf_nan=False)]

_IN_LISTINGS = (
    *("job.tenant", "job.queue", "job.category", "status", "job.idempotency_key", "job.correlation_id"),
    *("error_class", "error_type", "fingerprint", "acknowledged_by", "acknowledged_at", "closed_by", "closed_at"),
    *("resolution_notes", "reprocess_count", "reprocessed_as"),
)
_RENAMED: dict[str, Any] = {
    "dlq_id": "id",
    "job_id": "job.id",
    "job_type": "job.type",
    "error_message": "reason",
    "attempt_count": "job.attempts",
    "original_created_at": "job.enqueued_at",
    "created_at": "died_at",
}
_WHOLE = (
    *("job.payload_version", "job.refs", "job.headers", "job.parent_id", "job.created_by", "job.max_attempts"),
    *("job.scheduled_at", "job.run_at", "job.started_at", "job.finished_at"),
)
ITEM = Selection("DeadLetterItem", DeadLetter, *_IN_LISTINGS, **_RENAMED)
WHOLE = Selection(
    "WholeDeadLetter",
    DeadLetter,
    *_IN_LISTINGS,
    *_WHOLE,
    **_RENAMED,
    more={"payload": PAYLOAD, "attempts": tuple[Attempt, ...]},
)
TOTAL = Annotated[int, Meta(description="How many match on all pages, counted up to 100,000.")]
ITEMS = shape("DeadLetterList", dlq_items=many(ITEM.type), total_count=TOTAL, next_cursor=NextCursor)
REVIEWED = shape("Reviewed", message=str, dlq_id=int, item=ITEM.type)
COUNTS = shape("DeadLetterCounts", total_count=int, pending_review=int, retried=int, resolved=int, discarded=int)


class ReprocessedAnswer(Struct, frozen=True, kw_only=True):
    message: str
    dlq_id: int
    new_job_id: JobId
    new_idempotency_key: str
    """The old key followed by `_retry_<n>`."""


class ReprocessBody(ActBody):
    payload: dict[str, Any] | None = Field(
        default=None,
        description="Payload of the new job; the dead letter keeps its own. Validated as in an enqueue.",
    )
    delay_s: Annotated[float, Field(ge=0, le=366 * 86_400, allow_inf_nan=False)] | None = Field(
        default=None, description="Run after this delay."
    )


class GroupBody(ManyBody):
    per_second: PerSecond = Field(
        default=PER_SECOND, description="For `reprocess`: how many of the new jobs become due per second."
    )
    behind: int = Field(
        default=0,
        ge=0,
        le=MOST_BEHIND,
        description="For `reprocess` with a `cursor`: the sum of `matched` of the requests before it; the new jobs "
        "become due after theirs.",
    )

    def about(self, by: str) -> dict[str, Any]:
        return super().about(by) | {"per_second": self.per_second, "behind": self.behind}


class ManyDeadLettersBody(GroupBody):
    act: DeadLetterVerb
    ids: list[RowId] | None = Field(default=None, max_length=MOST_ACTS, description="Ids of the dead letters.")
    where: Annotated[Where[DeadLetterFilter], Matching(DeadLetterFilter)] | None = Field(
        default=None, description="Filter that selects the dead letters, instead of `ids`."
    )


@routes.get("", DeadLetterAdmin.alist, answer=ITEMS)
async def list_dead_letters(ctx: Context, where: Filter, limit: PageSize = 50, cursor: Cursor = None) -> object:
    """List dead letters, newest first."""
    before = seq_at(cursor)
    page = await ctx.app.dead_letters.alist(where=where.filter, tenant=where.tenant, before=before, limit=limit)
    items = [ITEM.of(letter) for letter in page.dead_letters]
    return {"dlq_items": items, "total_count": page.total, "next_cursor": next_cursor(page.next)}


@routes.get("statistics/", DeadLetterAdmin.acounts, answer=COUNTS)
async def count_dead_letters(ctx: Context) -> object:
    """Count dead letters by status, each up to 100,000."""
    counts = await ctx.app.dead_letters.acounts()
    return {"total_count": sum(counts.values())} | {str(status): number for status, number in counts.items()}


@routes.get("groups/", DeadLetterAdmin.agroups)
async def group_dead_letters(ctx: Context, where: Filter, limit: PageSize = 50) -> DeadLetterGroups:
    """Group dead letters with the same fingerprint, largest group first.

    Covers those pending review unless `status` is given.
    """
    groups = await ctx.app.dead_letters.agroups(where=where.filter, tenant=where.tenant, limit=limit)
    return DeadLetterGroups(groups=groups)


@routes.post("groups/{fingerprint}/reprocess/", DeadLetterAdmin.aact_on_many, answer=DONE)
async def reprocess_group(ctx: Context, fingerprint: Key, body: GroupBody | None = None) -> object:
    """Reprocess all dead letters pending review with this fingerprint, at a bounded rate."""
    asked = body or GroupBody()
    where = DeadLetterFilter(status="pending_review", fingerprint=fingerprint)
    acts = await ctx.app.dead_letters.aact_on_many("reprocess", where=where, **asked.about(ctx.by))
    return done(acts, asked)


@routes.post("many/", DeadLetterAdmin.aact_on_many, answer=DONE)
async def act_on_dead_letters(ctx: Context, body: ManyDeadLettersBody) -> object:
    """Apply one act to many dead letters, given by id or by filter; with `dry_run` only count them."""
    acts = await ctx.app.dead_letters.aact_on_many(
        body.act,
        body.ids,
        where=body.where and body.where.filter,
        tenant=body.where and body.where.tenant,
        **body.about(ctx.by),
    )
    return done(acts, body)


@routes.get("{id}/", DeadLetterAdmin.aget, answer=WHOLE.type)
async def show_dead_letter(ctx: Context, id: RowId) -> object:
    """Show one dead letter with its payload and every attempt."""
    detail = await ctx.app.dead_letters.aget(id)
    if detail is None:
        raise DeadLetterNotFound(id)
    letter, text = detail.dead_letter, detail.dead_letter.job.payload
    payload = await examined(len(text), stored_json, text)
    return WHOLE.of(letter, payload=payload, attempts=detail.attempts)


@routes.post("{id}/reprocess/", DeadLetterAdmin.areprocess)
async def reprocess_dead_letter(ctx: Context, id: RowId, body: ReprocessBody | None = None) -> ReprocessedAnswer:
    """Create a new job from a dead one.

    A repeated request returns that job unless it is dead, cancelled or removed.
    """
    asked = body or ReprocessBody()
    made = await ctx.app.dead_letters.areprocess(
        id, payload=asked.payload, delay=asked.delay_s, by=ctx.by, notes=asked.notes
    )
    return ReprocessedAnswer(
        message="DLQ item was reprocessed already" if made.repeated else "DLQ item reprocessed successfully",
        dlq_id=id,
        new_job_id=made.job.id,
        new_idempotency_key=made.job.idempotency_key,
    )


@routes.post("{id}/discard/", DeadLetterAdmin.adiscard, answer=REVIEWED)
async def discard_dead_letter(ctx: Context, id: RowId, notes: Notes) -> object:
    """Close a dead letter as discarded: no retry is worthwhile."""
    return _reviewed("discarded", await ctx.app.dead_letters.adiscard(id, by=ctx.by, notes=notes))


@routes.post("{id}/resolve/", DeadLetterAdmin.aresolve, answer=REVIEWED)
async def resolve_dead_letter(ctx: Context, id: RowId, notes: Notes) -> object:
    """Close a dead letter as resolved."""
    return _reviewed("resolved", await ctx.app.dead_letters.aresolve(id, by=ctx.by, notes=notes))


@routes.post("{id}/acknowledge/", DeadLetterAdmin.aacknowledge, answer=REVIEWED)
async def acknowledge_dead_letter(ctx: Context, id: RowId, notes: Notes) -> object:
    """Record the caller as responsible for a dead letter; later calls do not replace the first name."""
    return _reviewed("acknowledged", await ctx.app.dead_letters.aacknowledge(id, by=ctx.by, notes=notes))


def _reviewed(act: str, letter: DeadLetter) -> object:
    return {"message": f"DLQ item {act}", "dlq_id": letter.id, "item": ITEM.of(letter)}
