"""Workflows in a scene: enqueued from words, run node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairlane.core.ids import JobId, WorkerId
from fairlane.core.job import JobSpec, Lease
from fairlane.core.ops import (
    ALL_TENANTS,
    AddNodes,
    Advance,
    CancelWorkflow,
    EnqueueWorkflow,
    GetWorkflow,
    ListGates,
    NodesAdded,
    PageNodes,
    ReadResults,
    RetryWorkflow,
    Scope,
    WorkflowAct,
    WorkflowDetail,
    WorkflowReceipt,
)
from fairlane.core.workflows import (
    NODE_HEADER,
    WORKFLOW_HEADER,
    Gate,
    GraphNode,
    Node,
    OnFailure,
    WorkflowId,
    WorkflowSpec,
    compile_graph,
    descendants,
    parents_of,
)
from fairlane.testing.conformance.samples import cancelled, completed, died
from fairlane.testing.conformance.scene import Scene

Words = Mapping[str, Sequence[str] | tuple[Sequence[str], OnFailure]]
"""Names of nodes, each with its parents, and perhaps what a failure of theirs means: {"b": ["a"]}."""


def graph_of(words: Words) -> list[GraphNode]:
    found: list[GraphNode] = []
    for name, after in words.items():
        if len(after) == 2 and after[1] in ("stop", "continue", "compensate") and not isinstance(after[0], str):
            found.append(GraphNode(name, tuple(after[0]), after[1]))  # type: ignore[arg-type]
        else:
            found.append(GraphNode(name, tuple(after)))  # type: ignore[arg-type]
    return found


class Flow:
    """One workflow, and a worker that runs its nodes. The type of a node's job is its name."""

    def __init__(self, scene: Scene, words: Words | Sequence[GraphNode], **options: Any) -> None:
        self.scene = scene
        self.graph = list(graph_of(words)) if isinstance(words, Mapping) else list(words)
        self.id = WorkflowId(scene.making.job_id())
        self.op = self.enqueueing(**options)
        self.worker: WorkerId | None = None
        self.leases: dict[str, Lease] = {}
        self.ran: list[str] = []

    def enqueueing(
        self, *, name: str = "onboard", tenant: str = "acme", key: str | None = None, job: Any = None, **options: Any
    ) -> EnqueueWorkflow:
        self.of_jobs: dict[str, Any] = job or {}
        compiled = compile_graph(self.graph)
        spec = WorkflowSpec(id=self.id, name=name, tenant=tenant, idempotency_key=key)
        jobs = tuple(self.job_of(node.name, tenant=tenant, **self.of_jobs) for node in self.graph)
        return EnqueueWorkflow(workflow=spec, jobs=jobs, nodes=compiled.nodes, gates=compiled.gates, **options)

    def job_of(self, name: str, tenant: str = "acme", **options: Any) -> JobSpec:
        headers = {WORKFLOW_HEADER: str(self.id), NODE_HEADER: name}
        return self.scene.job(name, tenant=tenant, headers=headers, **options)

    def enqueue(self) -> WorkflowReceipt:
        return self.scene.run(self.op)

    def put(self) -> Flow:
        assert self.enqueue().disposition == "created"
        return self

    def add(self, words: Words | Sequence[GraphNode], known: Sequence[str] | None = None, **options: Any) -> NodesAdded:
        """`known`: the nodes that who adds them knows of."""
        graph = graph_of(words) if isinstance(words, Mapping) else words
        compiled = compile_graph(graph, [node.name for node in self.nodes()] if known is None else known)
        jobs = tuple(self.job_of(node.name, **self.of_jobs) for node in graph)
        return self.scene.run(
            AddNodes(
                scope=ALL_TENANTS,
                workflow=self.id,
                jobs=jobs,
                nodes=compiled.nodes,
                gates=compiled.gates,
                behind=compiled.behind,
                **options,
            )
        )

    # What workers do.

    def claim(self, limit: int = 100) -> list[str]:
        """Claim what may run; the names of these nodes."""
        if self.worker is None:
            self.worker = self.scene.hire(6000)
        new = self.scene.claim(self.worker, limit)
        self.leases.update({lease.type: lease for lease in new})
        self.ran += [lease.type for lease in new]
        return sorted(lease.type for lease in new)

    def complete(self, *names: str, result: str | None = None) -> None:
        self.settle(*(completed(self.leases.pop(name), result) for name in names))

    def die(self, *names: str) -> None:
        self.settle(*(died(self.leases.pop(name)) for name in names))

    def stop(self, *names: str) -> None:
        self.settle(*(cancelled(self.leases.pop(name)) for name in names))

    def settle(self, *outcomes: Any) -> None:
        assert self.worker is not None
        assert not self.scene.settle(self.worker, *outcomes).refused

    def run(self) -> list[str]:
        """Run until nothing is left that may; the names in their order."""
        ran: list[str] = []
        while names := self.claim():
            self.complete(*names)
            ran += names
        return ran

    def advance(self, limit: int = 1000) -> int:
        return self.scene.run(Advance(limit=limit)).count

    # What people do and see.

    def cancel(self, scope: Scope = ALL_TENANTS) -> WorkflowAct:
        return self.scene.run(CancelWorkflow(scope=scope, id=self.id, by="ada"))

    def retry(self, *names: str) -> WorkflowAct:
        """These and all that wait for them."""
        return self.retry_only(*descendants(parents_of(self.nodes(), self.gates()), names))

    def retry_only(self, *names: str) -> WorkflowAct:
        again = [node.name for node in self.nodes() if node.name in names]
        listed = tuple((name, self.scene.making.job_id()) for name in again)
        return self.scene.run(RetryWorkflow(scope=ALL_TENANTS, id=self.id, by="ada", again=listed))

    def see(self, scope: Scope = ALL_TENANTS) -> WorkflowDetail:
        found = self.scene.run(GetWorkflow(scope=scope, id=self.id))
        assert found is not None
        return found

    @property
    def status(self) -> str:
        return self.see().workflow.status

    @property
    def figures(self) -> tuple[int, ...]:
        """Waiting, live, completed, dead, cancelled, skipped."""
        tally = self.see().workflow.tally
        return (tally.waiting, tally.live, tally.completed, tally.dead, tally.cancelled, tally.skipped)

    def nodes(self) -> list[Node]:
        found: list[Node] = []
        after = -1
        while True:
            page = self.scene.run(PageNodes(scope=ALL_TENANTS, workflow=self.id, after=after))
            found += page.nodes
            if page.next is None:
                return found
            after = page.next

    def gates(self) -> tuple[Gate, ...]:
        return self.scene.run(ListGates(scope=ALL_TENANTS, workflow=self.id)).gates

    def statuses(self) -> dict[str, str]:
        return {node.name: "waiting" if node.waiting else node.status for node in self.nodes()}

    def job(self, name: str) -> JobId:
        return next(node.job_id for node in self.nodes() if node.name == name)

    def letter(self, name: str) -> Any:
        return next(node.job_seq for node in self.nodes() if node.name == name)

    def results(self, *names: str) -> dict[str, tuple[str, str | None]]:
        found = self.scene.run(ReadResults(scope=ALL_TENANTS, workflow=self.id, names=names))
        return {one.name: (one.status, one.result) for one in found.results}
