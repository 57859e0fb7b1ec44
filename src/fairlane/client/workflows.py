"""Workflows as an application builds and enqueues them, and the results that their nodes pass on.

flow = app.workflow("onboard", idempotency_key="onboard-7")
account = flow.add(create_account.bind(user_id=7))
mails = [flow.add(send_mail.bind(account.result, kind=kind)) for kind in ("welcome", "tips")]
flow.add(report.bind([mail.result for mail in mails]), on_failure="continue")
handle = flow.enqueue()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_args, overload
from uuid import UUID

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from fairlane.client.context import job_in_force
from fairlane.client.enqueue.prepare import inherited_correlation
from fairlane.client.steps import Steps, Through, Verbs, ask, both
from fairlane.client.task import Bound, Task
from fairlane.client.workflow_handle import CALLBACK_NAMES, BatchHandle, WorkflowHandle, add_nodes, why_removed
from fairlane.client.workflow_nodes import (
    Graph,
    NodeRef,
    PartRef,
    call_after,
    call_with,
    node_spec,
    with_correlation,
    workflow_key,
)
from fairlane.core.ids import WorkerId
from fairlane.core.job import JobSpec, Lease
from fairlane.core.names import check_key
from fairlane.core.ops import AddNodes, EnqueueWorkflow, NodeResult, ReadResults, WorkflowReceipt, only
from fairlane.core.workflows import (
    MOST_LINKS,
    NODE_HEADER,
    PARENTS_HEADER,
    RESULT_KEY,
    RUNNING_HEADER,
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
    UnreadablePayload,
    WorkflowNotFound,
)

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime

R = TypeVar("R")

TRACE = "traceparent"
"""The header in which tracing keeps the context of a job's enqueue."""

CALLBACKS: tuple[tuple[str, OnFailure], ...] = (
    ("on_success", "stop"),
    ("on_failure", "compensate"),
    ("on_complete", "continue"),
)


def _traced(nodes: Sequence[GraphNode], specs: tuple[JobSpec, ...], traces: dict[str, str]) -> tuple[JobSpec, ...]:
    """The jobs of nodes with the trace contexts of those they wait for, if somebody traces.

    `traces`: of the nodes that are known, to which these are added.
    """
    traces.update({n.name: spec.headers[TRACE] for n, spec in zip(nodes, specs, strict=True) if TRACE in spec.headers})
    if not traces:
        return specs
    members = [node.name for node in nodes if not node.everyone]
    return tuple(
        replace(spec, headers={**spec.headers, PARENTS_HEADER: ",".join(found)}) if found else spec
        for node, spec in zip(nodes, specs, strict=True)
        for after in (members if node.everyone else node.after,)
        for found in ([traces[name] for name in after[:MOST_LINKS] if name in traces],)
    )


