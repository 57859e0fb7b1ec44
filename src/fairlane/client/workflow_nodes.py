"""Nodes of a workflow that is being built: their names, what they wait for, and parts copied from other workflows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, get_args

from msgspec.structs import replace

from fairlane.client.enqueue.results import Result, result_names, with_owner
from fairlane.client.task import Bound, Task
from fairlane.core.job import JobSpec
from fairlane.core.job_keys import JobKey, check_job_key
from fairlane.core.names import check_key
from fairlane.core.workflows import NODE_HEADER, RUNNING_HEADER, WORKFLOW_HEADER, GraphNode, OnFailure, WorkflowId
from fairlane.errors import InvalidOption, InvalidWorkflow, nearest

if TYPE_CHECKING:
    from fairlane.client.enqueue.options import Options
    from fairlane.client.enqueue.prepare import Preparer

R = TypeVar("R")

KEY_NAME = "workflow"
"""The name of the key that the nodes of a workflow share, where not all may run at once."""


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


class PartRef(NodeRef[Any]):
    """A workflow within another: nodes that come after it wait for its last ones. `result` is that of the last added.

    Its nodes are in the other workflow by names of their own, `<part>/<node>`: `part["report"].result`.
    """

    __slots__ = ("_nodes", "ends", "starts")

    def __init__(self, owner: object, nodes: dict[str, NodeRef[Any]], starts: list[str], ends: list[str]) -> None:
        last = next(reversed(nodes.values()))
        super().__init__(owner, last.name, last.bound)
        self._nodes, self.starts, self.ends = nodes, tuple(starts), tuple(ends)

    def __getitem__(self, node: str | NodeRef[R]) -> NodeRef[R]:
        """A node of it, by its name there or as `add` returned it there."""
        name = node if isinstance(node, str) else node.name
        if name not in self._nodes:
            raise InvalidWorkflow(f'the part has no node "{name}".{nearest(name, self._nodes)}')
        return self._nodes[name]

    def __repr__(self) -> str:
        return f"<PartRef of {len(self._nodes)} nodes>"


class Graph:
    """Nodes that have been added, by name."""

    def __init__(self, prefix: str = "", known: Iterable[str] = (), key: JobKey | None = None) -> None:
        self._prefix, self._known, self.key = prefix, set(known), key
        self._counts: dict[str, int] = {}
        self.nodes: dict[str, tuple[GraphNode, Bound[Any]]] = {}
        self.reserved: frozenset[str] = frozenset()
        """Names that no further node gets."""

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
        key = bound.options.key_terms(bound.definition.key)
        if key is not None and key.on_conflict != "wait":
            raise InvalidOption("on_conflict", key.on_conflict, '"wait" for a node or a job of a batch: others need it')
        waits_for = self._names_of(after)
        waits_for.update(dict.fromkeys(self._name_of(used) for used in result_names(bound.args)))
        bound = self._keyed(bound)
        name = self._new_name(function_of(bound)) if name is None else check_key("name", name)
        if name in self.nodes or name in self._known:
            raise InvalidWorkflow(f'two nodes are named "{name}": give each a name of its own')
        if name in self.reserved:
            raise InvalidWorkflow(f'a job is named "{name}", like a callback: give it another name')
        self.nodes[name] = (GraphNode(name, tuple(waits_for), on_failure, everyone), bound)
        return NodeRef(self, name, bound)

    def add_part(
        self, part: Graph, called: str, after: Sequence[NodeRef[Any]], on_failure: OnFailure, preparer: Preparer
    ) -> PartRef:
        """Copy the nodes of another graph into this one, under a name; its first nodes wait for `after`."""
        waits_for, prefix, starts, ends = tuple(self._names_of(after)), f"{self._new_name(called)}/", [], []
        needed = {
            parent
            for node, _ in part.nodes.values()
            for parent in node.after
            if node.on_failure != "compensate" and not node.everyone
        }
        refs: dict[str, NodeRef[Any]] = {}
        copies: dict[str, tuple[GraphNode, Bound[Any]]] = {}
        for own, (node, bound) in part.nodes.items():
            if node.everyone:
                raise InvalidWorkflow(f'"{own}" is a callback of a batch: a batch cannot be a part of a workflow')
            args, name = with_owner(bound.args, self, prefix), prefix + own
            payload = preparer.payload(bound.definition, args, in_workflow=True)
            moved = self._keyed(Bound(bound.definition, bound.options, args, payload))
            if node.after:
                copied = GraphNode(name, tuple(prefix + parent for parent in node.after), node.on_failure)
            else:
                starts.append(name)
                copied = GraphNode(name, waits_for, on_failure if waits_for else node.on_failure)
            if own not in needed and node.on_failure != "compensate":
                ends.append(name)
            if name in self.nodes:
                raise InvalidWorkflow(f'two nodes are named "{name}": give the part, or the node, another name')
            copies[name] = copied, moved
            refs[own] = NodeRef(self, name, moved)
        self.nodes |= copies
        return PartRef(self, refs, starts, ends)

    def _keyed(self, bound: Bound[R]) -> Bound[R]:
        """The call with the key of its workflow, where not all of its nodes may run at once."""
        if self.key is None:
            return bound
        if (own := bound.options.key_terms(bound.definition.key)) is not None:
            said = f'{self.key.running}, but "{bound.definition.name}" has the key "{own.name}", and a job has one key'
            raise InvalidWorkflow(f"running = {said}: leave out one of them, using(key=None) that of the task")
        return Bound(bound.definition, replace(bound.options, key=self.key), bound.args, bound.payload)

    def _names_of(self, nodes: Sequence[NodeRef[Any]]) -> dict[str, None]:
        names: dict[str, None] = {}
        for node in nodes:
            self._name_of(node)
            names.update(dict.fromkeys(node.ends if isinstance(node, PartRef) else (node.name,)))
        return names

    def _name_of(self, node: object) -> str:
        if not isinstance(node, NodeRef | Result):
            raise InvalidOption("after", node, "nodes of this workflow, as `add` returned them")
        if node._owner is not self and node.name not in self._known:
            raise InvalidWorkflow(f'node "{node.name}" belongs to another workflow: add it to this one')
        return node.name

    def _new_name(self, called: str) -> str:
        """The name, with a number from the second on: the same ones if the same is added again."""
        own = self._prefix + called
        while True:
            self._counts[own] = number = self._counts.get(own, 0) + 1
            name = own if number == 1 else f"{own}-{number}"
            if name not in self.nodes and name not in self._known and name not in self.reserved:
                return name


def function_of(call: Bound[Any] | Task[..., Any]) -> str:
    return call.definition.name.rpartition(".")[2]


def workflow_key(workflow: WorkflowId, running: object) -> JobKey:
    """The key of all nodes of a workflow that may not all run at once."""
    if isinstance(running, bool) or not isinstance(running, int) or running < 1:
        raise InvalidOption("running", running, "a whole number from 1 on: how many of its nodes run at once")
    return check_job_key(JobKey(value=f"{KEY_NAME}:{workflow}", running=running))


def call_after(job: Bound[R] | Task[..., R], before: Sequence[NodeRef[Any]]) -> Bound[R]:
    """A call as it is, or a task's with the result of the one node before it."""
    if not isinstance(job, Task):
        return job
    if len(before) == 1 and isinstance(before[0], NodeRef):
        return call_with(job, before[0].result, "the result of the node before it")
    if job.definition.signature.needed:
        where = "several nodes" if before else "no node"
        raise InvalidWorkflow(
            f'"{job.name}" has {where} before it whose result it could take: give its call, {_bind(job)}'
        )
    return job.bind()


