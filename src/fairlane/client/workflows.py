"""Workflows as an application builds them: nodes, what they wait for, and the results they pass on.

flow = app.workflow("onboard", idempotency_key="onboard-7")
account = flow.add(create_account.bind(user_id=7))
mails = [flow.add(send_mail.bind(account.result, kind=kind)) for kind in ("welcome", "tips")]
flow.add(report.bind([mail.result for mail in mails]), on_failure="continue")
handle = flow.enqueue()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast, get_args
from uuid import UUID

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from fairlane.client.context import job_in_force
from fairlane.client.enqueue.results import Result, result_names
from fairlane.client.steps import Steps, Through, Verbs, ask, both
from fairlane.client.workflow_handle import BatchHandle, WorkflowHandle
from fairlane.core.job import JobSpec, Lease
from fairlane.core.names import check_key
from fairlane.core.ops import AddNodes, EnqueueWorkflow, ReadResults, WorkflowReceipt, only
from fairlane.core.workflows import (
    NODE_HEADER,
    RESULT_KEY,
    WORKFLOW_HEADER,
    GraphNode,
    OnFailure,
    WorkflowId,
    WorkflowSpec,
    compile_graph,
)
from fairlane.errors import (
    IdConflict,
    InvalidOption,
    InvalidState,
    InvalidWorkflow,
    LeaseLost,
    QueueFull,
    QueuePaused,
    WorkflowNotFound,
)

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime
    from fairlane.client.task import Bound

R = TypeVar("R")

CALLBACKS: tuple[tuple[str, OnFailure], ...] = (
    ("on_success", "stop"),
    ("on_failure", "compensate"),
    ("on_complete", "continue"),
)


class NodeRef(Generic[R]):
    """A node of a workflow: others wait for it, and take its result."""

    __slots__ = ("_owner", "bound", "name")

    def __init__(self, owner: object, name: str, bound: Bound[R]) -> None:
        self._owner, self.name, self.bound = owner, name, bound

    @property
    def result(self) -> R:
        """Stands for what the node returns: `send_mail.bind(account.result)`, also within lists and dicts.

        It is filled in when the job runs, and then checked like any argument; None if the node did not complete.
        """
        return cast(R, Result(self._owner, self.name))

    def __repr__(self) -> str:
        return f"<NodeRef {self.name}>"


class _Graph:
    """Nodes that have been added, by name."""

    def __init__(self, prefix: str = "", known: Iterable[str] = ()) -> None:
        self._prefix, self._known = prefix, set(known)
        self._counts: dict[str, int] = {}
        self.nodes: dict[str, tuple[GraphNode, Bound[Any]]] = {}

    def add(
        self,
        bound: Bound[R],
        after: Sequence[NodeRef[Any]],
        on_failure: OnFailure,
        name: str | None,
        *,
        everyone: bool = False,
    ) -> NodeRef[R]:
        if not hasattr(bound, "options"):
            raise InvalidOption("a node", bound, "a call of a task: `task.bind(…)`")
        if on_failure not in get_args(OnFailure):
            raise InvalidOption("on_failure", on_failure, f"one of {', '.join(get_args(OnFailure))}")
        for option in ("idempotency_key", "dedup_key", "conn"):
            if getattr(bound.options, option) is not None:
                raise InvalidOption(option, getattr(bound.options, option), "none on a node: give it to the workflow")
        waits_for = dict.fromkeys(self._name_of(node) for node in after)
        waits_for.update(dict.fromkeys(self._name_of(used) for used in result_names(bound.args)))
        name = self._new_name(bound) if name is None else check_key("name", name)
        if name in self.nodes or name in self._known:
            raise InvalidWorkflow(f'two nodes are named "{name}": give each a name of its own')
        self.nodes[name] = (GraphNode(name, tuple(waits_for), on_failure, everyone), bound)
        return NodeRef(self, name, bound)

    def _name_of(self, node: object) -> str:
        if not isinstance(node, NodeRef | Result):
            raise InvalidOption("after", node, "nodes of this workflow, as `add` returned them")
        if node._owner is not self and node.name not in self._known:
            raise InvalidWorkflow(f'node "{node.name}" belongs to another workflow: add it to this one')
        return node.name

    def _new_name(self, bound: Bound[Any]) -> str:
        """The function's name, with a number from the second on: the same ones if the same is added again."""
        own = self._prefix + bound.definition.name.rpartition(".")[2]
        while True:
            self._counts[own] = number = self._counts.get(own, 0) + 1
            name = own if number == 1 else f"{own}-{number}"
            if name not in self.nodes and name not in self._known:
                return name


