"""Workflows, their nodes and gates, as people see them."""

from __future__ import annotations

from fairlane.core.ids import Seq
from fairlane.core.ops import (
    MAX_NODE_PAGE,
    Gates,
    GetWorkflow,
    ListGates,
    NodePage,
    NodeResult,
    NodeResults,
    PageNodes,
    PageWorkflows,
    ReadResults,
    WorkflowDetail,
    WorkflowPage,
)
from fairlane.core.workflows import Gate, Node, Tally, Workflow, WorkflowId, status_of
from fairlane.stores.sqlite.driver import Row
from fairlane.stores.sqlite.rows import Condition, RowReader, bounded, equal, joined
from fairlane.stores.sqlite.transaction import Transaction, as_list, reading

_WORKFLOWS = """
select w.id, w.seq, w.name, w.tenant, w.idempotency_key, w.correlation_id, w.created_by, w.enqueued_at, w.cancelled_at,
  total(t.total), total(t.waiting), total(t.completed), total(t.dead), total(t.cancelled), total(t.skipped),
  exists (select 1 from fairlane_gate g
    where g.workflow = w.seq and g.state in ('opening', 'closing', 'skipping'))
from json_each(?) c cross join fairlane_workflow w on w.seq = c.value
left join fairlane_tally t on t.workflow = w.seq
group by w.seq
"""
_DEAD = """
select d.seq from fairlane_node n cross join fairlane_dead_letter d on d.seq = n.seq
where n.workflow = ? and d.status = 'pending_review' order by n.n limit 100
"""
_NODES = """
select n.n, n.name, n.gate, n.counts_for, h.seq is not null and h.queue = '', j.id, j.seq, j.type,
  case when d.seq is not null then d.status when s.failed then 'failed' when l.started_at is not null then 'processing'
    else 'pending' end,
  coalesce(d.attempts, r.attempts, s.attempts, l.attempts, k.attempts, 0), j.enqueued_at,
  coalesce(d.started_at, l.started_at), d.finished_at, iif(d.error_type is null, a.error_message, d.error_message)
from fairlane_node n
cross join fairlane_job j on j.seq = n.seq
left join fairlane_held h on h.seq = n.seq
left join fairlane_job_key k on k.seq = n.seq and k.state = 'held'
left join fairlane_ready r on r.seq = n.seq
left join fairlane_scheduled s on s.seq = n.seq
left join fairlane_lease l on l.seq = n.seq
left join fairlane_done d on d.seq = n.seq
left join fairlane_attempt a on a.seq = n.seq and a.attempt =
  (select max(attempt) from fairlane_attempt where seq = n.seq and error_type is not null)
where n.workflow = ? and n.n > ? order by n.n limit ?
"""
_GATES = """
select n, opens, waits, failed, counts_for, everyone, state from fairlane_gate where workflow = ? order by n
"""
_RESULTS = """
select n.name, j.id,
  case when d.seq is not null then d.status when s.failed then 'failed' when l.started_at is not null then 'processing'
    else 'pending' end, d.result, j.type, d.finished_at
from json_each(?) c cross join fairlane_node n on n.workflow = ? and n.name = c.value
cross join fairlane_job j on j.seq = n.seq
left join fairlane_scheduled s on s.seq = n.seq
left join fairlane_lease l on l.seq = n.seq
left join fairlane_done d on d.seq = n.seq
order by c.key
"""
_node, _gate, _result = RowReader(Node), RowReader(Gate), RowReader(NodeResult)
_own = RowReader(Workflow, without=("status", "tally"))


def find_workflow(tx: Transaction, id: WorkflowId, tenant: str | None) -> int | None:
    """The number of a workflow, if it is there and the tenant (None: any) may see it."""
    rows = tx.db.execute("select seq, tenant from fairlane_workflow where id = ?", (id.bytes,))
    return rows[0][0] if rows and tenant in (None, rows[0][1]) else None


def read_workflow(tx: Transaction, seq: int) -> Workflow:
    [row] = tx.db.execute(_WORKFLOWS, (as_list([seq]),))
    return _workflow(row)


def _workflow(row: Row) -> Workflow:
    total, waiting, completed, dead, cancelled, skipped = map(int, row[9:15])
    tally = Tally(total=total, waiting=waiting, completed=completed, dead=dead, cancelled=cancelled, skipped=skipped)
    values = dict(zip(_own.names, row[:9], strict=True))
    correlation = values["correlation_id"]
    found = _own([*row[:5], "" if correlation is None else correlation, *row[6:9]], status="running", tally=tally)
    return Workflow(
        **{name: getattr(found, name) for name in _own.names if name != "correlation_id"},
        correlation_id=correlation or str(found.id),
        status=status_of(tally, moving=bool(row[15])),
        tally=tally,
    )


@reading
def get_workflow(tx: Transaction, op: GetWorkflow) -> WorkflowDetail | None:
    seq = find_workflow(tx, op.id, op.scope.tenant)
    if seq is None:
        return None
    dead = tuple(Seq(number) for (number,) in tx.db.execute(_DEAD, (seq,)))
    return WorkflowDetail(workflow=read_workflow(tx, seq), dead=dead)


@reading
def page_workflows(tx: Transaction, op: PageWorkflows) -> WorkflowPage:
    limit = bounded(op.limit)
    conditions = equal(("tenant", op.scope.tenant), ("name", op.name))
    if op.before is not None:
        conditions.append(Condition("seq < ?", (op.before,)))
    where, params = joined(conditions)
    sql = f"select seq from fairlane_workflow where {where} order by seq desc limit ?"  # noqa: S608
    seqs = [seq for (seq,) in tx.db.execute(sql, (*params, limit + 1))]
    rows = {row[1]: row for row in tx.db.execute(_WORKFLOWS, (as_list(seqs[:limit]),))}
    return WorkflowPage(
        workflows=tuple(_workflow(rows[seq]) for seq in seqs[:limit]),
        next=Seq(seqs[limit - 1]) if len(seqs) > limit else None,
    )


@reading
def page_nodes(tx: Transaction, op: PageNodes) -> NodePage:
    limit = max(1, min(op.limit, MAX_NODE_PAGE))
    workflow = find_workflow(tx, op.workflow, op.scope.tenant)
    rows = [] if workflow is None else tx.db.execute(_NODES, (workflow, op.after, limit + 1))
    return NodePage(nodes=tuple(map(_node, rows[:limit])), next=rows[limit - 1][0] if len(rows) > limit else None)


@reading
def list_gates(tx: Transaction, op: ListGates) -> Gates:
    workflow = find_workflow(tx, op.workflow, op.scope.tenant)
    return Gates(gates=() if workflow is None else read_all_gates(tx, workflow))


def read_all_gates(tx: Transaction, workflow: int) -> tuple[Gate, ...]:
    return tuple(map(_gate, tx.db.execute(_GATES, (workflow,))))


@reading
def read_results(tx: Transaction, op: ReadResults) -> NodeResults:
    workflow = find_workflow(tx, op.workflow, op.scope.tenant)
    rows = [] if workflow is None else tx.db.execute(_RESULTS, (as_list(op.names), workflow))
    return NodeResults(results=tuple(map(_result, rows)))
