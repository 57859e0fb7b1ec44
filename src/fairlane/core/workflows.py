"""Workflows: jobs that wait for each other, as nodes and the gates between them.

A **node** is an ordinary job with a name in its workflow. A **gate** stands before the nodes that wait for the same
parents: it counts their ends and opens once all have come. `compile_graph` turns "this after those" into nodes and
gates; a store only counts.

    fetch ──┐                      fetch, parse: count for gate 0
            ├─▶ gate 0 ──▶ report  report: waits behind gate 0
    parse ──┘

A set of parents that is large has gates before its gate, each for some of them: workers that end its nodes at the same
time then seldom count in the same row. (docs/decisions/0019-workflows-are-nodes-and-gates.md)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, NewType
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from fairlane.core.ids import JobId, Seq
from fairlane.core.job import Status
from fairlane.errors import InvalidWorkflow, nearest

WorkflowId = NewType("WorkflowId", UUID)
"""A UUIDv7 made by the client, like a job's."""

MAX_NODES = 100_000
MAX_NAME_BYTES = 200
GATE_SIZE = 64
"""Parents that one gate counts: more have several gates before theirs."""
TALLY_SIZE = 64
"""Nodes whose ends are counted together, for the workflow's figures."""
RELEASE_LIMIT = 1000
"""Nodes that the commit of one end lets go; the rest follow in steps of this size."""

WORKFLOW_HEADER = "fairlane-workflow"
"""The header of a node's job that names its workflow."""
NODE_HEADER = "fairlane-node"
"""The header of a node's job that has its name."""
PARENTS_HEADER = "fairlane-parents"
"""The header of a node's job with the W3C trace contexts of those it waits for, MOST_LINKS of them."""
MOST_LINKS = 16
RUNNING_HEADER = "fairlane-running"
"""The header of a node's job in a workflow whose nodes may not all run at once: how many may."""
RESULT_KEY = "$fairlane.result"
"""`{"$fairlane.result": "<name of a node>"}` within a payload stands for that node's result."""

OnFailure = Literal["stop", "continue", "compensate"]
"""What it means to a node that one of its parents failed.

stop        it waits until somebody deals with the dead letter; a parent that was cancelled cancels it, too
continue    it runs once all its parents have ended, however
compensate  it runs once all have ended and only if one of them did not complete
"""

Opens = Literal["completed", "ended", "failed"]
"""When a gate opens: once all that count for it have completed; once all have ended; or once all have ended if one of
them did not complete, and else its nodes are skipped."""

OPENS: Mapping[OnFailure, Opens] = {"stop": "completed", "continue": "ended", "compensate": "failed"}

GateState = Literal["waiting", "opening", "open", "closing", "closed", "skipping", "skipped"]
"""`opening`, `closing`, `skipping`: not all of its nodes have been let go, or ended, yet. The nodes behind a skipped
gate were not needed: no parent of a compensation failed."""


class WorkflowSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: WorkflowId
    name: str
    tenant: str
    idempotency_key: str | None = None
    correlation_id: str | None = None
    """None: the workflow's id."""
    created_by: str | None = None


class GateSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    opens: Opens
    waits: int
    """How many nodes and gates count for it."""
    counts_for: int | None = None
    """The gate that counts it, by its place among the gates given."""
    everyone: bool = False
    """Nodes that are added later count for it, too."""


class NodeSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    gate: int | None = None
    """The gate it waits behind, by its place among the gates given; None: it may run at once."""
    counts_for: tuple[int, ...] = ()
    """The gates that count its end."""


class Tally(Struct, frozen=True, kw_only=True):
    """How many nodes of a workflow are where."""

    total: int
    waiting: int
    """For their parents."""
    completed: int
    dead: int
    """With a dead letter that nobody has dealt with."""
    cancelled: int
    skipped: int
    """Compensations that were not needed."""

    @property
    def ended(self) -> int:
        return self.completed + self.dead + self.cancelled + self.skipped

    @property
    def live(self) -> int:
        """Ready, scheduled, held by a limit, or running."""
        return self.total - self.waiting - self.ended


WorkflowStatus = Literal["running", "blocked", "completed", "failed", "cancelled"]
"""`blocked`: nothing of it goes on before somebody deals with its dead nodes. `failed`: all nodes have ended, some
dead."""


