"""Maps: a node that adds a node for each item of a result whose length nobody knows when the workflow is built.

resize_all = app.map(resize, into=report)
app.chain(list_images.bind("2026"), resize_all).enqueue()

    list_images ──▶ resize_map ──▶ resize-1 ──┐
                               ──▶ resize-2 ──┼──▶ report
                               ──▶ resize-3 ──┘

What stands behind `resize_map` is added while it runs, guarded by its lease and named by number: a run that is cut off
is repeated, and adds nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import msgspec

from fairlane.client.admin.tasks import register
from fairlane.client.context import current_job
from fairlane.client.steps import Steps, ask, run_steps
from fairlane.client.task import SyncTask, Task
from fairlane.client.workflow_nodes import NodeRef, function_of, parameter_for
from fairlane.core.ops import GetJob, ReadResults, only
from fairlane.core.workflows import MAX_NODES, OnFailure
from fairlane.errors import InvalidOption, NonRetryable

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime
    from fairlane.client.workflows import RunningWorkflow

MOST_ITEMS = 10_000
"""Unless a map says otherwise."""
CHUNK = 500
"""Nodes added in one commit."""
ITEMS_HEADER = "fairlane-items"
"""The header of a map's nodes that tells the items of one run from those of another."""


class Map(NamedTuple):
    """What a map does with each item, and with all results."""

    name: str
    task: Task[..., Any]
    parameter: str
    into: Task[..., Any] | None
    collected: str
    """The parameter of `into` that takes the results."""
    on_failure: OnFailure
    limit: int


def map_task(
    runtime: Runtime,
    task: Task[..., Any],
    into: Task[..., Any] | None,
    on_failure: OnFailure,
    limit: int,
    name: str | None,
) -> SyncTask[[Sequence[Any]], int]:
    """Register a task that takes a list, adds a node of `task` for each item and one of `into` behind them."""
    for option, given in (("map", task), ("into", task if into is None else into)):
        if not isinstance(given, Task):
            raise InvalidOption(option, given, "a task, as in app.map(resize, into=report)")
    if on_failure not in get_args(OnFailure):
        raise InvalidOption("on_failure", on_failure, f"one of {', '.join(get_args(OnFailure))}")
    if type(limit) is not int or not 1 <= limit < MAX_NODES:
        raise InvalidOption("limit", limit, f"a whole number from 1 to {MAX_NODES - 1:,}")
    called, parameter = name or f"{task.name}_map", parameter_for(task, "an item")
    collected = "" if into is None else parameter_for(into, "the list of results")
    what = Map(called, task, parameter, into, collected, on_failure, limit)

    def add_nodes(items: list[Any]) -> int:
        workflow = current_job().workflow
        return run_steps(workflow._runtime.access, _added(workflow, what, items))

    made = register(runtime, add_nodes, {"name": called, "queue": task._options.queue or task.definition.queue})
    assert isinstance(made, SyncTask)
    return made


def _added(workflow: RunningWorkflow, what: Map, items: list[Any]) -> Steps[int]:
    """Add the nodes of a map behind the running one, CHUNK in a commit; how many items there were.

    Every item is checked before the first is added.
    """
    if len(items) > what.limit:
        raise NonRetryable(f'{len(items):,} items: map "{what.name}" takes at most {what.limit:,}, as its limit= says')
    graph, own, function = workflow._graph, workflow.node, function_of(what.task)
    nodes = []
    for number, item in enumerate(items, 1):
        call = what.task.bind(**{what.parameter: item})
        nodes.append(graph.add(call, (NodeRef(graph, own, call),), "stop", f"{own}/{function}-{number}"))
    ends = nodes[:1]
    if what.into is not None:
        call = what.into.bind(**{what.collected: [node.result for node in nodes]})
        after = nodes or (NodeRef(graph, own, call),)
        nodes.append(graph.add(call, after, what.on_failure, f"{own}/{function_of(what.into)}"))
        ends = [*ends, nodes[-1]]
    digest = sha256(msgspec.json.encode(items)).hexdigest()[:32]
    yield from _require_same(workflow, what, [node.name for node in ends], digest)
    added = [graph.nodes.pop(node.name) for node in nodes]
    for first in range(0, len(added), CHUNK):
        current_job().check()
        yield from workflow._put(added[first : first + CHUNK], {ITEMS_HEADER: digest})
    return len(items)


def _require_same(workflow: RunningWorkflow, what: Map, names: Sequence[str], digest: str) -> Steps[None]:
    """Refuse items other than those of an earlier run: nodes that are there keep the arguments they have."""
    scope = only(workflow._lease.tenant)
    found = yield from ask(ReadResults(scope=scope, workflow=workflow.id, names=tuple(names)))
    for one in found.results:
        detail = yield from ask(GetJob(scope=scope, id=one.job_id))
        if detail is None or detail.job.headers.get(ITEMS_HEADER) != digest:
            changed = "its items have changed since it added its nodes: enqueue the workflow anew"
            raise NonRetryable(f'map "{what.name}" runs again, and {changed}')
