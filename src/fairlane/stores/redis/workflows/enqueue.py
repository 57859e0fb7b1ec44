"""Writes new workflows, and new nodes of those that are there, by scripts/workflows.lua."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from fairlane.core.job import JobSpec
from fairlane.core.ops import (
    AddNodes,
    Advance,
    Advanced,
    EnqueueWorkflow,
    LimitHit,
    NodesAdded,
    Pause,
    WorkflowReceipt,
)
from fairlane.core.workflows import NodeSpec, WorkflowId, WorkflowSpec
from fairlane.stores.redis.enqueue import Terms, limit_hit, terms_of
from fairlane.stores.redis.states import joined, new_job, node_field
from fairlane.stores.redis.steps import Script, Steps, Work, document, handles, pack

ROOM = frozenset({"full", "paused", "too_long", "refused"})
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
    while True:
        header["version"] = work.limits.version
        too_long, terms = terms_of(work.limits.in_force(op.limits), op.jobs, warns=False)
        header |= {"too_long": too_long is not None, "terms": terms, "capacity": op.capacity}
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
        if what == b"created":
            return WorkflowReceipt(disposition="created", id=spec.id, depth=reply[1])
        return _refusal(reply, too_long, terms)


def _refusal(reply: list[Any], too_long: LimitHit | None, terms: Terms | None) -> WorkflowReceipt:
    """What new nodes are told that find no room."""
    what, depth = reply[:2]
    if what == b"full":
        return WorkflowReceipt(full=True, depth=depth)
    if what == b"paused":
        return WorkflowReceipt(paused=_read_pause(reply[2]), depth=depth)
    if what == b"too_long":
        return WorkflowReceipt(refused=too_long, depth=depth)
    line = joined(reply[2].decode(), reply[3].decode())
    return WorkflowReceipt(refused=limit_hit(terms, line, reply[4]), depth=depth)


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
        header |= {"tenant": op.scope.tenant, "seq": op.seq, "attempt": op.attempt, "claim_no": op.claim_no}
        header |= {"worker": None if op.worker is None else op.worker.hex}
        header |= {"max_nodes": op.max_nodes, "capacity": op.capacity, "version": work.limits.version}
        too_long, terms = terms_of(work.limits.in_force(op.limits), jobs, warns=False)
        header |= {"too_long": too_long is not None, "terms": terms}
        reply = yield Script("workflows", (work.instant(), "add", pack(header), *bodies))
        what = reply[0].decode()
        if what == "limits":
            work.limits.keep(reply[1], reply[2])
        elif what == "added":
            return NodesAdded(added=reply[1])
        elif what == "total":
            return NodesAdded(refused="not_allowed", total=reply[1])
        elif what in ROOM:
            return NodesAdded(refused="not_allowed", receipt=_refusal(reply, too_long, terms))
        elif what != "again":
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
