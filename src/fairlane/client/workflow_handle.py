"""Handles on enqueued workflows and batches: how they stand, their results, and acts on the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec
from msgspec import Struct

from fairlane.client.context import in_scope
from fairlane.client.handle import ActOptions, audited
from fairlane.client.steps import Sleep, Steps, Verbs, ask, both, growing_sleeps
from fairlane.client.task import Task
from fairlane.client.workflow_nodes import Graph, function_of, node_spec, with_correlation
from fairlane.core.job import FINAL
from fairlane.core.ops import (
    AddNodes,
    CancelWorkflow,
    GetWorkflow,
    ListGates,
    PageNodes,
    ReadResults,
    RetryWorkflow,
    WorkflowAct,
)
from fairlane.core.workflows import Node, Workflow, WorkflowId, compile_graph, descendants, parents_of
from fairlane.errors import (
    InvalidOption,
    InvalidState,
    InvalidWorkflow,
    JobFailed,
    JobNotFound,
    ResultTimeout,
    WorkflowNotFound,
)

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime
    from fairlane.client.task import Bound
    from fairlane.client.workflow_nodes import NodeRef

R = TypeVar("R")

ENDED = frozenset({"completed", "failed", "cancelled"})


def read_nodes(workflow: WorkflowId) -> Steps[tuple[Node, ...]]:
    """All nodes of a workflow, page after page."""
    found: list[Node] = []
    after = -1
    while True:
        page = yield from ask(PageNodes(scope=in_scope(None), workflow=workflow, after=after))
        found += page.nodes
        if page.next is None:
            return tuple(found)
        after = page.next


def workflow_of(act: WorkflowAct, verb: str, workflow: WorkflowId) -> Workflow:
    if act.workflow is None:
        raise WorkflowNotFound(workflow)
    if act.refused is not None:
        raise InvalidState(verb, f"workflow {workflow}", act.workflow.status)
    return act.workflow


def retry_nodes(
    runtime: Runtime, workflow: WorkflowId, first: Iterable[str] | None, about: ActOptions
) -> Steps[Workflow]:
    """Run these nodes (None: all that are dead or cancelled) again, with failed ones before and all behind them."""
    nodes = yield from read_nodes(workflow)
    gates = (yield from ask(ListGates(scope=in_scope(None), workflow=workflow))).gates
    skipped = {gate.n for gate in gates if gate.state in ("skipping", "skipped")}
    failed = {n.name for n in nodes if n.status in ("dead", "cancelled") and n.gate not in skipped}
    names = failed if first is None else set(first)
    known = {node.name: node for node in nodes}
    for name in names:
        if name not in known:
            raise JobNotFound(f'of node "{name}"')
        if known[name].status == "cancelled" and name not in failed:
            raise InvalidState("retry", f'node "{name}"', "skipped")
    parents = parents_of(nodes, gates)
    # Behind a parent that did not complete they would wait for ever: it runs again, too.
    while more := {parent for name in names for parent in parents[name]} & failed - names:
        names |= more
    again = descendants(parents, names)
    # Behind a parent that stays cancelled or skipped they stay as they are.
    unfit = {node.name for node in nodes if node.status in ("dead", "cancelled")}
    shut = {gate.n for gate in gates if gate.opens == "completed" and gate.state not in ("waiting", "opening", "open")}
    behind = {node.name for node in nodes if node.gate in shut} - names
    while left := {name for name in again & behind if (unfit - again).intersection(parents[name])}:
        again -= left
    listed = tuple((node.name, runtime.new_job_id()) for node in nodes if node.name in again)
    act = yield from ask(RetryWorkflow(scope=in_scope(None), id=workflow, again=listed, **audited(about)))
    return workflow_of(act, "retry", workflow)


class WorkflowHandle(Verbs):
    """One workflow, by its id. Every method has an async version, named `a…`."""

    __slots__ = ("_readers", "duplicate", "id")

    def __init__(
        self,
        runtime: Runtime,
        id: WorkflowId,
        duplicate: bool = False,
        *,
        readers: Mapping[str, Callable[[str], Any]] | None = None,
    ) -> None:
        super().__init__(runtime)
        self.id, self.duplicate, self._readers = id, duplicate, readers or {}

    def _status(self) -> Steps[Workflow]:
        """How it stands now: `status`, and in `tally` how many nodes are where."""
        detail = yield from ask(GetWorkflow(scope=in_scope(None), id=self.id))
        if detail is None:
            raise WorkflowNotFound(self.id)
        return detail.workflow

    def _wait(self, timeout: float | None = None) -> Steps[Workflow]:
        """Wait until all its nodes have ended, or nothing goes on before somebody deals with its dead ones."""
        monotonic = self._runtime.clock.monotonic
        began_s = monotonic()
        for sleep in growing_sleeps():
            found = yield from self._status()
            if found.status != "running":
                return found
            left_s = sleep.seconds if timeout is None else began_s + timeout - monotonic()
            if left_s <= 0:
                raise ResultTimeout(self.id, found.status, timeout or 0.0)
            yield Sleep(min(sleep.seconds, left_s))
        raise AssertionError

    def _result(self, node: NodeRef[R] | Task[..., R] | str, timeout: float | None = None) -> Steps[R]:
        """Wait until a node has ended and return what its task returned; raises like the result of a job.

        A task stands for its one node; of several, name the one or pass what `add` returned.
        """
        if isinstance(node, Task):
            name = yield from self._node_of(node)
        else:
            name = node if isinstance(node, str) else node.name
        monotonic = self._runtime.clock.monotonic
        began_s = monotonic()
        for sleep in growing_sleeps():
            answer = yield from ask(ReadResults(scope=in_scope(None), workflow=self.id, names=(name,)))
            if not answer.results:
                raise WorkflowNotFound(f'{self.id} with a node "{name}"')
            [found] = answer.results
            if found.status == "completed":
                text = "null" if found.result is None else found.result
                read = self._readers.get(name, msgspec.json.decode)
                result: R = read(text)
                return result
            if found.status in FINAL:
                raise JobFailed(found.job_id, found.status, None, None)
            left_s = sleep.seconds if timeout is None else began_s + timeout - monotonic()
            if left_s <= 0:
                raise ResultTimeout(found.job_id, found.status, timeout or 0.0)
            yield Sleep(min(sleep.seconds, left_s))
        raise AssertionError

    def _node_of(self, task: Task[..., Any]) -> Steps[str]:
        """The name of the one node that runs this task."""
        nodes = yield from read_nodes(self.id)
        if not nodes:
            raise WorkflowNotFound(self.id)
        names = [node.name for node in nodes if node.type == task.name]
        if len(names) != 1:
            found = f"{len(names)} nodes run it: {', '.join(names[:3])}{', …' if names[3:] else ''}"
            raise InvalidOption("node", task, f"the task of one node; {found if names else 'no node runs it'}")
        return names[0]

    def _nodes(self) -> Steps[tuple[Node, ...]]:
        """All nodes, in the order of adding."""
        return (yield from read_nodes(self.id))

    def _cancel(self, **about: Unpack[ActOptions]) -> Steps[Workflow]:
        """Cancel every node that waits and ask running ones to stop."""
        act = yield from ask(CancelWorkflow(scope=in_scope(None), id=self.id, **audited(about)))
        return workflow_of(act, "cancel", self.id)

    def _retry(self, from_: NodeRef[Any] | str | None = None, **about: Unpack[ActOptions]) -> Steps[Workflow]:
        """Run a node and all that wait for it again; without one, everything that is dead or cancelled."""
        first = None
        if from_ is not None:
            first = [from_] if isinstance(from_, str) else list(getattr(from_, "starts", (from_.name,)))
        return (yield from retry_nodes(self._runtime, self.id, first, about))

    status, astatus = both(_status)
    wait, await_ = both(_wait)
    result, aresult = both(_result)
    nodes, anodes = both(_nodes)
    cancel, acancel = both(_cancel)
    retry, aretry = both(_retry)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}{' (duplicate)' if self.duplicate else ''}>"


class BatchProgress(Struct, frozen=True, kw_only=True):
    """How far a batch is; its callbacks are not counted."""

    total: int
    done: int
    """Completed."""
    failed: int
    """Dead or cancelled."""


class BatchHandle(WorkflowHandle):
    """One batch, by its id."""

    __slots__ = ()

    def _progress(self) -> Steps[BatchProgress]:
        tally = (yield from self._status()).tally
        names = ("on_success", "on_failure", "on_complete")
        answer = yield from ask(ReadResults(scope=in_scope(None), workflow=self.id, names=names))
        ends = [found.status for found in answer.results]
        return BatchProgress(
            total=tally.total - len(ends),
            done=tally.completed - ends.count("completed"),
            failed=tally.dead + tally.cancelled + tally.skipped - ends.count("dead") - ends.count("cancelled"),
        )

    def _add(self, *bounds: Bound[Any]) -> Steps[int]:
        """Add jobs while it runs; how many. Refused with `InvalidState` once its callbacks have begun."""
        workflow, graph, jobs = (yield from self._status()), Graph(), []
        for bound in bounds:
            if bound.options.tenant not in (None, workflow.tenant):
                raise InvalidWorkflow(f'it belongs to the tenant "{workflow.tenant}", not to "{bound.options.tenant}"')
            options = with_correlation(bound.options, workflow.correlation_id)
            options = msgspec.structs.replace(options, tenant=workflow.tenant)
            preparer = self._runtime.preparer
            spec = preparer.bound_job(bound.definition, options, bound.args, bound.payload, is_node=True)
            # Named by its id: who adds at the same time must not choose the same name, which would be left out.
            node = graph.add(bound, (), "stop", f"{function_of(bound)}+{spec.id.hex}")
            jobs.append(node_spec(spec, self.id, node.name, workflow.correlation_id))
        nodes = compile_graph([node for node, _ in graph.nodes.values()]).nodes
        result = yield from ask(AddNodes(scope=in_scope(None), workflow=self.id, jobs=tuple(jobs), nodes=nodes))
        if result.refused is not None:
            raise InvalidState("add to", f"batch {self.id}", result.refused)
        return len(jobs)

    progress, aprogress = both(_progress)
    add, aadd = both(_add)