def call_with(job: Bound[R] | Task[..., R], value: object, what: str) -> Bound[R]:
    """A call as it is, or a task's with this as its one argument that has no default."""
    if not isinstance(job, Task):
        return job
    return job.bind(**{parameter_for(job, what, f", or its call, {_bind(job)}"): value})


def parameter_for(task: Task[..., Any], what: str, instead: str = "") -> str:
    """The one parameter of a task that has no default: it takes what is given to the task."""
    if len(needed := task.definition.signature.needed) != 1:
        has = f"it has {len(needed)}" if needed else "it has none"
        expected = f"a task with one parameter that has no default ({has}){instead}"
        raise InvalidOption(f"what takes {what}", task, expected)
    return needed[0]


def _bind(task: Task[..., Any]) -> str:
    return f"{task.__name__}.bind({'…' if task.definition.signature.names else ''})"


def node_spec(spec: JobSpec, workflow: WorkflowId, name: str, correlation: str) -> JobSpec:
    """The job of a node."""
    headers = {**spec.headers, WORKFLOW_HEADER: str(workflow), NODE_HEADER: name}
    if spec.key is not None and spec.key.value == f"{KEY_NAME}:{workflow}":
        headers[RUNNING_HEADER] = str(spec.key.running)
    return replace(spec, headers=headers, correlation_id=spec.correlation_id or correlation)


def with_correlation(options: Options, correlation: str) -> Options:
    """Hooks see the correlation id of the workflow, too."""
    return options if options.correlation_id else replace(options, correlation_id=correlation)