def _node_spec(spec: JobSpec, workflow: WorkflowId, name: str, correlation: str) -> JobSpec:
    headers = {**spec.headers, WORKFLOW_HEADER: str(workflow), NODE_HEADER: name}
    return replace(spec, headers=headers, correlation_id=spec.correlation_id or correlation)


class WorkflowBuilder(Verbs):
    """A workflow before it is enqueued: `add` its nodes, then `enqueue` them all."""

    def __init__(self, runtime: Runtime, name: str, idempotency_key: str | None, created_by: str | None) -> None:
        super().__init__(runtime)
        self.name = check_key("name", name)
        self.idempotency_key = None if idempotency_key is None else check_key("idempotency_key", idempotency_key)
        self._created_by = created_by
        self._graph = _Graph()
        self._id = WorkflowId(runtime.new_job_id())

    def add(
        self,
        bound: Bound[R],
        *,
        after: Sequence[NodeRef[Any]] = (),
        on_failure: OnFailure = "stop",
        name: str | None = None,
    ) -> NodeRef[R]:
        """Add a call as a node that waits for `after`, and for every node whose result it takes.

        `on_failure`: what it means to this node that one of those failed. `stop`: it waits until somebody deals with
        the dead letter; `continue`: it runs all the same; `compensate`: it runs only then.
        """
        return self._graph.add(bound, after, on_failure, name)

    def chain(self, *bounds: Bound[Any], after: Sequence[NodeRef[Any]] = ()) -> list[NodeRef[Any]]:
        """Add calls each of which waits for the one before it."""
        nodes: list[NodeRef[Any]] = []
        for bound in bounds:
            nodes.append(self.add(bound, after=nodes[-1:] or after))
        return nodes

    def group(self, *bounds: Bound[Any], after: Sequence[NodeRef[Any]] = ()) -> list[NodeRef[Any]]:
        """Add calls that may run at the same time."""
        return [self.add(bound, after=after) for bound in bounds]

    def _enqueue(self, *, conn: object | None = None) -> Steps[WorkflowHandle]:
        """Enqueue all nodes in one commit, or with the caller's transaction (`conn=`).

        Enqueueing the same workflow again, after an error, makes no second one.
        """
        receipt = yield from self._put(conn)
        return WorkflowHandle(self._runtime, *self._named(receipt), readers=self._readers())

    enqueue, aenqueue = both(_enqueue)

    def _put(self, conn: object | None) -> Steps[WorkflowReceipt]:
        enqueuer, preparer = self._runtime.enqueuer, self._runtime.preparer
        compiled = compile_graph([node for node, _ in self._graph.nodes.values()])
        around = job_in_force.get()
        correlation = around.correlation_id if around is not None else str(self._id)
        specs = tuple(
            _node_spec(
                preparer.bound_job(bound.definition, bound.options, bound.args, bound.payload),
                self._id,
                name,
                correlation,
            )
            for name, (_, bound) in self._graph.nodes.items()
        )
        tenants = sorted({spec.tenant for spec in specs})
        if len(tenants) > 1:
            raise InvalidWorkflow(f"its nodes belong to several tenants ({', '.join(tenants)}): expected one")
        spec = WorkflowSpec(
            id=self._id,
            name=self.name,
            tenant=tenants[0],
            idempotency_key=self.idempotency_key,
            correlation_id=around.correlation_id if around is not None else None,
            created_by=self._created_by,
        )
        like = yield from enqueuer.before_workflow(specs, conn)
        op = EnqueueWorkflow(
            workflow=spec,
            jobs=specs,
            nodes=compiled.nodes,
            gates=compiled.gates,
            capacity=like.capacity,
            notify=like.notify,
            limits=like.limits,
        )
        receipt: WorkflowReceipt = yield Through(conn, op)
        if receipt.paused is not None:
            raise QueuePaused(receipt.paused.kind, receipt.paused.name, receipt.paused.notes)
        if receipt.full:
            raise QueueFull(receipt.depth or 0, like.capacity or 0)
        if receipt.refused is not None:
            yield from enqueuer.refuse(receipt.refused)
        if receipt.disposition == "conflict":
            raise IdConflict(self._id)
        return receipt

    def _named(self, receipt: WorkflowReceipt) -> tuple[WorkflowId, bool]:
        return receipt.id or self._id, receipt.disposition == "duplicate"

    def _readers(self) -> dict[str, Any]:
        return {name: bound.definition.signature.read_result for name, (_, bound) in self._graph.nodes.items()}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {len(self._graph.nodes)} nodes>"


