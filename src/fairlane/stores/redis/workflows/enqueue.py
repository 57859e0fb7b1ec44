"""Writes new workflows, and new nodes of those that are there, by scripts/workflows.lua."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from fairlane.core.job import JobSpec
from fairlane.core.ops import AddNodes, Advance, Advanced, EnqueueWorkflow, NodesAdded, Pause, WorkflowReceipt
from fairlane.core.workflows import NodeSpec, WorkflowId, WorkflowSpec
from fairlane.stores.redis.enqueue import limit_hit, terms_of
from fairlane.stores.redis.states import joined, new_job, node_field
from fairlane.stores.redis.steps import Script, Steps, Work, document, handles, pack

_read_pause = msgspec.json.Decoder(Pause).decode
read_words = msgspec.json.Decoder(WorkflowSpec).decode


@handles
def enqueue_workflow(work: Work, op: EnqueueWorkflow) -> Steps[WorkflowReceipt]:
    spec = op.workflow
    header, bodies = _jobs(spec.id, op.jobs, op.nodes, 0)
    header |= {"id": spec.id.hex, "tenant": spec.tenant, "words": document(spec), "gates": op.gates}
    header |= {"notify": op.notify}
    if spec.idempotency_key is not None:
        header["key"] = joined(spec.tenant, spec.idempotency_key)
    if op.capacity is not None:
        header["capacity"] = op.capacity
    while True:
        header["version"] = work.limits.version
        too_long, terms = terms_of(work.limits.in_force(op.limits), op.jobs, warns=False)
        header["too_long"], header["terms"] = too_long is not None, terms
        reply = yield Script("workflows", (work.instant(), "enqueue", pack(header), *bodies))
        what = reply[0]
        if what == b"limits":
            work.limits.keep(reply[1], reply[2])
            continue
        if what == b"known":
            is_same = read_words(reply[1]) == spec
            return WorkflowReceipt(disposition="replayed" if is_same else "conflict", id=spec.id)
        if what == b"duplicate":
            return WorkflowReceipt(disposition="duplicate", id=WorkflowId(UUID(hex=reply[1].decode())))
        if what == b"conflict":
            return WorkflowReceipt(disposition="conflict", id=spec.id)
        if what == b"full":
            return WorkflowReceipt(full=True, depth=reply[1])
        if what == b"paused":
            return WorkflowReceipt(paused=_read_pause(reply[2]), depth=reply[1])
        if what == b"too_long":
            return WorkflowReceipt(refused=too_long, depth=reply[1])
        if what == b"refused":
            line = joined(reply[2].decode(), reply[3].decode())
            return WorkflowReceipt(refused=limit_hit(terms, line, reply[4]), depth=reply[1])
        return WorkflowReceipt(disposition="created", id=spec.id, depth=reply[1])


@handles
def extend_workflow(work: Work, op: AddNodes) -> Steps[NodesAdded]:
    workflow = op.workflow.hex
    while True:
        [first, *taken] = yield from work.read(
            ("HGET", f"workflow:{workflow}", "nodes"),
            *(("HGET", f"names:{workflow}", node.name) for node in op.nodes),
            watch=False,
        )
        if first is None:
            return NodesAdded(refused="not_found")
        new = [place for place, known in enumerate(taken) if known is None]
        jobs, nodes = [op.jobs[place] for place in new], [op.nodes[place] for place in new]
        header, bodies = _jobs(op.workflow, jobs, nodes, int(first))
        header |= {"id": workflow, "first": int(first), "gates": op.gates, "behind": op.behind}
        if op.scope.tenant is not None:
            header["tenant"] = op.scope.tenant
        if op.seq is not None:
            header |= {"seq": op.seq, "attempt": op.attempt}
        reply = yield Script("workflows", (work.instant(), "add", pack(header), *bodies))
        what = reply[0].decode()
        if what == "added":
            return NodesAdded(added=reply[1])
        if what != "again":
            return NodesAdded(refused=what)


def _jobs(
    workflow: WorkflowId, jobs: Sequence[JobSpec], nodes: Sequence[NodeSpec], first: int
) -> tuple[dict[str, Any], list[bytes]]:
    made = [new_job(spec, node=node_field(workflow, n)) for n, spec in enumerate(jobs, first)]
    given = [{**fields, "dedup": node_field(workflow, n)} for n, (fields, _) in enumerate(made, first)]
    return {"jobs": given, "nodes": list(nodes)}, [body for _, body in made]


@handles
def advance(work: Work, op: Advance) -> Steps[Advanced]:
    moved = yield Script("workflows", (work.instant(), "advance", pack({"limit": max(op.limit, 0)})))
    return Advanced(count=moved)
