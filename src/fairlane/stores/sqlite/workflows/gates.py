"""Counts the ends of nodes at their gates, and lets nodes go as gates open."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlane.core.ops import Advance, Advanced
from fairlane.core.workflows import RELEASE_LIMIT, TALLY_SIZE
from fairlane.stores.sqlite.driver import Row
from fairlane.stores.sqlite.facts import Counters, EndedJob, WaitingJob, finish, make_ready, schedule
from fairlane.stores.sqlite.transaction import Transaction, as_list, change

_ENDED = """
select n.workflow, n.n, n.gate, n.counts_for, n.again, iif(n.skipped, 'skipped', d.status), g.state, g.reached
from json_each(?) c cross join fairlane_node n on n.seq = c.value cross join fairlane_done d on d.seq = n.seq
left join fairlane_gate g on g.workflow = n.workflow and g.n = n.gate
"""
_GATE = """
select opens, waits, failed, counts_for, state from fairlane_gate where workflow = ? and n = ?
"""
_COUNT = "update fairlane_gate set waits = ?, failed = ?, state = ? where workflow = ? and n = ?"
_BEHIND = """
select n.n, n.seq, j.due_at, exists (select 1 from fairlane_step s where s.seq = n.seq), j.due_at <= j.enqueued_at
from fairlane_node n cross join fairlane_held h on h.seq = n.seq
cross join fairlane_job j on j.seq = n.seq
where n.workflow = ? and n.gate = ? and n.n > ? order by n.n limit ?
"""
_UNHOLD = "delete from fairlane_held where seq in (select value from json_each(?))"
_SKIP = "update fairlane_node set skipped = 1 where seq in (select value from json_each(?))"
_MOVED = "update fairlane_gate set state = ?, reached = ? where workflow = ? and n = ?"
_MOVING = """
select workflow, n, state, reached from fairlane_gate where state in ('opening', 'closing', 'skipping')
order by workflow, n limit ?
"""
_TALLY = """
update fairlane_tally set waiting = waiting + ?, completed = completed + ?, dead = dead + ?, cancelled = cancelled + ?,
  skipped = skipped + ? where workflow = ? and n = ?