class BatchBuilder(WorkflowBuilder):
    """Jobs that belong together, and what is to run when all of them have ended."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        idempotency_key: str | None,
        created_by: str | None,
        callbacks: dict[str, Bound[Any] | None],
    ) -> None:
        super().__init__(runtime, name, idempotency_key, created_by)
        for callback, on_failure in CALLBACKS:
            if (bound := callbacks.get(callback)) is not None:
                self._graph.add(bound, (), on_failure, callback, everyone=True)

    def add_many(self, bounds: Iterable[Bound[Any]]) -> Self:
        for bound in bounds:
            self.add(bound)
        return self

    def _enqueue_batch(self, *, conn: object | None = None) -> Steps[BatchHandle]:
        """Enqueue the jobs and their callbacks in one commit."""
        receipt = yield from self._put(conn)
        return BatchHandle(self._runtime, *self._named(receipt), readers=self._readers())

    enqueue, aenqueue = both(_enqueue_batch)


class RunningWorkflow(Verbs):
    """The workflow of the running job, which may add nodes behind itself.

    Nodes are added at once, guarded by the job's lease. A job that runs again adds the same names, and nothing twice.
    """

    def __init__(self, runtime: Runtime, lease: Lease) -> None:
        super().__init__(runtime)
        self.id = WorkflowId(UUID(lease.headers[WORKFLOW_HEADER]))
        self.node = lease.headers[NODE_HEADER]
        """The name of the running job's own node."""
        self._lease = lease
        self._graph = _Graph(f"{self.node}/", (self.node,))

    def _add(
        self,
        bound: Bound[R],
        *,
        after: Sequence[NodeRef[Any]] = (),
        on_failure: OnFailure = "stop",
        name: str | None = None,
    ) -> Steps[NodeRef[R]]:
        """Add a node that waits for `after`, by default for the running job itself."""
        graph = self._graph
        node = graph.add(bound, after or (NodeRef(graph, self.node, bound),), on_failure, name)
        added, _ = graph.nodes.pop(node.name)
        compiled = compile_graph([added], graph._known)
        graph._known.add(node.name)
        preparer = self._runtime.preparer
        spec = preparer.bound_job(bound.definition, bound.options, bound.args, bound.payload)
        result = yield from ask(
            AddNodes(
                scope=only(self._lease.tenant),
                workflow=self.id,
                jobs=(_node_spec(spec, self.id, node.name, str(self.id)),),
                nodes=compiled.nodes,
                gates=compiled.gates,
                behind=compiled.behind,
                seq=self._lease.seq,
                attempt=self._lease.attempt,
            )
        )
        if result.refused == "lease_lost":
            raise LeaseLost
        if result.refused == "not_found":
            raise WorkflowNotFound(self.id)
        if result.refused is not None:
            raise InvalidState("add a node", f"workflow {self.id}", result.refused)
        return node

    add, aadd = both(_add)


def needs_results(lease: Lease) -> bool:
    """Whether results of other nodes have to be put into its payload before it runs."""
    return bool(lease.headers) and WORKFLOW_HEADER in lease.headers and RESULT_KEY in lease.payload


def with_results(lease: Lease) -> Steps[Lease]:
    """The lease with the results of other nodes in the places that stand for them."""
    document = msgspec.json.decode(lease.payload)
    names = tuple(dict.fromkeys(_asked(document)))
    workflow = WorkflowId(UUID(lease.headers[WORKFLOW_HEADER]))
    found = yield from ask(ReadResults(scope=only(lease.tenant), workflow=workflow, names=names))
    results = {
        one.name: Raw(one.result.encode())
        for one in found.results
        if one.status == "completed" and one.result is not None
    }
    return replace(lease, payload=msgspec.json.encode(_filled(document, results)).decode())


def _asked(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if value.keys() == {RESULT_KEY}:
            yield str(value[RESULT_KEY])
            return
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _asked(one)


def _filled(value: object, results: dict[str, Raw]) -> object:
    if isinstance(value, dict):
        if value.keys() == {RESULT_KEY}:
            return results.get(str(value[RESULT_KEY]))
        return {name: _filled(one, results) for name, one in value.items()}
    return [_filled(one, results) for one in value] if isinstance(value, list) else value
