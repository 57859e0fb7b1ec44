"""Workflows: enqueue jobs that wait for each other, let them go as their parents end, and look after the whole.

A node is an ordinary job: claimed, retried, limited and dead-lettered like any other. Beside it stand its gates (see
`core.workflows`). Whatever ends a node's job (settled, reclaimed, cancelled, failed or buried by hand) counts for them
in the same commit:

  completed          for each gate
  dead               for gates that open `ended` or `failed`
  cancelled          for gates that open `ended` or `failed`; one that opens `completed` closes

A gate that has counted all it waits for opens: its nodes leave `held` and are ready, or scheduled if their own run-at
is still to come. One that closes ends its nodes as cancelled (skipped, if it opens `failed` and nothing has), which
counts for the gates behind them in turn. A node that had ended before stays what it was: cancelled, not skipped.
One commit moves up to RELEASE_LIMIT nodes; `Advance` moves the rest.

Dead letters: a dead node that is reprocessed lives on as the new job, held if its gate is not open; reprocessing is not
allowed while another job of the node is unfinished or completed. Its first end stays counted where ends count.
Discarding the letter counts as cancelled, resolving it as completed without a result.

By hand: `Fail` of a node that still waits makes it dead whatever the delay: nothing was tried that could be retried.

A waiting node is in no queue's line and in no figures of queues; it counts for no `waiting` limit.

Retention: `Retain` leaves the jobs of nodes alone while their workflow has unfinished or dead nodes, and removes a
workflow with the last of them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from fairlane.core.ids import JobId, Seq, WorkerId
from fairlane.core.job import JobSpec, Status
from fairlane.core.limits import Limit
from fairlane.core.ops.base import Act, Op, RefusalCode, Scope
from fairlane.core.ops.enqueue import Disposition, LimitHit, Notify
from fairlane.core.ops.pauses import Pause
from fairlane.core.workflows import (
    MAX_NODES,
    RELEASE_LIMIT,
    Gate,
    GateSpec,
    Node,
    NodeSpec,
    Workflow,
    WorkflowId,
    WorkflowSpec,
)

MAX_NODE_PAGE = 1000


class WorkflowReceipt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of an `EnqueueWorkflow`; without a disposition nothing at all was written."""

    disposition: Disposition | None = None
    id: WorkflowId | None = None
    """The workflow that now stands for the request."""
    full: bool = False
    depth: int | None = None
    refused: LimitHit | None = None
    paused: Pause | None = None


class EnqueueWorkflow(Op[WorkflowReceipt], frozen=True, kw_only=True):
    """Put a whole workflow in, or nothing of it. `jobs` and `nodes` belong together by their place.

    A workflow of this id: `replayed` if name, tenant and key are the same, else `conflict`. Another one of this tenant
    with this idempotency key: `duplicate`. A node's job whose id is taken: `conflict`. Then capacity, refusing pauses
    and the tenant's limits are looked at as by Enqueue, counting every node in its queue, but `hold` keeps back all
    nodes without a gate of that queue if there is not room for all. Nodes without a gate are ready or scheduled; those
    behind a gate are held.
    """

    workflow: WorkflowSpec
    jobs: tuple[JobSpec, ...]
    """All of the workflow's tenant; without keys of their own."""
    nodes: tuple[NodeSpec, ...]
    gates: tuple[GateSpec, ...] = ()
    capacity: int | None = None
    notify: Notify = "if_waiting"
    limits: tuple[Limit, ...] = ()


class NodesAdded(Struct, frozen=True, kw_only=True, omit_defaults=True):
    refused: RefusalCode | Literal["lease_lost", "ended"] | None = None
    """`ended`: nodes added now could not count for a gate of `everyone`, which has opened or closed; `not_allowed`: the
    workflow was cancelled, a parent is not in it, or `total` or `receipt` says why."""
    total: int | None = None
    """How many nodes it would have: more than `max_nodes`."""
    receipt: WorkflowReceipt | None = None
    """What an EnqueueWorkflow of the new nodes would have been told: the store is full, a pause or a limit refuses."""
    added: int = 0
    """Names that were there already are none."""


