"""Workflows, their nodes and gates, as people see them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from fairlane.core.ids import Seq
from fairlane.core.ops import (
    MAX_NODE_PAGE,
    MAX_PAGE,
    Gates,
    GetWorkflow,
    ListGates,
    NodePage,
    NodeResult,
    NodeResults,
    PageNodes,
    PageWorkflows,
    ReadResults,
    Scope,
    WorkflowDetail,
    WorkflowPage,
)
from fairlane.core.workflows import Gate, Node, Tally, Workflow, status_of
from fairlane.stores.instants import from_us, maybe_from_us
from fairlane.stores.redis.jobs.records import KeptJob, job_of, read_jobs
from fairlane.stores.redis.states import read_letter
from fairlane.stores.redis.steps import Script, Steps, Work, handles
from fairlane.stores.redis.workflows.enqueue import read_words
from fairlane.stores.redis.workflows.nodes import KeptNode, read_gate, read_node

_FIGURES = ("total", "waiting", "completed", "dead", "cancelled", "skipped")
AT_ONCE = 500


def read_workflows(
    work: Work, ids: Sequence[str], scope: Scope, *, watch: bool = False
) -> Generator[Script, Any, list[Workflow]]:
    """Those that are there and in the scope, in the order given."""
    rows = yield from work.read(
        *(("HMGET", f"workflow:{one}", "words", "seq", "enqueued", "cancelled_at", *_FIGURES) for one in ids),
        *(("ZRANGEBYLEX", "gates:moving", f"[{one}:", f"[{one};", "LIMIT", 0, 1) for one in ids),
        watch=watch,
    )
    found: list[Workflow] = []
    for row, moving in zip(rows[: len(ids)], rows[len(ids) :], strict=True):
        words, seq, enqueued, cancelled_at, *figures = row
        if words is None:
            continue
        spec = read_words(words)
        if not scope.admits(spec.tenant):
            continue
        tally = Tally(**{name: int(value or 0) for name, value in zip(_FIGURES, figures, strict=True)})
        found.append(
            Workflow(
                id=spec.id,
                seq=Seq(int(seq)),
                name=spec.name,
                tenant=spec.tenant,
                status=status_of(tally, moving=bool(moving)),
                tally=tally,
                idempotency_key=spec.idempotency_key,
                correlation_id=spec.correlation_id or str(spec.id),
                created_by=spec.created_by,
                enqueued_at=from_us(int(enqueued)),
                cancelled_at=maybe_from_us(None if cancelled_at is None else int(cancelled_at)),
            )
        )
    return found


def read_nodes(work: Work, id: str, *, watch: bool = False) -> Generator[Script, Any, dict[int, KeptNode]]:
    """All nodes of a workflow by number."""
    [kept] = yield from work.read(("HGETALL", f"nodes:{id}"), watch=watch)
    return dict(sorted((int(n), read_node(node)) for n, node in zip(kept[::2], kept[1::2], strict=True)))


def read_all_gates(work: Work, id: str, *, watch: bool = False) -> Generator[Script, Any, dict[int, Gate]]:
    [kept] = yield from work.read(("HGETALL", f"gates:{id}"), watch=watch)
    found: dict[int, Gate] = {}
    for n, raw in sorted((int(n), gate) for n, gate in zip(kept[::2], kept[1::2], strict=True)):
        gate = read_gate(raw)
        found[n] = Gate(
            n=n,
            opens=gate.opens,
            waits=gate.waits,
            failed=gate.failed,
            counts_for=gate.counts_for,
            everyone=bool(gate.everyone),
            state=gate.state,
        )
    return found


def read_in_lots(work: Work, seqs: Sequence[int], *, watch: bool = False) -> Generator[Script, Any, list[KeptJob]]:
    found: list[KeptJob] = []
    for first in range(0, len(seqs), AT_ONCE):
        found += [
            job for job in (yield from read_jobs(work, seqs[first : first + AT_ONCE], watch=watch)) if job is not None
        ]
    return found


@handles
def get_workflow(work: Work, op: GetWorkflow) -> Steps[WorkflowDetail | None]:
    found = yield from read_workflows(work, [op.id.hex], op.scope)
    if not found:
        return None
    dead: list[Seq] = []
    if found[0].tally.dead:
        nodes = yield from read_nodes(work, op.id.hex)
        jobs = yield from read_in_lots(work, [node.seq for node in nodes.values()])
        dead = [job.seq for job in jobs if _is_pending(job)][:100]
    return WorkflowDetail(workflow=found[0], dead=tuple(dead))


def _is_pending(job: KeptJob) -> bool:
    return b"letter" in job.facts and read_letter(job.facts[b"letter"]).status == "pending_review"


@handles
def page_workflows(work: Work, op: PageWorkflows) -> Steps[WorkflowPage]:
    limit = max(1, min(op.limit, MAX_PAGE))
    key = "workflows" if op.scope.tenant is None else f"workflows:{op.scope.tenant}"
    found: list[Workflow] = []
    top = "+inf" if op.before is None else f"({op.before}"
    while len(found) <= limit:
        [ids] = yield from work.read(("ZREVRANGEBYSCORE", key, top, "-inf", "LIMIT", 0, limit + 1), watch=False)
        if not ids:
            break
        page = yield from read_workflows(work, [one.decode() for one in ids], op.scope)
        found += [workflow for workflow in page if op.name in (None, workflow.name)]
        if len(ids) <= limit or not page:
            break
        top = f"({page[-1].seq}"
    return WorkflowPage(workflows=tuple(found[:limit]), next=found[limit - 1].seq if len(found) > limit else None)


@handles
def page_nodes(work: Work, op: PageNodes) -> Steps[NodePage]:
    limit = max(1, min(op.limit, MAX_NODE_PAGE))
    workflows = yield from read_workflows(work, [op.workflow.hex], op.scope)
    if not workflows:
        return NodePage(nodes=(), next=None)
    nodes: dict[int, KeptNode] = {}
    first = max(op.after + 1, 0)
    while len(nodes) <= limit and first < workflows[0].tally.total:  # retention may have removed any of them
        numbers = range(first, first + limit + 1)
        [kept] = yield from work.read(("HMGET", f"nodes:{op.workflow.hex}", *numbers), watch=False)
        nodes |= {n: read_node(raw) for n, raw in zip(numbers, kept, strict=True) if raw is not None}
        first += limit + 1
    listed = dict(list(nodes.items())[:limit])
    jobs = {job.seq: job for job in (yield from read_in_lots(work, [node.seq for node in listed.values()]))}
    found = tuple(_node(n, node, jobs[Seq(node.seq)]) for n, node in listed.items() if node.seq in jobs)
    return NodePage(nodes=found, next=max(listed) if len(nodes) > limit else None)


def _node(n: int, node: KeptNode, kept: KeptJob) -> Node:
    job = job_of(kept)
    return Node(
        n=n,
        name=node.name,
        gate=node.gate,
        counts_for=node.counts_for,
        waiting=kept.state.place == "waiting",
        job_id=job.id,
        job_seq=job.seq,
        type=job.type,
        status=job.status,
        attempts=job.attempts,
        enqueued_at=job.enqueued_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        last_error=job.last_error,
    )


@handles
def list_gates(work: Work, op: ListGates) -> Steps[Gates]:
    if not (yield from read_workflows(work, [op.workflow.hex], op.scope)):
        return Gates(gates=())
    return Gates(gates=tuple((yield from read_all_gates(work, op.workflow.hex)).values()))


@handles
def read_results(work: Work, op: ReadResults) -> Steps[NodeResults]:
    if not op.names or not (yield from read_workflows(work, [op.workflow.hex], op.scope)):
        return NodeResults(results=())
    [numbers] = yield from work.read(("HMGET", f"names:{op.workflow.hex}", *op.names), watch=False)
    known = [int(number) for number in numbers if number is not None]
    if not known:
        return NodeResults(results=())
    [kept] = yield from work.read(("HMGET", f"nodes:{op.workflow.hex}", *known), watch=False)
    nodes = [read_node(raw) for raw in kept if raw is not None]
    jobs = {job.seq: job_of(job) for job in (yield from read_in_lots(work, [node.seq for node in nodes]))}
    return NodeResults(
        results=tuple(
            NodeResult(
                name=node.name,
                job_id=job.id,
                status=job.status,
                result=job.result,
                type=job.type,
                finished_at=job.finished_at,
            )
            for node in nodes
            if (job := jobs.get(Seq(node.seq))) is not None
        )
    )
