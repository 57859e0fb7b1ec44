"""`app.workflows`: list workflows, look at their nodes, cancel them or run them again."""

from __future__ import annotations

from typing import Unpack
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from fairlane.client.admin.filters import page_size, seq_before
from fairlane.client.admin.short_ids import id_meant
from fairlane.client.context import in_scope
from fairlane.client.handle import ScopedActOptions, audited_in_scope
from fairlane.client.rights import Right
from fairlane.client.steps import Steps, Verbs, ask, both
from fairlane.client.workflow_handle import BatchHandle, WorkflowHandle, read_nodes, retry_nodes, workflow_of
from fairlane.core.ids import Seq
from fairlane.core.ops import (
    MAX_PAGE,
    CancelWorkflow,
    GetWorkflow,
    ListGates,
    NodePage,
    PageNodes,
    PageWorkflows,
    WorkflowDetail,
    WorkflowPage,
)
from fairlane.core.workflows import Node, Workflow, WorkflowId, WorkflowStatus, parents_of
from fairlane.errors import InvalidOption, WorkflowNotFound

WorkflowLike = WorkflowHandle | Workflow | UUID | str
MOST_DRAWN = 10_000
"""Nodes up to which people are shown a graph as a whole."""
MOST_LISTS = 10
"""Reads for one page of workflows of a status."""


class WorkflowGraph(Struct, frozen=True, kw_only=True):
    """A workflow with its nodes, each with the names of those it waits for."""

    workflow: Workflow
    dead: tuple[int, ...]
    """Dead letters that it waits for."""
    nodes: tuple[Node, ...]
    parents: dict[str, tuple[str, ...]]


def workflow_id(given: WorkflowLike) -> WorkflowId:
    if isinstance(given, WorkflowHandle | Workflow):
        return given.id
    if isinstance(given, UUID):
        return WorkflowId(given)
    try:
        return WorkflowId(UUID(given))
    except (ValueError, TypeError, AttributeError):
        raise InvalidOption("workflow", given, "the id of a workflow") from None


class WorkflowAdmin(Verbs):
    """Methods for workflows; `tenant=None` means all tenants."""

    __slots__ = ()

    def handle(self, workflow: WorkflowLike) -> WorkflowHandle:
        """A handle on a workflow by its id; nothing is asked."""
        return WorkflowHandle(self._runtime, workflow_id(workflow))

    def batch(self, batch: WorkflowLike) -> BatchHandle:
        """A handle on a batch by its id; nothing is asked."""
        return BatchHandle(self._runtime, workflow_id(batch))

    def _list(
        self,
        *,
        tenant: str | int | None = None,
        name: str | None = None,
        status: WorkflowStatus | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Steps[WorkflowPage]:
        """Workflows, newest first. `next` of a page is `before` for the one after it.

        With `status`, the next 2,000 are looked at: a page may be short, or empty, and have a `next`.
        """
        asked = PageWorkflows(scope=in_scope(tenant), name=name, before=seq_before(before), limit=page_size(limit))
        if status is None:
            return (yield from ask(asked))
        found: list[Workflow] = []
        for _ in range(MOST_LISTS):
            page = yield from ask(replace(asked, limit=MAX_PAGE))
            found += [workflow for workflow in page.workflows if workflow.status == status]
            if len(found) > limit or (len(found) == limit and page.next is not None):
                return WorkflowPage(workflows=tuple(found[:limit]), next=found[limit - 1].seq)
            asked = replace(asked, before=page.next)
            if page.next is None:
                break
        return WorkflowPage(workflows=tuple(found), next=asked.before)

    def _id_of(self, text: str, *, tenant: str | int | None = None) -> Steps[WorkflowId]:
        """The id of the workflow that a person means by its number, by a part of its id, or by the id itself."""
        scope = in_scope(tenant)

        def pages(before: Seq | None, limit: int) -> Steps[tuple[tuple[Workflow, ...], Seq | None]]:
            page = yield from ask(PageWorkflows(scope=scope, before=before, limit=limit))
            return page.workflows, page.next

        return WorkflowId((yield from id_meant("workflow", text, pages)))

    def _get(self, workflow: WorkflowLike, *, tenant: str | int | None = None) -> Steps[WorkflowDetail]:
        """One workflow, and the dead letters it waits for."""
        found = yield from ask(GetWorkflow(scope=in_scope(tenant), id=workflow_id(workflow)))
        if found is None:
            raise WorkflowNotFound(workflow_id(workflow))
        return found

    def _graph(self, workflow: WorkflowLike, *, tenant: str | int | None = None) -> Steps[WorkflowGraph]:
        """One workflow with all its nodes and who waits for whom."""
        found = yield from self._get(workflow, tenant=tenant)
        nodes = yield from read_nodes(found.workflow.id)
        gates = (yield from ask(ListGates(scope=in_scope(tenant), workflow=found.workflow.id))).gates
        return WorkflowGraph(
            workflow=found.workflow,
            dead=tuple(int(seq) for seq in found.dead),
            nodes=nodes,
            parents=parents_of(nodes, gates),
        )

    def _nodes(
        self, workflow: WorkflowLike, *, after: int = -1, limit: int = 100, tenant: str | int | None = None
    ) -> Steps[NodePage]:
        """Nodes in the order of adding. `next` of a page is `after` for the one behind it."""
        found = yield from self._get(workflow, tenant=tenant)
        asked = PageNodes(scope=in_scope(tenant), workflow=found.workflow.id, after=after, limit=page_size(limit))
        return (yield from ask(asked))

    def _cancel(self, workflow: WorkflowLike, **about: Unpack[ScopedActOptions]) -> Steps[Workflow]:
        """Cancel every node that waits and ask running ones to stop."""
        act = yield from ask(CancelWorkflow(id=workflow_id(workflow), **audited_in_scope(about)))
        return workflow_of(act, "cancel", workflow_id(workflow))

    def _retry(
        self, workflow: WorkflowLike, *, from_: str | None = None, **about: Unpack[ScopedActOptions]
    ) -> Steps[Workflow]:
        """Run a node and all that wait for it again; without one, everything that is dead or cancelled."""
        tenant = about.pop("tenant", None)
        found = yield from self._get(workflow, tenant=tenant)
        first = None if from_ is None else [from_]
        return (yield from retry_nodes(self._runtime, found.workflow.id, first, about))

    list, alist = both(_list, Right.READ)
    id_of, aid_of = both(_id_of, Right.READ)
    get, aget = both(_get, Right.READ)
    graph, agraph = both(_graph, Right.READ)
    nodes, anodes = both(_nodes, Right.READ)
    cancel, acancel = both(_cancel, Right.ACT)
    retry, aretry = both(_retry, Right.MANAGE)