class WorkflowBuilder(Verbs):
    """A workflow before it is enqueued: `add` its nodes, then `enqueue` them all."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        idempotency_key: str | None,
        created_by: str | None = None,
        running: int | None = None,
    ) -> None:
        super().__init__(runtime)
        self.name = check_key("name", name)
        self.idempotency_key = None if idempotency_key is None else check_key("idempotency_key", idempotency_key)
        self._created_by = created_by
        self._id = WorkflowId(runtime.new_job_id())
        self._graph = Graph(key=None if running is None else workflow_key(self._id, running))

    @overload
    def add(
        self,
        job: Bound[R],
        *,
        after: Sequence[NodeRef[Any]] = ...,
        on_failure: OnFailure = ...,
        name: str | None = ...,
    ) -> NodeRef[R]: ...
    @overload
    def add(
        self,
        job: WorkflowBuilder,
        *,
        after: Sequence[NodeRef[Any]] = ...,
        on_failure: OnFailure = ...,
        name: str | None = ...,
    ) -> PartRef: ...
    def add(
        self,
        job: Bound[Any] | WorkflowBuilder,
        *,
        after: Sequence[NodeRef[Any]] = (),
        on_failure: OnFailure = "stop",
        name: str | None = None,
    ) -> NodeRef[Any]:
        """Add a call as a node that waits for `after`, and for every node whose result it takes.

        `on_failure`: what it means to this node that one of those failed. `stop`: it waits until somebody deals with
        the dead letter; `continue`: it runs all the same; `compensate`: it runs only then.

        A whole workflow may be added, too: its nodes become nodes of this one, named `<its name>/<node>`.
        """
        if not isinstance(job, WorkflowBuilder):
            return self._graph.add(job, after, on_failure, name)
        if job.idempotency_key is not None:
            raise InvalidOption("idempotency_key", job.idempotency_key, "none on a part: give it to the workflow")
        if job._graph.key is not None:
            raise InvalidOption("running", job._graph.key.running, "none on a part: give it to the workflow")
        if on_failure not in get_args(OnFailure):
            raise InvalidOption("on_failure", on_failure, f"one of {', '.join(get_args(OnFailure))}")
        if job is self or not job._graph.nodes:
            raise InvalidWorkflow(f'"{job.name}" {"is this workflow itself" if job is self else "has no nodes"}')
        called = check_key("name", name or job.name)
        return self._graph.add_part(job._graph, called, after, on_failure, self._runtime.preparer)

    def chain(self, *jobs: Bound[Any] | Task[..., Any], after: Sequence[NodeRef[Any]] = ()) -> list[NodeRef[Any]]:
        """Add calls each of which waits for the one before it; a task without a call takes the result of that one.

        It takes it as its one parameter that has no default. The first takes that of `after`, if that is one node.
        """
        nodes: list[NodeRef[Any]] = []
        for job in jobs:
            before = nodes[-1:] or after
            nodes.append(self.add(call_after(job, before), after=before))
        return nodes

    def group(self, *jobs: Bound[Any] | Task[..., Any], after: Sequence[NodeRef[Any]] = ()) -> list[NodeRef[Any]]:
        """Add calls that may run at the same time; a task without a call takes the result of the node in `after`."""
        return [self.add(call_after(job, after), after=after) for job in jobs]

    def gather(
        self,
        jobs: Iterable[Bound[Any] | Task[..., Any] | NodeRef[Any]],
        *,
        into: Bound[R] | Task[..., R],
        after: Sequence[NodeRef[Any]] = (),
        on_failure: OnFailure = "stop",
        name: str | None = None,
    ) -> NodeRef[R]:
        """Add calls that may run at the same time, and behind them one that takes the list of their results, in order.

        `jobs` may be nodes that are there already. `into`: a task, which takes the list as its one parameter that has
        no default, or a call, which only waits. `on_failure` and `name` are its own; with `"continue"` the result of a
        failed one is None. Returns its node.
        """
        nodes = [job if isinstance(job, NodeRef) else self.group(job, after=after)[0] for job in jobs]
        call = call_with(into, [node.result for node in nodes], "the list of results")
        return self.add(call, after=nodes or after, on_failure=on_failure, name=name)

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
        inherited = None if around is None else inherited_correlation(around)
        correlation = inherited or str(self._id)
        specs = tuple(
            node_spec(
                preparer.bound_job(
                    bound.definition,
                    with_correlation(bound.options, correlation),
                    bound.args,
                    bound.payload,
                    is_node=True,
                ),
                self._id,
                name,
                correlation,
            )
            for name, (_, bound) in self._graph.nodes.items()
        )
        specs = _traced([node for node, _ in self._graph.nodes.values()], specs, {})
        tenants = sorted({spec.tenant for spec in specs})
        if len(tenants) > 1:
            raise InvalidWorkflow(f"its nodes belong to several tenants ({', '.join(tenants)}): expected one")
        spec = WorkflowSpec(
            id=self._id,
            name=self.name,
            tenant=tenants[0],
            idempotency_key=self.idempotency_key,
            correlation_id=inherited,
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
        yield from enqueuer.refuse(receipt)
        if receipt.disposition == "conflict":
            raise IdConflict(self._id)
        return receipt

    def _named(self, receipt: WorkflowReceipt) -> tuple[WorkflowId, bool]:
        return receipt.id or self._id, receipt.disposition == "duplicate"

    def _readers(self) -> dict[str, Any]:
        return {name: bound.definition.signature.read_result for name, (_, bound) in self._graph.nodes.items()}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {len(self._graph.nodes)} nodes>"


class GroupBuilder(WorkflowBuilder):
    """Calls that may run at the same time, and what is to run with their results."""

    _last: NodeRef[Any] | None = None

    def then(self, job: Bound[Any] | Task[..., Any], *, on_failure: OnFailure = "stop") -> Self:
        """Add what runs behind the whole group: a task takes the list of results, in order, and a call only waits.

        What a second `then` adds is behind the first, and takes its result. With `on_failure="continue"` it runs
        however those before it have ended.
        """
        if self._last is None:
            nodes = [NodeRef(self._graph, name, bound) for name, (_, bound) in self._graph.nodes.items()]
            self._last = self.gather(nodes, into=job, on_failure=on_failure)
        else:
            self._last = self.add(call_after(job, [self._last]), after=[self._last], on_failure=on_failure)
        return self


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
        self._graph.reserved = CALLBACK_NAMES

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

    def __init__(self, runtime: Runtime, lease: Lease, worker: WorkerId | None) -> None:
        super().__init__(runtime)
        self._worker = worker
        self.id = WorkflowId(UUID(lease.headers[WORKFLOW_HEADER]))
        self.node = lease.headers[NODE_HEADER]
        """The name of the running job's own node."""
        self._lease = lease
        running = lease.headers.get(RUNNING_HEADER)
        self._graph = Graph(
            f"{self.node}/", (self.node,), None if running is None else workflow_key(self.id, int(running))
        )
        self._traces = {self.node: lease.headers[TRACE]} if TRACE in lease.headers else {}
        self._refused: dict[tuple[str, bytes], list[str]] = {}
        """Names given to calls that were refused, by task and payload."""

    def _add(
        self,
        bound: Bound[R],
        *,
        after: Sequence[NodeRef[Any]] = (),
        on_failure: OnFailure = "stop",
        name: str | None = None,
    ) -> Steps[NodeRef[R]]:
        """Add a node that waits for `after`, by default for the running job itself.

        Limits, pauses and a full store refuse it like an enqueue. Without `name` it is named after its task, with a
        number by the order of calls, refused ones too; a refused call that is made again gets the name it had.
        """
        graph = self._graph
        given = self._name_before(bound) if name is None else name
        node = graph.add(bound, after or (NodeRef(graph, self.node, bound),), on_failure, given)
        added, _ = graph.nodes.pop(node.name)
        try:
            yield from self._put([(added, node.bound)])
        except BaseException:
            graph._known.discard(node.name)
            if name is None:
                self._refused.setdefault(_call(bound), []).insert(0, node.name)
            raise
        return node

    def _put(self, calls: Sequence[tuple[GraphNode, Bound[Any]]], headers: Mapping[str, str] = {}) -> Steps[None]:
        known, tenant, added = self._graph._known, self._lease.tenant, [node for node, _ in calls]
        compiled = compile_graph(added, known)
        # Before the store is asked: whoever adds another meanwhile must not give it the same name.
        known.update(node.name for node in added)
        preparer, specs = self._runtime.preparer, []
        for node, bound in calls:
            spec = preparer.bound_job(bound.definition, bound.options, bound.args, bound.payload, is_node=True)
            if spec.tenant != tenant:
                raise InvalidWorkflow(f'it belongs to the tenant "{tenant}", not to "{spec.tenant}"')
            spec = node_spec(spec, self.id, node.name, str(self.id))
            specs.append(replace(spec, headers={**spec.headers, **headers}))
        op = AddNodes(
            scope=only(tenant),
            workflow=self.id,
            jobs=_traced(added, tuple(specs), self._traces),
            nodes=compiled.nodes,
            gates=compiled.gates,
            behind=compiled.behind,
            seq=self._lease.seq,
            attempt=self._lease.attempt,
            claim_no=self._lease.claim_no,
            worker=self._worker,
        )
        result = yield from add_nodes(self._runtime, op)
        if result.refused == "lease_lost":
            raise LeaseLost
        if result.refused == "not_found":
            raise WorkflowNotFound(self.id)
        if result.refused is not None:
            raise InvalidState("add a node", f"workflow {self.id}", result.refused)

    def _name_before(self, bound: Bound[Any]) -> str | None:
        """The name of the same call if it was refused. The same calls then have the same names in every attempt."""
        names = self._refused.get(_call(bound)) if self._refused and isinstance(bound, Bound) else None
        return names.pop(0) if names else None

    add, aadd = both(_add)