class Workflow(Struct, frozen=True, kw_only=True):
    """A workflow as people see it."""

    id: WorkflowId
    seq: Seq
    """Orders workflows by their enqueue."""
    name: str
    tenant: str
    status: WorkflowStatus
    tally: Tally
    idempotency_key: str | None
    correlation_id: str
    created_by: str | None
    enqueued_at: datetime
    cancelled_at: datetime | None


class Gate(Struct, frozen=True, kw_only=True):
    n: int
    opens: Opens
    waits: int
    """How many of those that count for it have not ended as it asks."""
    failed: int
    counts_for: int | None
    everyone: bool
    state: GateState


class Node(Struct, frozen=True, kw_only=True):
    n: int
    """Its place in the workflow: by the order of adding."""
    name: str
    gate: int | None
    counts_for: tuple[int, ...]
    waiting: bool
    """For its parents."""
    job_id: JobId
    """The job that stands for it now: a dead node that was tried again has another."""
    job_seq: Seq
    type: str
    status: Status
    attempts: int
    enqueued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    last_error: str | None


def status_of(tally: Tally, *, moving: bool = False) -> WorkflowStatus:
    """`moving`: some gate is opening or closing."""
    if tally.ended < tally.total:
        return "running" if tally.live > 0 or moving else "blocked"
    if tally.dead:
        return "failed"
    return "cancelled" if tally.cancelled else "completed"


class GraphNode(Struct, frozen=True):
    """A node of a graph that is being built, and what it waits for."""

    name: str
    after: tuple[str, ...] = ()
    on_failure: OnFailure = "stop"
    everyone: bool = False
    """It waits for every node but those that wait so, also for those added later."""


class CompiledGraph(Struct, frozen=True, kw_only=True):
    nodes: tuple[NodeSpec, ...]
    gates: tuple[GateSpec, ...]
    behind: tuple[tuple[str, int], ...] = ()
    """Nodes that are in the store already, each with a gate given here that counts its end."""


def compile_graph(nodes: Sequence[GraphNode], known: Iterable[str] = ()) -> CompiledGraph:
    """Nodes and gates of "this after those". `known`: names of nodes that the workflow has already.

    Refuses names given twice, parents that nobody has added, cycles (with their path) and more than MAX_NODES.
    """
    there = frozenset(known)
    _check(nodes, there)
    members = tuple(node.name for node in nodes if not node.everyone)
    gates: list[GateSpec] = []
    counted: dict[str, list[int]] = {}
    gate_of: dict[tuple[frozenset[str], str, bool], int] = {}
    # Of many nodes, few sets of parents are asked for again and again: a layer asks for the layer before it. Found by
    # the tuple as it is given, 10,000 nodes of 100 parents each compile in a tenth of the time.
    asked: dict[tuple[tuple[str, ...], str, bool], int] = {}
    waits_behind: dict[str, int] = {}
    for node in nodes:
        after = members if node.everyone else node.after
        if not after:
            continue
        gate = asked.get(given := (after, node.on_failure, node.everyone))
        if gate is None:
            key = (frozenset(after), node.on_failure, node.everyone)
            if key not in gate_of:
                once = tuple(dict.fromkeys(after))
                gate_of[key] = _add_gate(gates, counted, once, OPENS[node.on_failure], everyone=node.everyone)
            gate = asked[given] = gate_of[key]
        waits_behind[node.name] = gate
    return CompiledGraph(
        nodes=tuple(
            NodeSpec(name=n.name, gate=waits_behind.get(n.name), counts_for=tuple(counted.get(n.name, ())))
            for n in nodes
        ),
        gates=tuple(gates),
        behind=tuple((name, gate) for name in sorted(there & counted.keys()) for gate in counted[name]),
    )


def _add_gate(
    gates: list[GateSpec], counted: dict[str, list[int]], after: tuple[str, ...], opens: Opens, *, everyone: bool
) -> int:
    """A gate for these parents, behind gates for some of them each where they are many."""
    if len(after) <= GATE_SIZE:
        gates.append(GateSpec(opens=opens, waits=len(after), everyone=everyone))
        for name in after:
            counted.setdefault(name, []).append(len(gates) - 1)
        return len(gates) - 1
    lots = [after[first : first + GATE_SIZE] for first in range(0, len(after), GATE_SIZE)]
    last = len(gates) + len(lots)
    for lot in lots:
        part: Opens = "completed" if opens == "completed" else "ended"
        gates.append(GateSpec(opens=part, waits=len(lot), counts_for=last))
        for name in lot:
            counted.setdefault(name, []).append(len(gates) - 1)
    gates.append(GateSpec(opens=opens, waits=len(lots), everyone=everyone))
    return last


