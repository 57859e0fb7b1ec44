"""What people do with workflows: cancel them, run nodes again; and what acts on dead letters mean to nodes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Literal, NamedTuple

from fairlane.core.ops import CancelWorkflow, RetryWorkflow, WorkflowAct
from fairlane.core.workflows import RELEASE_LIMIT, CountedNode, Gate, NodeEnd, Workflow, forbids, recount
from fairlane.stores.sqlite.audit import write_audit
from fairlane.stores.sqlite.driver import Row
from fairlane.stores.sqlite.durable_steps import copy_steps
from fairlane.stores.sqlite.facts import EndedJob, finish, hold_at_keys
from fairlane.stores.sqlite.job_keys.places import keep_copied_key
from fairlane.stores.sqlite.listener import addresses_to_wake
from fairlane.stores.sqlite.transaction import Transaction, as_list, change
from fairlane.stores.sqlite.workflows.enqueue import settled_as
from fairlane.stores.sqlite.workflows.gates import (
    GateName,
    NodeEnds,
    Tallies,
    count_ends,
    is_waiting,
    move_nodes,
    read_gates,
)
from fairlane.stores.sqlite.workflows.records import find_workflow, read_all_gates, read_workflow

_CLOSE_GATES = """
update fairlane_gate set state = case state when 'opening' then 'open' when 'skipping' then 'skipped' else 'closed' end
where workflow = ? and state in ('waiting', 'opening', 'closing', 'skipping')
"""
_WAITING = """
select n.seq, coalesce(r.due_at, s.due_at, k.due_at, j.due_at), coalesce(r.attempt, s.attempt, k.attempt, 0),
  coalesce(r.attempts, s.attempts, k.attempts, 0), coalesce(r.crashes, s.crashes, k.crashes, 0)
from fairlane_node n cross join fairlane_job j on j.seq = n.seq
left join fairlane_ready r on r.seq = n.seq left join fairlane_scheduled s on s.seq = n.seq
left join fairlane_held h on h.seq = n.seq left join fairlane_job_key k on k.seq = n.seq and k.state = 'held'
where n.workflow = ? and coalesce(r.seq, s.seq, h.seq, k.seq) is not null
"""
_ASK_LEASED = """
update fairlane_lease set cancel_requested = 1 where not cancel_requested
  and seq in (select seq from fairlane_node where workflow = ?) returning 1
"""
_NODE = """
select n.workflow, n.n, n.seq, n.gate, n.counts_for, n.again, n.skipped, d.status,
  d.status is null and h.seq is null, l.status, g.state, g.reached
from fairlane_node n left join fairlane_done d on d.seq = n.seq left join fairlane_dead_letter l on l.seq = n.seq
left join fairlane_held h on h.seq = n.seq and h.queue = ''
left join fairlane_gate g on g.workflow = n.workflow and g.n = n.gate
"""
_COPY = """
insert into fairlane_job (id, type, tenant, queue, band, rank, max_attempts, payload_version, timeout_s, enqueued_at,
  due_at, category, correlation_id, parent_id, created_by, refs, headers, retry, payload, key, key_terms, key_order)
select ?1, type, tenant, queue, band, rank, max_attempts, payload_version, timeout_s, ?2, ?2, category,
  correlation_id, parent_id, ?3, refs, headers, retry, payload, key, key_terms, coalesce(key_order, seq)
from fairlane_job where seq = ?4 returning seq, queue
"""
_READY = """
insert into fairlane_ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect)
select seq, queue, band, tenant, rank, due_at, type, exists (select 1 from fairlane_step s where s.seq = j.seq), 0, 0, 0
from fairlane_job j where seq = ?
"""
_HELD = "insert into fairlane_held select seq, '', tenant from fairlane_job where seq = ?"
_RETRIED = """
update fairlane_dead_letter set status = 'retried', closed_by = ?, closed_at = ?, notes = ?, reprocessed_as = ?,
  reprocess_count = reprocess_count + 1 where seq = ? and status = 'pending_review'
