"""`fairlane workflows`: lists workflows, shows one as a tree with states, cancels or retries it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from fairlane.cli.options import SuggestingGroup, acts, at_store, in_scope, lists, paged, prints
from fairlane.cli.output import Column, Printer, Style, facts_of
from fairlane.cli.target import At

if TYPE_CHECKING:
    from fairlane.client.admin.workflows import WorkflowGraph
    from fairlane.core.workflows import Node, WorkflowStatus

COLUMNS: tuple[Column, ...] = (
    *(("number", "seq"), "id", "name", "tenant", "status"),
    ("done", lambda workflow: f"{workflow.tally.ended}/{workflow.tally.total}"),
    ("dead", lambda workflow: workflow.tally.dead or None),
    "enqueued_at",
)
FOLDED = 200
"""Nodes from which on a workflow is shown by layers."""

STATUSES = ("running", "blocked", "completed", "failed", "cancelled")

workflow_id = click.argument("workflow", metavar="ID")


@click.group(cls=SuggestingGroup)
def workflows() -> None:
    """List and show workflows; cancel or retry one."""


@workflows.command("list")
@click.option("--name", help="Only those of this name.")
@click.option("--status", type=click.Choice(STATUSES), help="Only those of this status, among the next 2,000.")
@paged
@in_scope
@at_store
@lists
def list_workflows(
    name: str | None,
    status: WorkflowStatus | None,
    limit: int,
    before: int | None,
    tenant: str | None,
    at: At,
    out: Printer,
) -> None:
    """List workflows, newest first."""
    with at.client() as client:
        found = client.workflows.list(tenant=tenant, name=name, status=status, before=before, limit=limit)
        now = client.runtime.clock.now()
    empty = "there are no workflows; `app.workflow(…)` in code enqueues one"
    out.listing("workflows", found, COLUMNS, empty=empty, style=Style(now), drops=("id", "enqueued", "tenant"))


@workflows.command()
@workflow_id
@in_scope
@at_store
@prints
def show(workflow: str, tenant: str | None, at: At, out: Printer) -> None:
    """Show one workflow: its nodes as a tree with their states, and what it waits for."""
    with at.client() as client:
        graph = client.workflows.graph(client.workflows.id_of(workflow, tenant=tenant), tenant=tenant)
    if out.as_json:
        out.data(graph)
        return
    facts = list(facts_of(graph.workflow, without=("tally", "seq")))
    if graph.dead:
        facts.append(("waits for", "dead letters " + ", ".join(map(str, graph.dead))))
    out.facts(facts)
    out.line("")
    for line in layer_lines(graph) if len(graph.nodes) > FOLDED else tree_lines(graph):
        out.line(line)


def state_of(node: Node) -> str:
    return "waiting" if node.waiting else node.status


def tree_lines(graph: WorkflowGraph) -> Iterator[str]:
    """Each node below the last of those it waits for; the others are named behind it."""
    nodes = {node.name: node for node in graph.nodes}
    children: dict[str | None, list[str]] = {}
    for name in nodes:
        parents = graph.parents.get(name, ())
        children.setdefault(parents[-1] if parents else None, []).append(name)
    left = [(name, 0) for name in reversed(children.get(None, []))]
    while left:
        name, depth = left.pop()
        others = graph.parents.get(name, ())[:-1]
        also = f", also after {', '.join(others[:3])}{' …' if len(others) > 3 else ''}" if others else ""
        error = nodes[name].last_error if nodes[name].status in ("dead", "failed") else None
        yield f"{'  ' * depth}{name}  {state_of(nodes[name])}{also}{f': {error[:80]}' if error else ''}"
        left += [(child, depth + 1) for child in reversed(children.get(name, []))]


def layer_lines(graph: WorkflowGraph) -> Iterator[str]:
    """How many nodes of each state there are, by the longest way that leads to them."""
    from fairlane.core.workflows import layers

    nodes = {node.name: node for node in graph.nodes}
    for number, layer in enumerate(layers(graph.parents), 1):
        counts = Counter(state_of(nodes[name]) for name in layer)
        yield f"layer {number}: " + ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


@workflows.command()
@workflow_id
@acts
@in_scope
@at_store
@prints
def cancel(workflow: str, by: str, notes: str | None, tenant: str | None, at: At, out: Printer) -> None:
    """Cancel every node that waits, and ask running ones to stop."""
    with at.client() as client:
        meant = client.workflows.id_of(workflow, tenant=tenant)
        found = client.workflows.cancel(meant, tenant=tenant, by=by, notes=notes)
    out.data(found) if out.as_json else out.line(f"{found.id}  {found.status}")


@workflows.command()
@workflow_id
@click.option("--from", "from_", metavar="NODE", help="This node and all behind it; else all dead or cancelled ones.")
@acts
@in_scope
@at_store
@prints
def retry(
    workflow: str, from_: str | None, by: str, notes: str | None, tenant: str | None, at: At, out: Printer
) -> None:
    """Run nodes again, and all that wait for them."""
    with at.client() as client:
        meant = client.workflows.id_of(workflow, tenant=tenant)
        found = client.workflows.retry(meant, from_=from_, tenant=tenant, by=by, notes=notes)
    out.data(found) if out.as_json else out.line(f"{found.id}  {found.status}")
