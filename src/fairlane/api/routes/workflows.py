"""Routes for workflows and batches: list them, show one with its nodes, cancel it or run nodes again."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends
from msgspec import Meta
from msgspec.structs import asdict
from pydantic import Field

from fairlane.api.fields import (
    ActBody,
    Cursor,
    Key,
    NextCursor,
    Notes,
    PageSize,
    ShortId,
    TenantName,
    many,
    next_cursor,
    seq_at,
    shape,
)
from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.client.admin.workflows import MOST_DRAWN, WorkflowAdmin
from fairlane.core.workflows import Node, Workflow, WorkflowStatus

routes = Routes("workflows", "/api/jobs/workflows/")

WORKFLOW = shape("WorkflowSummary", Workflow)
AFTER = Annotated[
    tuple[str, ...] | None,
    Meta(description=f"Names of the nodes it waits for; null in workflows of more than {MOST_DRAWN:,} nodes."),
]
# Without errors: as of any job, `/api/jobs/{id}/` shows them to those who may read them.
NODE = shape("WorkflowNode", Node, without=("gate", "counts_for", "job_seq", "last_error"), after=AFTER)
WORKFLOWS = shape("WorkflowList", workflows=many(WORKFLOW), next_cursor=NextCursor)
DEAD = many(int, "Dead letters that it waits for.")
SHOWN = shape("WorkflowDetail", workflow=WORKFLOW, dead=DEAD, nodes=many(NODE), next_cursor=NextCursor)


class RetryWorkflowBody(ActBody):
    node: Key | None = Field(
        default=None, description="Run this node again, and all that wait for it; else all that are dead or cancelled."
    )


async def _meant(ctx: Context, id: ShortId) -> UUID:
    return await ctx.app.workflows.aid_of(id)


WorkflowRef = Annotated[UUID, Depends(_meant)]


@routes.get("", WorkflowAdmin.alist, answer=WORKFLOWS)
async def list_workflows(
    ctx: Context,
    name: Key | None = None,
    status: WorkflowStatus | None = None,
    tenant: TenantName | None = None,
    limit: PageSize = 50,
    cursor: Cursor = None,
) -> object:
    """List workflows and batches, newest first.

    With `status`, a page may be short, or empty, and have a `next_cursor`: the next request looks further.
    """
    found = await ctx.app.workflows.alist(name=name, status=status, tenant=tenant, before=seq_at(cursor), limit=limit)
    return {"workflows": found.workflows, "next_cursor": next_cursor(found.next)}


@routes.get("{id:short_id}/", WorkflowAdmin.agraph, answer=SHOWN)
async def show_workflow(ctx: Context, id: WorkflowRef, limit: PageSize = 50, cursor: Cursor = None) -> object:
    """Show a workflow with its nodes, in the order of adding, and what each waits for."""
    detail = await ctx.app.workflows.aget(id)
    after = -1 if cursor is None else int(cursor)
    parents: dict[str, tuple[str, ...]] = {}
    if detail.workflow.tally.total <= MOST_DRAWN:
        graph = await ctx.app.workflows.agraph(id)
        left = [node for node in graph.nodes if node.n > after]
        nodes, is_more, parents = left[:limit], len(left) > limit, graph.parents
    else:
        page = await ctx.app.workflows.anodes(id, after=after, limit=limit)
        nodes, is_more = list(page.nodes), page.next is not None
    shown = [{**asdict(node), "after": parents.get(node.name)} for node in nodes]
    return {
        "workflow": detail.workflow,
        "dead": detail.dead,
        "nodes": shown,
        "next_cursor": str(nodes[-1].n) if is_more else None,
    }


@routes.post("{id:short_id}/cancel/", WorkflowAdmin.acancel, answer=WORKFLOW)
async def cancel_workflow(ctx: Context, id: WorkflowRef, notes: Notes) -> Any:
    """Cancel every node that waits, and ask running ones to stop."""
    return await ctx.app.workflows.acancel(id, by=ctx.by, notes=notes)


@routes.post("{id:short_id}/retry/", WorkflowAdmin.aretry, answer=WORKFLOW)
async def retry_workflow(ctx: Context, id: WorkflowRef, body: RetryWorkflowBody | None = None) -> Any:
    """Run a node again and all that wait for it, each as a new job."""
    node, notes = (None, None) if body is None else (body.node, body.notes)
    return await ctx.app.workflows.aretry(id, from_=node, by=ctx.by, notes=notes)