"""
_REPLACE = "update fairlane_node set seq = ?, again = ?, skipped = 0 where workflow = ? and n = ?"


class NodeState(NamedTuple):
    workflow: int
    n: int
    seq: int
    gate: int | None
    counts_for: str
    again: int
    skipped: int
    status: str | None
    """How its job ended; None: it has not."""
    live: int
    letter: str | None
    gate_state: str | None
    reached: int

    @property
    def may_start(self) -> bool:
        return self.gate is None or not is_waiting(self.n, self.gate_state or "", self.reached)

    @property
    def settled(self) -> NodeEnd:
        return settled_as(self.status or "", self.letter, self.skipped)


@change
def cancel_workflow(tx: Transaction, op: CancelWorkflow) -> WorkflowAct:
    workflow = find_workflow(tx, op.id, op.scope.tenant)
    if workflow is None:
        return WorkflowAct(refused="not_found")
    before = read_workflow(tx, workflow)
    waiting = tx.db.execute(_WAITING, (workflow,))
    listed = as_list([row[0] for row in waiting])
    # First the ends, by the gates as they are: they say who waited.
    for table in ("ready", "scheduled", "held"):
        tx.db.execute(f"delete from fairlane_{table} where seq in (select value from json_each(?))", (listed,))  # noqa: S608
    finish(tx, [EndedJob(seq, "cancelled", tx.now, due, *counters) for seq, due, *counters in waiting])
    count_cancelled(tx, workflow)
    asked = len(tx.db.execute(_ASK_LEASED, (workflow,)))
    if before.cancelled_at is None:
        tx.db.execute("update fairlane_workflow set cancelled_at = ? where seq = ?", (tx.now, workflow))
        after = read_workflow(tx, workflow)
        _write_audit(tx, op, "workflow_cancel", before, {"status": after.status})
    return WorkflowAct(workflow=read_workflow(tx, workflow), jobs=len(waiting) + asked)


def _write_audit(
    tx: Transaction, op: CancelWorkflow | RetryWorkflow, action: str, before: Workflow, after: dict[str, object]
) -> None:
    write_audit(tx, op, action, before.tenant, f"workflow:{op.id}", {"status": before.status}, after)


def count_cancelled(tx: Transaction, workflow: int) -> None:
    """Take the nodes that were cancelled just now into the figures, and close all gates: nothing is let go any more."""
    tallies = Tallies()
    for row in tx.db.execute(f"{_NODE} where n.seq in (select value from json_each(?))", (as_list(tx.ended),)):  # noqa: S608
        node = NodeState._make(row)
        tallies.add(workflow, node.n, "cancelled", 1)
        if not node.may_start:
            tallies.add(workflow, node.n, "waiting", -1)
    tallies.write(tx)
    tx.db.execute(_CLOSE_GATES, (workflow,))
    tx.ended.clear()


@change
def retry_workflow(tx: Transaction, op: RetryWorkflow) -> WorkflowAct:
    workflow = find_workflow(tx, op.id, op.scope.tenant)
    if workflow is None:
        return WorkflowAct(refused="not_found")
    before = read_workflow(tx, workflow)
    rows: list[Row] = []
    for name, _ in op.again:
        rows += tx.db.execute(f"{_NODE} where n.workflow = ? and n.name = ?", (workflow, name))
    nodes = [NodeState._make(row) for row in rows]
    if len(nodes) < len(op.again) or not nodes or any(node.live for node in nodes):
        return WorkflowAct(refused="not_allowed", workflow=before)
    ended = [(node, job_id) for node, (_, job_id) in zip(nodes, op.again, strict=True) if node.status is not None]
    gates = read_all_gates(tx, workflow)
    again = {node.n for node, _ in ended}
    every = [NodeState._make(row) for row in tx.db.execute(f"{_NODE} where n.workflow = ?", (workflow,))]
    anew = count_anew(gates, every, again)
    if any(forbids(anew, node.gate, is_live=bool(node.live)) for node in every if node.live or node.n in again):
        return WorkflowAct(refused="not_allowed", workflow=before)
    tallies, queues = Tallies(), set[str]()
    for node, job_id in ended:
        tallies.add(workflow, node.n, node.settled, -1)
        [(seq, queue)] = tx.db.execute(_COPY, (job_id.bytes, tx.now, op.by, node.seq))
        keep_copied_key(tx, seq)
        if node.status != "completed":
            copy_steps(tx, node.seq, seq)
        tx.db.execute(_RETRIED, (op.by, tx.now, op.notes, job_id.bytes, node.seq))
        tx.db.execute(_REPLACE, (seq, 0, workflow, node.n))
        queues.add(queue)
    set_gates(tx, workflow, [new for old, new in zip(gates, anew, strict=True) if new != old])
    for node, _ in ended:
        now = _node(tx, "n.workflow = ? and n.n = ?", (workflow, node.n))
        if now.may_start:
            tx.db.execute(_READY, (now.seq,))
            hold_at_keys(tx, [now.seq])
        else:
            tx.db.execute(_HELD, (now.seq,))
            tallies.add(workflow, node.n, "waiting", 1)
    tallies.write(tx)
    tx.db.execute("update fairlane_workflow set cancelled_at = null where seq = ?", (workflow,))
    after = read_workflow(tx, workflow)
    _write_audit(tx, op, "workflow_retry", before, {"status": after.status, "jobs": len(ended)})
    tx.wakes.extend(addresses_to_wake(tx, "if_waiting", queues))
    return WorkflowAct(workflow=after, jobs=len(ended))


def count_anew(gates: Sequence[Gate], nodes: Sequence[NodeState], again: set[int]) -> list[Gate]:
    """Every gate by how the nodes stand, once those of `again` have not ended."""
    counted: list[CountedNode] = []
    for node in nodes:
        is_new = node.n in again
        ended = None if is_new or node.status is None else node.settled
        counted.append(CountedNode(tuple(read_gates(node.counts_for)), ended, bool(node.again) and not is_new))
    return recount(gates, counted)


def set_gates(tx: Transaction, workflow: int, changed: Sequence[Gate]) -> None:
    tx.db.executemany(
        "update fairlane_gate set waits = ?, failed = ?, state = ?, reached = -1 where workflow = ? and n = ?",
        [(gate.waits, gate.failed, gate.state, workflow, gate.n) for gate in changed],
    )
    for gate in changed:
        if gate.state == "open" and gate.counts_for is None:
            move_nodes(tx, GateName(workflow, gate.n), "opening", sys.maxsize - 1)


def _node(tx: Transaction, where: str, params: tuple[object, ...]) -> NodeState:
    [row] = tx.db.execute(f"{_NODE} where {where}", params)
    return NodeState._make(row)


def replace_job(tx: Transaction, dead: int, new: int) -> Literal["plain", "held", "free"]:
    """A dead letter is tried again: where the dead job stood for a node, the new one does; `held`: its gate is shut."""
    rows = tx.db.execute(f"{_NODE} where n.seq = ?", (dead,))
    if not rows:
        return "plain"
    node, tallies = NodeState._make(rows[0]), Tallies()
    tx.db.execute(_REPLACE, (new, 1, node.workflow, node.n))
    tallies.add(node.workflow, node.n, "dead", -1)
    if not node.may_start:
        tallies.add(node.workflow, node.n, "waiting", 1)
    tallies.write(tx)
    return "free" if node.may_start else "held"


def has_other_job(tx: Transaction, dead: int) -> bool:
    """Whether a dead job was a node's that has another one now, or whose gate has closed: it cannot be tried again."""
    rows = tx.db.execute(f"{_NODE} where n.seq = ?", (dead,))
    if rows:
        return NodeState._make(rows[0]).gate_state in ("closing", "closed", "skipping", "skipped")
    header = '$."fairlane-workflow"'
    rows = tx.db.execute("select headers ->> ? from fairlane_job where seq = ? and headers is not null", (header, dead))
    return bool(rows) and rows[0][0] is not None


def settle_letter(tx: Transaction, dead: int, status: Literal["resolved", "discarded"]) -> None:
    """A dead letter is closed: if it is a node's, its children go on, or end, too."""
    for row in tx.db.execute(f"{_NODE} where n.seq = ?", (dead,)):
        node, tallies, ends = NodeState._make(row), Tallies(), NodeEnds()
        became = "completed" if status == "resolved" else "cancelled"
        tallies.add(node.workflow, node.n, "dead", -1)
        tallies.add(node.workflow, node.n, became, 1)
        tallies.write(tx)
        ends.add(node.workflow, read_gates(node.counts_for), became, again=True)
        count_ends(tx, ends, RELEASE_LIMIT)