"""
_FIGURES = ("waiting", "completed", "dead", "cancelled", "skipped")
DONE = {"opening": "open", "closing": "closed", "skipping": "skipped"}
# With steps of another job its attempts begin behind the first: that is how a worker knows of them.
UNTRIED = (Counters(0, 0, 0, 0), Counters(1, 0, 0, 0))


class GateName(NamedTuple):
    workflow: int
    n: int


@dataclass(slots=True)
class Count:
    """What has ended of that which counts for one gate."""

    completed: int = 0
    ended: int = 0
    failed: int = 0
    cancelled: int = 0
    skipped: int = 0


class Tallies:
    """Changes of figures, gathered so that each row is written once."""

    def __init__(self) -> None:
        self._changes: dict[tuple[int, int], dict[str, int]] = defaultdict(lambda: dict.fromkeys(_FIGURES, 0))

    def add(self, workflow: int, node: int, figure: str, by: int) -> None:
        self._changes[workflow, node // TALLY_SIZE][figure] += by

    def write(self, tx: Transaction) -> None:
        tx.db.executemany(_TALLY, [(*by.values(), *key) for key, by in self._changes.items() if any(by.values())])


@dataclass(slots=True)
class NodeEnds:
    """NodeEnds of nodes on their way to the gates that count them."""

    counts: dict[GateName, Count] = field(default_factory=lambda: defaultdict(Count))

    def add(self, workflow: int, counts_for: Iterable[int], status: str, *, again: bool) -> None:
        """`again`: the node had ended before, and that was counted."""
        for gate in counts_for:
            count = self.counts[GateName(workflow, gate)]
            count.completed += status == "completed"
            count.cancelled += status == "cancelled"
            count.skipped += status == "skipped"
            if not again:
                count.ended += 1
                count.failed += status in ("dead", "cancelled")

    def add_gate(self, workflow: int, gate: int, state: str, failed: int) -> None:
        """A gate that counts for another one has opened or closed."""
        count = self.counts[GateName(workflow, gate)]
        if state == "opening":
            count.completed += 1
            count.ended += 1
            count.failed += failed > 0
        else:
            count.cancelled += state == "closing"
            count.skipped += state == "skipping"


def end_nodes(tx: Transaction, limit: int = RELEASE_LIMIT) -> int:
    """Count the jobs that ended in this transaction, as far as they are nodes, and move what waits for them.

    Nodes that end by it are counted in turn. Returns how many nodes moved.
    """
    moved = 0
    while tx.ended:
        seqs, tx.ended = tx.ended, []
        rows = tx.db.execute(_ENDED, (as_list(seqs),))
        if not rows:
            continue
        ends, tallies = NodeEnds(), Tallies()
        for workflow, n, gate, counts_for, again, status, state, reached in rows:
            ends.add(workflow, read_gates(counts_for), status, again=bool(again))
            tallies.add(workflow, n, status, 1)
            if gate is not None and is_waiting(n, state, reached):
                tallies.add(workflow, n, "waiting", -1)
        tallies.write(tx)
        moved += count_ends(tx, ends, limit - moved)
    return moved


def is_waiting(n: int, gate_state: str, reached: int) -> bool:
    """Whether a node waits, by the state of its gate."""
    return gate_state != "open" and (gate_state != "opening" or n > reached)


def read_gates(counts_for: str) -> list[int]:
    return [int(gate) for gate in counts_for[1:-1].split(",")] if len(counts_for) > 2 else []


def count_ends(tx: Transaction, ends: NodeEnds, limit: int) -> int:
    """Bring ends to their gates, and move up to `limit` nodes behind those that open or close by it."""
    turned: list[tuple[GateName, str]] = []
    while ends.counts:
        following = NodeEnds()
        for name, count in ends.counts.items():
            found = tx.db.execute(_GATE, name)
            if not found or found[0][4] != "waiting":
                continue
            opens, waits, failed, counts_for, _ = found[0]
            waits -= count.completed if opens == "completed" else count.ended
            failed += count.failed
            state = next_state(opens, waits, failed, count)
            tx.db.execute(_COUNT, (waits, failed, DONE.get(state, state), *name))
            if counts_for is not None and state != "waiting":
                following.add_gate(name.workflow, counts_for, state, failed)
            elif state != "waiting":
                turned.append((name, state))
        ends = following
    moved = 0
    for name, state in turned:
        moved += move_nodes(tx, name, state, limit - moved)
    return moved


def next_state(opens: str, waits: int, failed: int, count: Count) -> str:
    if opens == "completed" and count.cancelled + count.skipped:
        return "closing" if count.cancelled else "skipping"
    if waits > 0:
        return "waiting"
    return "skipping" if opens == "failed" and not failed else "opening"


def move_nodes(
    tx: Transaction, name: GateName, state: str, limit: int, *, reached: int = -1, is_going_on: bool = False
) -> int:
    """Let the nodes behind a gate go, or end them, up to `limit`. `is_going_on`: it has been moving them before."""
    limit = max(limit, 0)
    rows: list[Row] = tx.db.execute(_BEHIND, (*name, reached, limit + 1))
    now, has_more = rows[:limit], len(rows) > limit
    if has_more or is_going_on:
        tx.db.execute(_MOVED, (state if has_more else DONE[state], now[-1][0] if now else reached, *name))
    if not now:
        return 0
    listed = as_list([seq for _, seq, *_ in now])
    tx.db.execute(_UNHOLD, (listed,))
    if state == "skipping":
        tx.db.execute(_SKIP, (listed,))
    if state == "opening":
        due, later = [], []
        for _, seq, at, has_steps, was_due in now:  # also one enqueued in the future: the clock was set back since
            if was_due or at <= tx.now:
                due.append(WaitingJob(seq, tx.now, UNTRIED[has_steps]))
            else:
                later.append(WaitingJob(seq, at, UNTRIED[has_steps]))
        make_ready(tx, due)
        schedule(tx, later, failed=False, spans=False)
        tx.gave_back = tx.gave_back or bool(due)
        tallies = Tallies()
        for n, *_ in now:
            tallies.add(name.workflow, n, "waiting", -1)
        tallies.write(tx)
    else:
        finish(tx, [EndedJob(seq, "cancelled", tx.now, due_at, 0, 0, 0) for _, seq, due_at, *_ in now])
    return len(now)


@change
def advance(tx: Transaction, op: Advance) -> Advanced:
    limit = max(op.limit, 0)
    moved = 0
    for workflow, n, state, reached in tx.db.execute(_MOVING, (limit,)):
        moved += move_nodes(tx, GateName(workflow, n), state, limit - moved, reached=reached, is_going_on=True)
    return Advanced(count=moved + end_nodes(tx, limit - moved))