def _check(nodes: Sequence[GraphNode], known: frozenset[str]) -> None:
    if not nodes:
        raise InvalidWorkflow("it has no nodes: add at least one")
    if len(nodes) + len(known) > MAX_NODES:
        raise InvalidWorkflow(f"it has {len(nodes) + len(known):,} nodes: expected at most {MAX_NODES:,}")
    names: set[str] = set(known)
    for node in nodes:
        if not node.name or len(node.name.encode(errors="replace")) > MAX_NAME_BYTES:
            raise InvalidWorkflow(f"a node is named {node.name[:40]!r}: expected 1 to {MAX_NAME_BYTES} bytes")
        if node.name in names:
            raise InvalidWorkflow(f'two nodes are named "{node.name}": give each a name of its own')
        names.add(node.name)
    seen: set[tuple[str, ...]] = set()
    for node in nodes:
        if node.after in seen:
            continue
        seen.add(node.after)
        for parent in node.after:
            if parent not in names:
                raise InvalidWorkflow(
                    f'node "{node.name}" is after "{parent}", which was not added.{nearest(parent, names)}'
                )
    if not _ends(nodes, known):
        circle = find_cycle({node.name: node.after for node in nodes})
        raise InvalidWorkflow(f"its nodes wait for each other: {' -> '.join(circle)}")
    if not any(not node.everyone for node in nodes) and any(node.everyone for node in nodes):
        raise InvalidWorkflow("its callbacks have no jobs to wait for: add at least one")


def _ends(nodes: Sequence[GraphNode], known: frozenset[str]) -> bool:
    """Whether every node may run in the end: there is no cycle. Goes over each set of parents once."""
    behind: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        behind.setdefault(node.after, []).append(node.name)
    missing = {after: len(set(after) - known) for after in behind}
    waiting: dict[str, list[tuple[str, ...]]] = {}
    for after in behind:
        for parent in set(after) - known:
            waiting.setdefault(parent, []).append(after)
    free, left = [after for after, count in missing.items() if not count], len(nodes)
    while free:
        for name in behind[free.pop()]:
            left -= 1
            for after in waiting.get(name, ()):
                missing[after] -= 1
                if not missing[after]:
                    free.append(after)
    return not left


def find_cycle(parents: Mapping[str, Sequence[str]]) -> list[str]:
    """Names of nodes each of which waits for the one before it, first and last the same; empty: there is no cycle."""
    done: set[str] = set()
    for first in parents:
        if first in done:
            continue
        path: list[str] = [first]
        on_path = {first}
        left = [iter(parents[first])]
        while path:
            parent = next(left[-1], None)
            if parent is None:
                done.add(path[-1])
                on_path.discard(path.pop())
                left.pop()
            elif parent in on_path:
                return [*reversed(path[path.index(parent) :]), path[-1]] if len(path) > 1 else [parent, parent]
            elif parent in parents and parent not in done:
                path.append(parent)
                on_path.add(parent)
                left.append(iter(parents[parent]))
    return []


def parents_of(nodes: Sequence[Node], gates: Sequence[Gate]) -> dict[str, tuple[str, ...]]:
    """For each node the names of those it waits for, in the order of adding."""
    gate_after = {gate.n: gate.counts_for for gate in gates}
    counting: dict[int, list[str]] = {}
    for node in nodes:
        for n in node.counts_for:
            counting.setdefault(n, []).append(node.name)
            if (behind := gate_after.get(n)) is not None:
                counting.setdefault(behind, []).append(node.name)
    before = {n: tuple(names) for n, names in counting.items()}
    return {node.name: before.get(node.gate, ()) if node.gate is not None else () for node in nodes}


class NodeWaits(NamedTuple):
    """What a node behind a gate waits for."""

    gate: Gate
    parents: tuple[Node, ...]
    """Those whose end the gate has not counted."""
    dead: tuple[Node, ...]
    """Dead nodes before a gate that waits for completions: its own, or that of a parent that waits itself."""


