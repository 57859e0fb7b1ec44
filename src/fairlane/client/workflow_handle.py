"""Handles on enqueued workflows and batches: how they stand, their results, and acts on the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec
from msgspec import Struct

from fairlane.client.context import in_scope
from fairlane.client.handle import ActOptions, audited, why_expired
from fairlane.client.steps import Sleep, Steps, Verbs, ask, both, growing_sleeps
from fairlane.client.task import Task
from fairlane.client.workflow_nodes import Graph, function_of, node_spec, with_correlation
from fairlane.core.job import FINAL
from fairlane.core.ops import (
    AddNodes,
    CancelWorkflow,
    GetDeadLetter,
    GetJob,
    GetWorkflow,
    ListGates,
    NodeResult,
    NodesAdded,
    PageNodes,
    ReadResults,
    RetryWorkflow,
    WorkflowAct,
)
from fairlane.core.workflows import MAX_NODES, Node, Workflow, WorkflowId, compile_graph, descendants, parents_of
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
CALLBACK_NAMES = frozenset({"on_success", "on_failure", "on_complete"})
"""Names of nodes that no job of a batch can have."""


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


def why_removed(tasks: Mapping[str, Task[..., Any]], found: NodeResult, at: datetime) -> str | None:
    """Why a completed node has no result at an instant although it had one; None: it has one, or returned None.

    Nodes of tasks whose results expire keep what they return even if it is None: without a result, theirs was removed.
    None also if its task is not among `tasks`: then nobody can tell a result that was removed from None.
    """
    task, ended_at = tasks.get(found.type), found.finished_at
    if found.result is not None or task is None or ended_at is None:
        return None
    kept_s = task.definition.result_expires_s
    is_old = kept_s is not None and (at - ended_at).total_seconds() > kept_s
    return why_expired(ended_at, kept_s) if kept_s is not None and is_old else None


def workflow_of(act: WorkflowAct, verb: str, workflow: WorkflowId) -> Workflow:
    if act.workflow is None:
        raise WorkflowNotFound(workflow)
    if act.refused is not None:
        raise InvalidState(verb, f"workflow {workflow}", act.workflow.status)
    return act.workflow


def retry_nodes(
    runtime: Runtime, workflow: WorkflowId, first: Iterable[str] | None, about: ActOptions
) -> Steps[Workflow]:
    """Run these nodes (None: all that are dead or cancelled) again, with failed ones before and all behind them.

    Callbacks of a batch that have completed run again only behind nodes that are named.
    """
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
    if first is None:
        everyone = {gate.n for gate in gates if gate.everyone}
        parents |= {node.name: () for node in nodes if node.status == "completed" and node.gate in everyone}
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


def add_nodes(runtime: Runtime, op: AddNodes) -> Steps[NodesAdded]:
    """Add nodes to a workflow, refused as an enqueue of their jobs would be."""

    def has_all() -> Steps[bool]:
        """Those that an earlier run of the job has added cost nothing."""
        names = tuple(node.name for node in op.nodes)
        known = yield from ask(ReadResults(scope=op.scope, workflow=op.workflow, names=names))
        return len(known.results) == len(names)

    like = yield from runtime.enqueuer.before_workflow(op.jobs, None, None if op.seq is None else has_all)
    result = yield from ask(msgspec.structs.replace(op, capacity=like.capacity, limits=like.limits))
    if result.total is not None:
        beyond = f"{op.workflow} would have {result.total:,} nodes: expected at most {MAX_NODES:,}"
        raise InvalidWorkflow(f"{beyond}; enqueue another workflow for the rest")
    if result.receipt is not None:
        yield from runtime.enqueuer.refuse(result.receipt)
    return result


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
                return self._read(found)  # type: ignore[no-any-return]
            if found.status in FINAL:
                detail = yield from ask(GetJob(scope=in_scope(None), id=found.job_id))
                why = (None, None) if detail is None else (detail.job.error_type, detail.job.last_error)
                raise JobFailed(found.job_id, found.status, *why)
            left_s = sleep.seconds if timeout is None else began_s + timeout - monotonic()
            if left_s <= 0:
                raise ResultTimeout(found.job_id, found.status, timeout or 0.0)
            yield Sleep(min(sleep.seconds, left_s))
        raise AssertionError

    def _read(self, found: NodeResult) -> Any:
        if why := why_removed(self._runtime.tasks, found, self._runtime.clock.now()):
            again = f'{why}; handle.retry(from_="{found.name}") runs it again'
            raise JobFailed(found.job_id, found.status, "ResultExpired", again)
        read = self._readers.get(found.name, msgspec.json.decode)
        try:
            return read("null" if found.result is None else found.result)
        except msgspec.DecodeError as error:
            why = f'result of node "{found.name}": {error}'
            raise JobFailed(found.job_id, found.status, "UnreadableResult", why) from None

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
        """Run a node and all that wait for it again; without one, everything that is dead or cancelled.

        Callbacks of a batch that have completed run again only with a node.
        """
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
        ends = yield from self._callback_ends()
        while True:
            tally = (yield from self._status()).tally
            seen, ends = ends, (yield from self._callback_ends())
            if seen == ends:  # the tally counts no callback otherwise than they are seen
                break
        return BatchProgress(
            total=tally.total - len(ends),
            done=tally.completed - ends.count("completed"),
            failed=tally.dead + tally.cancelled + tally.skipped - ends.count("dead") - ends.count("cancelled"),
        )

    def _callback_ends(self) -> Steps[list[str]]:
        """The states of its callbacks, as they are counted. A batch has them before its jobs."""
        scope = in_scope(None)
        page = yield from ask(PageNodes(scope=scope, workflow=self.id, limit=len(CALLBACK_NAMES)))
        ends: list[str] = []
        for node in takewhile(lambda node: node.name in CALLBACK_NAMES, page.nodes):
            ends.append(node.status)
            if node.status == "dead":
                letter = yield from ask(GetDeadLetter(scope=scope, id=node.job_seq))
                if letter is not None and letter.dead_letter.status == "resolved":
                    ends[-1] = "completed"
        return ends

    def _add(self, *bounds: Bound[Any]) -> Steps[int]:
        """Add jobs while it runs; how many.

        Refused with `InvalidState` once its callbacks have begun, and like an enqueue of these jobs by limits, pauses
        and a full store.
        """
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
        op = AddNodes(scope=in_scope(None), workflow=self.id, jobs=tuple(jobs), nodes=nodes)
        result = yield from add_nodes(self._runtime, op)
        if result.refused is not None:
            raise InvalidState("add to", f"batch {self.id}", result.refused)
        return len(jobs)

    progress, aprogress = both(_progress)
    add, aadd = both(_add)
