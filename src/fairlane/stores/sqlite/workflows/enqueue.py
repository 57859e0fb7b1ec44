"""Writes new workflows, and new nodes of those that are there."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from fairlane.core.job import JobSpec
from fairlane.core.limits import Limit
from fairlane.core.ops import AddNodes, EnqueueWorkflow, NodesAdded, WorkflowReceipt
from fairlane.core.workflows import TALLY_SIZE, GateSpec, NodeEnd, NodeSpec, WorkflowId
from fairlane.stores.sqlite.enqueue import Quotas, count_depth, write
from fairlane.stores.sqlite.facts import is_leased
from fairlane.stores.sqlite.limits.in_force import applicable_limits
from fairlane.stores.sqlite.listener import addresses_to_wake
from fairlane.stores.sqlite.pauses import refusing_pause
from fairlane.stores.sqlite.transaction import Transaction, as_list, change
from fairlane.stores.sqlite.workflows.gates import NodeEnds, count_ends, read_gates
from fairlane.stores.sqlite.workflows.records import find_workflow

_KNOWN = "select name, tenant, idempotency_key from fairlane_workflow where id = ?"
_SAME_KEY = "select id from fairlane_workflow where tenant = ? and idempotency_key = ?"
_TAKEN = "select 1 from fairlane_job where id = ?"
_WORKFLOW = """
insert into fairlane_workflow (id, name, tenant, idempotency_key, correlation_id, created_by, enqueued_at, nodes, gates)
values (?, ?, ?, ?, ?, ?, ?, 0, 0) returning seq
"""
_NODE = "insert into fairlane_node (workflow, n, name, seq, gate, counts_for) values (?, ?, ?, ?, ?, ?)"
_GATE = """
insert into fairlane_gate (workflow, n, opens, waits, counts_for, everyone, state) values (?, ?, ?, ?, ?, ?, ?)
"""
_TALLY = """
insert into fairlane_tally (workflow, n, total, waiting) values (?1, ?2, ?3, ?4)
on conflict (workflow, n) do update set total = total + ?3, waiting = waiting + ?4
"""
_NUMBERS = "select nodes, gates, cancelled_at from fairlane_workflow where seq = ?"
_EVERYONE = "select n, state from fairlane_gate where workflow = ? and everyone order by n"
_JOIN = "update fairlane_gate set waits = waits + ? where workflow = ? and n = ?"
_PARENT = """
select n.n, n.counts_for, n.again, n.skipped, d.status, l.status from fairlane_node n
left join fairlane_done d on d.seq = n.seq left join fairlane_dead_letter l on l.seq = n.seq
where n.workflow = ? and n.name = ?
"""
_NAMED = "select name from fairlane_node where workflow = ? and name in (select value from json_each(?))"


@change
def enqueue_workflow(tx: Transaction, op: EnqueueWorkflow) -> WorkflowReceipt:
    spec = op.workflow
    if known := tx.db.execute(_KNOWN, (spec.id.bytes,)):
        is_same = known[0] == (spec.name, spec.tenant, spec.idempotency_key)
        return WorkflowReceipt(disposition="replayed" if is_same else "conflict", id=spec.id)
    if spec.idempotency_key is not None and (same := tx.db.execute(_SAME_KEY, (spec.tenant, spec.idempotency_key))):
        return WorkflowReceipt(disposition="duplicate", id=WorkflowId(UUID(bytes=same[0][0])))
    if any(tx.db.execute(_TAKEN, (job.id.bytes,)) for job in op.jobs):
        return WorkflowReceipt(disposition="conflict", id=spec.id)
    room = _find_room(tx, op.jobs, op.capacity, op.limits)
    if isinstance(room, WorkflowReceipt):
        return room
    depth, held = room
    [(workflow,)] = tx.db.execute(
        _WORKFLOW,
        (
            spec.id.bytes,
            spec.name,
            spec.tenant,
            spec.idempotency_key,
            spec.correlation_id,
            spec.created_by,
            tx.now,
        ),
    )
    add_gates(tx, workflow, op.gates, 0)
    add_nodes(tx, workflow, op.jobs, op.nodes, (0, 0), held)
    queues = {job.queue for job, node in zip(op.jobs, op.nodes, strict=True) if node.gate is None} - held
    tx.wakes.extend(addresses_to_wake(tx, op.notify, queues))
    return WorkflowReceipt(disposition="created", id=spec.id, depth=depth)


def _find_room(
    tx: Transaction, jobs: tuple[JobSpec, ...], capacity: int | None, limits: tuple[Limit, ...]
) -> WorkflowReceipt | tuple[int | None, set[str]]:
    """The refusal of new nodes; or how many jobs wait, and the queues whose nodes are kept back."""
    depth = count_depth(tx, capacity)
    if depth is not None and capacity is not None and depth + len(jobs) > capacity:
        return WorkflowReceipt(full=True, depth=depth)
    applicable = applicable_limits(tx, limits)
    if tx.has_refusals and (refusing := refusing_pause(tx, jobs)) is not None:
        return WorkflowReceipt(paused=refusing, depth=depth)
    held: set[str] = set()
    if applicable is not None:
        quotas = Quotas(tx, applicable, warns=False)
        if too_long := quotas.find_too_long(jobs):
            return WorkflowReceipt(refused=too_long, depth=depth)
        for job in jobs:
            policy = quotas.over(job)
            if policy == "reject":
                return WorkflowReceipt(refused=quotas.hit(job.tenant, job.queue), depth=depth)
            if policy == "hold":
                held.add(job.queue)
    return depth, held


@change
def extend_workflow(tx: Transaction, op: AddNodes) -> NodesAdded:
    workflow = find_workflow(tx, op.workflow, op.scope.tenant)
    if workflow is None:
        return NodesAdded(refused="not_found")
    if op.seq is not None and not is_leased(tx, op):
        return NodesAdded(refused="lease_lost")
    [(nodes, gates, cancelled_at)] = tx.db.execute(_NUMBERS, (workflow,))
    names = as_list([node.name for node in op.nodes])
    taken = {name for (name,) in tx.db.execute(_NAMED, (workflow, names))}
    new = [place for place, node in enumerate(op.nodes) if node.name not in taken]
    if not new:
        return NodesAdded()
    everyone = tx.db.execute(_EVERYONE, (workflow,))
    if any(state != "waiting" for _, state in everyone):
        return NodesAdded(refused="ended")
    parents = [tx.db.execute(_PARENT, (workflow, name)) for name, _ in op.behind]
    if cancelled_at is not None or not all(parents):
        return NodesAdded(refused="not_allowed")
    if nodes + len(new) > op.max_nodes:
        return NodesAdded(refused="not_allowed", total=nodes + len(new))
    jobs = tuple(op.jobs[place] for place in new)
    room = _find_room(tx, jobs, op.capacity, op.limits)
    if isinstance(room, WorkflowReceipt):
        return NodesAdded(refused="not_allowed", receipt=room)
    _, held = room
    add_gates(tx, workflow, op.gates, gates)
    joins = tuple(n for n, _ in everyone)
    for n in joins:
        tx.db.execute(_JOIN, (len(new), workflow, n))
    add_nodes(tx, workflow, jobs, [op.nodes[i] for i in new], (nodes, gates), held, joins)
    ends = NodeEnds()
    for [(n, counts_for, again, skipped, status, letter)], (_, gate) in zip(parents, op.behind, strict=True):
        counted = as_list([*read_gates(counts_for), gates + gate])
        tx.db.execute("update fairlane_node set counts_for = ? where workflow = ? and n = ?", (counted, workflow, n))
        if status is not None or again:  # tried again: its first end counts
            ends.add(workflow, [gates + gate], settled_as(status or "dead", letter, skipped), again=False)
    queues = {op.jobs[place].queue for place in new if op.nodes[place].gate is None} - held
    count_ends(tx, ends, len(new))
    tx.wakes.extend(addresses_to_wake(tx, "if_waiting", queues))
    return NodesAdded(added=len(new))


def settled_as(status: str, letter: str | None, skipped: int) -> NodeEnd:
    """How the end of a node counts, with what people did about it."""
    if status == "completed" or letter == "resolved":
        return "completed"
    if status == "dead" and letter != "discarded":
        return "dead"
    return "skipped" if skipped else "cancelled"


def add_gates(tx: Transaction, workflow: int, gates: Sequence[GateSpec], first: int) -> None:
    rows = [
        (
            workflow,
            first + place,
            gate.opens,
            gate.waits,
            None if gate.counts_for is None else first + gate.counts_for,
            gate.everyone,
            "waiting",
        )
        for place, gate in enumerate(gates)
    ]
    tx.db.executemany(_GATE, rows)
    tx.db.execute("update fairlane_workflow set gates = gates + ? where seq = ?", (len(gates), workflow))


def add_nodes(
    tx: Transaction,
    workflow: int,
    jobs: Sequence[JobSpec],
    nodes: Sequence[NodeSpec],
    first: tuple[int, int],
    held: set[str],
    joins: tuple[int, ...] = (),
) -> None:
    """`first`: the numbers of the first node and gate; `held`: queues without room; `joins`: gates they count for."""
    first_node, first_gate = first
    rows: list[tuple[object, ...]] = []
    for n, (job, node) in enumerate(zip(jobs, nodes, strict=True), first_node):
        is_behind = node.gate is not None
        receipt = write(tx, job, held=is_behind or job.queue in held, line="" if is_behind else None)
        counts_for = as_list([*(first_gate + gate for gate in node.counts_for), *joins])
        gate = None if node.gate is None else first_gate + node.gate
        rows.append((workflow, n, node.name, receipt.seq, gate, counts_for))
    tx.db.executemany(_NODE, rows)
    last = first_node + len(nodes)
    for tally in range(first_node // TALLY_SIZE, -(-last // TALLY_SIZE)):
        low, high = max(tally * TALLY_SIZE, first_node), min((tally + 1) * TALLY_SIZE, last)
        waiting = sum(node.gate is not None for node in nodes[low - first_node : high - first_node])
        tx.db.execute(_TALLY, (workflow, tally, high - low, waiting))
    tx.db.execute("update fairlane_workflow set nodes = nodes + ? where seq = ?", (len(nodes), workflow))