def waits_of(job: JobId, nodes: Sequence[Node], gates: Sequence[Gate]) -> NodeWaits | None:
    """What the node waits for that this job stands for; None: it is no node, or behind no gate. `nodes`: all."""
    by_name, gate_of = {node.name: node for node in nodes}, {gate.n: gate for gate in gates}
    node = next((node for node in nodes if node.job_id == job), None)
    if node is None or node.gate is None:
        return None
    before = parents_of(nodes, gates)
    gate = gate_of[node.gate]
    uncounted = [
        parent
        for parent in (by_name[name] for name in before[node.name])
        if parent.status not in ("completed", "cancelled") and (parent.status != "dead" or gate.opens == "completed")
    ]
    dead, left, seen = [], [node], {node.name}
    while left:
        child = left.pop()
        for name in before[child.name]:
            parent = by_name[name]
            if name in seen or child.gate is None:
                continue
            seen.add(name)
            if parent.waiting:
                left.append(parent)
            elif parent.status == "dead" and gate_of[child.gate].opens == "completed":
                dead.append(parent)
    return NodeWaits(gate, tuple(uncounted), tuple(dead))


NodeEnd = Literal["completed", "dead", "cancelled", "skipped"]


class CountedNode(Struct, frozen=True):
    """What the gates need to know of a node."""

    counts_for: tuple[int, ...]
    ended: NodeEnd | None
    """How its job has ended, and what people did about it; None: it has not."""
    again: bool = False
    """It had ended before, which stays counted where ends count."""


_ENDING: Mapping[GateState, GateState] = {"closed": "closing", "skipped": "skipping"}
SHUT: tuple[GateState, ...] = ("closing", "closed", "skipping", "skipped")
"""A gate that never lets a node go, unless it is counted anew."""


def recount(gates: Sequence[Gate], nodes: Iterable[CountedNode]) -> list[Gate]:
    """The gates as they stand when everything is counted anew; one that is ending its nodes goes on with that."""
    counts: dict[int, list[CountedNode]] = {gate.n: [] for gate in gates}
    for node in nodes:
        for n in node.counts_for:
            counts[n].append(node)
    found: list[Gate] = []
    for gate in gates:  # those that count for others come before them
        state: GateState = "waiting"
        ended = [node for node in counts[gate.n] if node.ended is not None or node.again]
        failed = sum(node.again or node.ended in ("dead", "cancelled") for node in ended)
        if gate.opens == "completed":
            waits = sum(node.ended != "completed" for node in counts[gate.n])
            if any(node.ended == "cancelled" for node in ended):
                state = "closed"
            elif any(node.ended == "skipped" for node in ended):
                state = "skipped"
        else:
            waits = len(counts[gate.n]) - len(ended)
        if state == "waiting" and not waits:
            state = "skipped" if gate.opens == "failed" and not failed else "open"
        is_ending = gate.state == _ENDING.get(state)
        found.append(replace(gate, waits=waits, failed=failed, state=gate.state if is_ending else state))
        if gate.counts_for is not None:
            ends: dict[GateState, NodeEnd] = {"open": "completed", "closed": "cancelled", "skipped": "skipped"}
            passed_on = CountedNode((), ends.get(state), again=state == "open" and failed > 0)
            counts[gate.counts_for].append(passed_on)
    return found


def forbids(gates: Sequence[Gate], n: int | None, *, is_live: bool) -> bool:
    """Whether the gate of this number is not open before a live node, or never opens before one that is to run again.

    `gates`: all, as `recount` leaves them.
    """
    return n is not None and (gates[n].state != "open" if is_live else gates[n].state in SHUT)


def descendants(parents: Mapping[str, Sequence[str]], first: Iterable[str]) -> set[str]:
    """These nodes, and all that wait for them."""
    children: dict[str, list[str]] = {}
    for name, after in parents.items():
        for parent in after:
            children.setdefault(parent, []).append(name)
    found, new = set(first), list(first)
    while new:
        new = [child for name in new for child in children.get(name, ()) if child not in found]
        found.update(new)
    return found


def layers(parents: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The nodes by the longest way that leads to them; each layer in the order given."""
    depth: dict[str, int] = {}
    behind: dict[int, int] = {}
    """By the identity of a set of parents: those of a layer are looked through once, not for each node behind it."""
    left = list(parents)
    while left:
        later = []
        for name in left:
            after = parents[name]
            if id(after) not in behind:
                if any(parent not in depth for parent in after):
                    later.append(name)
                    continue
                behind[id(after)] = 1 + max((depth[parent] for parent in after), default=-1)
            depth[name] = behind[id(after)]
        if len(later) == len(left):
            break
        left = later
    found: list[list[str]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for name in parents:
        if name in depth:
            found[depth[name]].append(name)
    return found