def _call(bound: Bound[Any]) -> tuple[str, bytes]:
    return bound.definition.name, bytes(bound.payload)


def needs_results(lease: Lease) -> bool:
    """Whether results of other nodes have to be put into its payload before it runs."""
    return bool(lease.headers) and WORKFLOW_HEADER in lease.headers and RESULT_KEY in lease.payload


def with_results(lease: Lease, tasks: Mapping[str, Task[..., Any]]) -> Steps[Lease]:
    """The lease with the results of other nodes in the places that stand for them.

    Raises `UnreadablePayload` if one of them was removed: an ended workflow of which nodes run again has lost some.
    One that was removed is None if its task is not among `tasks`.
    """
    document = msgspec.json.decode(lease.payload)
    names = tuple(dict.fromkeys(_asked(document)))
    workflow = WorkflowId(UUID(lease.headers[WORKFLOW_HEADER]))
    found = yield from ask(ReadResults(scope=only(lease.tenant), workflow=workflow, names=names))
    if problems := tuple(_missing(lease, tasks, names, found.results)):
        raise UnreadablePayload(lease.type, problems)
    results = {
        one.name: Raw(one.result.encode())
        for one in found.results
        if one.status == "completed" and one.result is not None
    }
    return replace(lease, payload=msgspec.json.encode(_filled(document, results)).decode())


def _missing(
    lease: Lease, tasks: Mapping[str, Task[..., Any]], names: Sequence[str], found: Sequence[NodeResult]
) -> Iterator[str]:
    """Results that were there and are not any more."""
    there = {one.name for one in found}
    for name in names:
        if name not in there:
            yield f'node "{name}" is past its retention, and its result with it: enqueue the workflow anew'
    for one in found:
        # What goes on keeps the results it needs: they were removed before this job was made.
        if one.status == "completed" and (why := why_removed(tasks, one, lease.enqueued_at)):
            yield f'the result of node "{one.name}" was removed: {why}; run it again: handle.retry(from_="{one.name}")'


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
