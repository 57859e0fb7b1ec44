"""What people do with workflows: cancel them, and run nodes again."""

from __future__ import annotations

import msgspec

from fairlane.core.ids import JobId, Seq
from fairlane.core.job import JobSpec
from fairlane.core.ops import CancelWorkflow, RetryWorkflow, WorkflowAct
from fairlane.core.workflows import CountedNode, NodeEnd, Tally, forbids, recount, status_of
from fairlane.stores.instants import from_us
from fairlane.stores.redis.jobs.records import KeptJob, job_of
from fairlane.stores.redis.states import FINISHED, new_job, node_field, read_letter
from fairlane.stores.redis.steps import Script, Steps, Work, document, handles, pack
from fairlane.stores.redis.workflows.records import (
    read_all_gates,
    read_in_lots,
    read_nodes,
    read_workflows,
)


@handles
def cancel_workflow(work: Work, op: CancelWorkflow) -> Steps[WorkflowAct]:
    yield from work.read(("HLEN", "meta"), watch=False)  # to know the instant
    record = {
        "at": from_us(work.now),
        "by": op.by,
        "action": "workflow_cancel",
        "tenant": None,
        "target": f"workflow:{op.id}",
        "notes": op.notes,
        "before": {"status": "@before@"},
        "after": {"status": "@after@"},
    }
    found = yield from read_workflows(work, [op.id.hex], op.scope)
    if not found:
        return WorkflowAct(refused="not_found")
    record["tenant"] = found[0].tenant
    call = {"id": op.id.hex, "target": record["target"], "audit": document(record)}
    reply = yield Script("workflows", (work.instant(), "cancel", pack(call)))
    if reply[0] == b"not_found":
        return WorkflowAct(refused="not_found")
    [workflow] = yield from read_workflows(work, [op.id.hex], op.scope)
    return WorkflowAct(workflow=workflow, jobs=reply[1])


@handles
def retry_workflow(work: Work, op: RetryWorkflow) -> Steps[WorkflowAct]:
    own = op.id.hex
    found = yield from read_workflows(work, [own], op.scope, watch=True)
    if not found:
        return WorkflowAct(refused="not_found")
    [workflow] = found
    nodes = yield from read_nodes(work, own, watch=True)
    gates = yield from read_all_gates(work, own, watch=True)
    jobs = {job.seq: job for job in (yield from read_in_lots(work, [node.seq for node in nodes.values()], watch=True))}
    numbers = {node.name: n for n, node in nodes.items()}
    if not op.again or any(name not in numbers for name, _ in op.again):
        return WorkflowAct(refused="not_allowed", workflow=workflow)
    asked = {numbers[name]: job_id for name, job_id in op.again}
    kept = {n: jobs[Seq(node.seq)] for n, node in nodes.items()}
    ends = {n: _end(kept[n], skipped=node.skipped) for n, node in nodes.items()}
    live = {n for n in nodes if ends[n] is None and kept[n].state.place != "waiting"}
    if live & asked.keys():
        return WorkflowAct(refused="not_allowed", workflow=workflow)
    again = {n: job_id for n, job_id in asked.items() if ends[n] is not None}
    counted = [
        CountedNode(node.counts_for, None if n in again else ends[n], bool(node.again) and n not in again)
        for n, node in nodes.items()
    ]
    after = recount(list(gates.values()), counted)
    if any(forbids(after, nodes[n].gate, is_live=n in live) for n in live | again.keys()):
        return WorkflowAct(refused="not_allowed", workflow=workflow)
    figures = msgspec.structs.asdict(workflow.tally)
    for n, job_id in again.items():
        node, dead = nodes[n], kept[n]
        waits = node.gate is not None and after[node.gate].state != "open"
        order = 0 if dead.body.key is None else dead.body.key.order or dead.seq
        given, body = new_job(_like(dead, job_id, op.by), node=node_field(op.id, n), order=order)
        if dead.state.place != "completed" and any(name.startswith(b"step:") for name in dead.facts):
            given["steps_of"] = dead.seq
        work.create({**given, "waits": waits}, body)
        work.act("replace_job", own, n, 0, False)
        for name, by in ((str(ends[n]), -1), ("waiting", int(waits))):
            figures[name] += by
            work.act("figure", own, name, by)
        if ends[n] == "dead":
            letter = read_letter(dead.facts[b"letter"])
            closed = {"status": "retried", "closed_by": op.by, "closed": work.now, "notes": op.notes}
            closed |= {"reprocess_count": letter.reprocess_count + 1, "reprocessed_as": job_id.hex}
            work.act("keep_letter", dead.seq, {**msgspec.structs.asdict(letter), **closed})
            work.do("ZREM", f"letters:{letter.status}", dead.seq)
            work.do("ZADD", "letters:retried", dead.seq, dead.seq)
            work.do("ZADD", "closed", work.now, f"{dead.seq:016d}")
    for n, gate in enumerate(after):
        if gate != gates[n]:
            words = {name: value for name, value in msgspec.structs.asdict(gate).items() if name != "n" and value}
            frees = gate.state == "open" and gate.counts_for is None
            table = {**words, "waits": gate.waits, "failed": gate.failed, "reached": -1}
            work.act("gate", own, n, table, frees)
    work.do("HDEL", f"workflow:{own}", "cancelled_at")
    became: dict[str, object] = {"status": status_of(Tally(**figures)), "jobs": len(again)}
    work.audit(op, "workflow_retry", workflow.tenant, f"workflow:{op.id}", {"status": workflow.status}, became)
    work.act("wake_for_ready")
    yield from work.commit()
    [now] = yield from read_workflows(work, [own], op.scope)
    return WorkflowAct(workflow=now, jobs=len(again))


def _end(kept: KeptJob, *, skipped: bool) -> NodeEnd | None:
    """How a node has ended, with what people did about it."""
    place = kept.state.place
    if place not in FINISHED:
        return None
    letter = read_letter(kept.facts[b"letter"]).status if b"letter" in kept.facts else None
    if place == "completed" or letter == "resolved":
        return "completed"
    if place == "dead" and letter != "discarded":
        return "dead"
    return "skipped" if skipped else "cancelled"


def _like(kept: KeptJob, job_id: JobId, by: str) -> JobSpec:
    """A new job like this one, with its key and without those that only one job may have."""
    job, body = job_of(kept), kept.body
    return JobSpec(
        id=job_id,
        type=body.type,
        payload=msgspec.Raw(body.payload.encode()),
        payload_version=body.payload_version,
        tenant=body.tenant,
        queue=body.queue,
        priority=body.priority,
        priority_scope="tenant" if body.rank else "queue",
        category=body.category,
        correlation_id=body.correlation_id,
        parent_id=job.parent_id,
        created_by=by,
        refs=job.refs,
        headers=job.headers,
        max_attempts=body.max_attempts,
        timeout_s=body.timeout_s,
        retry=None if body.retry is None else msgspec.Raw(body.retry.encode()),
        key=None if body.key is None else body.key.as_given(),
    )
