"""The pages of workflows and batches: list them, look at one as a graph, cancel it or run nodes again."""

from __future__ import annotations

from typing import Annotated, Any, get_args
from uuid import UUID

from fastapi import Query

from fairlane.api.fields import Cursor, Key, next_cursor, seq_at
from fairlane.api.request import examined
from fairlane.client.admin.workflows import MOST_DRAWN, WorkflowAdmin
from fairlane.client.rights import Right
from fairlane.core.workflows import Workflow, WorkflowStatus
from fairlane.web.form import Form
from fairlane.web.page import CurrentPage, Page, Pages, Values
from fairlane.web.workflow_graph import draw, state_of, took_s

pages = Pages("workflows", "/workflows", title="Workflows", key="k")

PAGE_SIZE = 50
NODES_A_PAGE = 100
NODE_BYTES = 100
"""A node is as much work to draw as this much text to look through: large graphs are drawn in a thread."""
MOST_CHOICES = 100
"""Nodes that are offered by name to retry from; of more, the name is typed."""


@pages.page("", WorkflowAdmin.alist, "workflows.html")
async def show_workflows(
    page: CurrentPage,
    name: Key | Annotated[str, Query(max_length=0)] | None = None,
    status: WorkflowStatus | None = None,
    cursor: Cursor = None,
) -> Values:
    found = await page.app.workflows.alist(
        name=name or None, status=status, tenant=page.tenant, before=seq_at(cursor), limit=PAGE_SIZE
    )
    return {
        "workflows": found.workflows,
        "name": name or None,
        "status": status,
        "statuses": get_args(WorkflowStatus),
        "cursor": cursor,
        "next": next_cursor(found.next),
    }


@pages.page("/{id:uuid}", WorkflowAdmin.agraph, "workflow.html", of_one_tenant=True)
async def show_workflow(page: CurrentPage, id: UUID, cursor: Cursor = None) -> Values:
    """Show one workflow: its graph, its nodes, and what it waits for."""
    detail = await page.app.workflows.aget(id, tenant=page.tenant)
    after = -1 if cursor is None else int(cursor)
    if detail.workflow.tally.total <= MOST_DRAWN:
        graph = await page.app.workflows.agraph(id, tenant=page.tenant)
        left = [node for node in graph.nodes if node.n > after]
        nodes, is_more, parents = left[:NODES_A_PAGE], len(left) > NODES_A_PAGE, graph.parents
        drawing = await examined(len(graph.nodes) * NODE_BYTES, draw, graph)
    else:
        listed = await page.app.workflows.anodes(id, after=after, limit=NODES_A_PAGE, tenant=page.tenant)
        nodes, is_more, parents, drawing = list(listed.nodes), listed.next is not None, {}, None
    return {
        "workflow": detail.workflow,
        "dead": detail.dead,
        "drawing": drawing,
        "nodes": [(node, state_of(node), parents.get(node.name, ()), took_s(node)) for node in nodes],
        "choices": [node.name for node in nodes] if detail.workflow.tally.total <= MOST_CHOICES else None,
        "shows_errors": page.may(Right.MANAGE),
        "cursor": cursor,
        "next": str(nodes[-1].n) if is_more else None,
    }


@pages.act("/{id:uuid}/cancel", WorkflowAdmin.acancel, done="Waiting nodes are cancelled, running ones asked to stop.")
async def cancel_workflow(page: CurrentPage, id: UUID, form: Form) -> str:
    return _back(page, await page.app.workflows.acancel(id, **_about(page, form)))


@pages.act("/{id:uuid}/retry", WorkflowAdmin.aretry, done="The nodes run again, and all that wait for them.")
async def retry_workflow(page: CurrentPage, id: UUID, form: Form) -> str:
    return _back(page, await page.app.workflows.aretry(id, from_=form.text("node"), **_about(page, form)))


def _back(page: Page, workflow: Workflow) -> str:
    return page.url("show_workflow", id=workflow.id)


def _about(page: Page, form: Form) -> Any:
    return {"by": page.by, "notes": form.words("notes"), "tenant": page.tenant}