class AddNodes(Op[NodesAdded], frozen=True, kw_only=True):
    """Add nodes to a workflow that is there. Those whose names are taken are left out: a repetition adds nothing.

    All that are new, or none of them. A refusal is the first of: the workflow, the lease, `ended`, a cancelled workflow
    or unknown parent, more than `max_nodes` in all; then capacity, refusing pauses and the tenant's limits as by
    EnqueueWorkflow, of the new nodes alone. A running job that adds nodes behind itself meets the same: its retry tries
    again, and what it has added by then is there already.

    Gates are numbered behind those there are. Each of `behind` makes a node of the workflow count for a new gate: an
    end that has happened counts at once. New nodes also count for each gate of `everyone`.
    """

    scope: Scope
    workflow: WorkflowId
    jobs: tuple[JobSpec, ...]
    nodes: tuple[NodeSpec, ...]
    gates: tuple[GateSpec, ...] = ()
    behind: tuple[tuple[str, int], ...] = ()
    seq: Seq | None = None
    """With the next three the lease that guards it; None: nobody's."""
    attempt: int = 0
    claim_no: int = 0
    worker: WorkerId | None = None
    """None: whoever holds it."""
    capacity: int | None = None
    limits: tuple[Limit, ...] = ()
    max_nodes: int = MAX_NODES


class WorkflowDetail(Struct, frozen=True, kw_only=True):
    workflow: Workflow
    dead: tuple[Seq, ...]
    """Dead letters, pending review, that its nodes left: the first 100, by node."""


class GetWorkflow(Op[WorkflowDetail | None], frozen=True, kw_only=True):
    """One workflow, and what it waits for."""

    scope: Scope
    id: WorkflowId


class WorkflowPage(Struct, frozen=True, kw_only=True):
    workflows: tuple[Workflow, ...]
    next: Seq | None


class PageWorkflows(Op[WorkflowPage], frozen=True, kw_only=True):
    """Workflows, newest first."""

    scope: Scope
    name: str | None = None
    before: Seq | None = None
    limit: int = 50


class NodePage(Struct, frozen=True, kw_only=True):
    nodes: tuple[Node, ...]
    next: int | None
    """Pass as `after`."""


class PageNodes(Op[NodePage], frozen=True, kw_only=True):
    """Nodes of a workflow in the order of adding, at most MAX_NODE_PAGE."""

    scope: Scope
    workflow: WorkflowId
    after: int = -1
    limit: int = MAX_NODE_PAGE


class Gates(Struct, frozen=True, kw_only=True):
    gates: tuple[Gate, ...]


class ListGates(Op[Gates], frozen=True, kw_only=True):
    """All gates of a workflow, by number."""

    scope: Scope
    workflow: WorkflowId


class NodeResult(Struct, frozen=True, kw_only=True):
    name: str
    job_id: JobId
    status: Status
    result: str | None
    """JSON text; None: it has none, or it was removed (DropResults)."""
    type: str = ""
    finished_at: datetime | None = None


class NodeResults(Struct, frozen=True, kw_only=True):
    results: tuple[NodeResult, ...]


class ReadResults(Op[NodeResults], frozen=True, kw_only=True):
    """How nodes stand and what they returned, in the order of the names; those that do not exist are left out."""

    scope: Scope
    workflow: WorkflowId
    names: tuple[str, ...]


class WorkflowAct(Struct, frozen=True, kw_only=True, omit_defaults=True):
    refused: RefusalCode | None = None
    workflow: Workflow | None = None
    jobs: int = 0
    """How many jobs it ended, asked to stop, or made."""


class CancelWorkflow(Act[WorkflowAct], frozen=True, kw_only=True):
    """End every unfinished node: waiting ones are cancelled, leased ones asked to stop; all gates close, but for those
    that have opened.

    Fine to repeat. Audit, where it is the first time: `workflow_cancel`, target `workflow:<id>`, before and after
    {"status"}.
    """

    scope: Scope
    id: WorkflowId


class RetryWorkflow(Act[WorkflowAct], frozen=True, kw_only=True):
    """Run nodes again, each as a new job like the one it had: `again` names them with the ids of those jobs, and all
    nodes that wait for them.

    Not allowed while a node of `again` is ready, scheduled or leased, or where one does not exist; a node that waits
    stays as it is. What their ends counted is taken back from the gates, which wait again. Not allowed, either, where
    the gate of one that has ended stays closed or skipped by how other nodes ended: its new job would wait for ever;
    nor while another node that waited for one of `again` is ready, scheduled or leased. New jobs are as by Reprocess,
    without keys, `created_by` = by; dead letters of theirs that are pending become `retried`. Audit: `workflow_retry`,
    as for a cancel, with {"status", "jobs"} after.
    """

    scope: Scope
    id: WorkflowId
    again: tuple[tuple[str, JobId], ...]


class Advanced(Struct, frozen=True, kw_only=True):
    count: int
    """Nodes let go or ended."""


class Advance(Op[Advanced], frozen=True, kw_only=True):
    """Let go, or end, nodes behind gates that have opened or closed and still have some, at most `limit`."""

    limit: int = RELEASE_LIMIT
