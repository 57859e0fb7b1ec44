"""Lanes: slots kept for certain queues, so that urgent work never waits for slow work to end.

A slot: one place in a lane where one attempt runs at a time, and how that attempt is told to stop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from fairlane.client.context import CurrentJob, Stopping as Reason
from fairlane.core.fairness.plan import ClaimPlanner
from fairlane.core.job import Lease
from fairlane.core.names import check_queue_name
from fairlane.errors import InvalidOption
from fairlane.worker.board import Line

ANY = "*"
"""In a lane's queues: every queue this application knows."""

PREFETCH_S = 0.05
"""So much measured work a lane may hold beyond its slots."""
PREFETCH_SLOTS = 9
"""And no more jobs than this many times its slots."""
ORDER_S = 0.005
"""Whose turn it is among held jobs changes with the time that others run: the order is no older than this."""


class Lane(Struct, frozen=True):
    """So many jobs of these queues at once, taken in the order of the queues; nobody else gets the slots."""

    name: str
    slots: int
    queues: tuple[str, ...] = (ANY,)
    prompt: bool = False
    """Never claim ahead of a free slot: a job waits for a slot, not behind another one here."""

    def __post_init__(self) -> None:
        if not self.name or not 1 <= self.slots <= 10_000:
            raise InvalidOption(f'lane "{self.name}"', self.slots, "a name, and 1 to 10,000 slots")
        for queue in self.queues:
            if queue != ANY:
                check_queue_name(queue)
        if not self.queues:
            raise InvalidOption(f'queues of lane "{self.name}"', self.queues, f"queue names, or {ANY} for all")


class LaneState:
    """One lane at work in one process: the jobs it holds, who waits for one, and how busy it is."""

    def __init__(self, lane: Lane, queues: tuple[str, ...], types: tuple[str, ...]) -> None:
        self.lane, self.queues = lane, queues
        self.planner = ClaimPlanner(lane.name, queues, types)
        self._accounts = self.planner.accounts
        self.held: deque[Lease] = deque()
        """Claimed and not begun, in the order in which they will begin."""
        self._is_mixed = False
        """There are jobs of more than one line among them."""
        self._ordered_s = 0.0
        self._idle: deque[asyncio.Future[None]] = deque()
        self.trusted_until_s = 0.0
        """Until then every held job is surely still ours."""
        self.is_clogged = False
        """Held jobs waited too long for a slot: none is claimed ahead until one ends."""
        self.running = 0
        self._busy_s = 0.0
        self._since_s = 0.0
        self.empty = False
        """The last claim brought less than it asked for."""

    def room(self) -> int:
        """How many more jobs to ask for: the free slots, and what keeps them busy until the next answer comes."""
        free = self.lane.slots - self.running - len(self.held)
        job_s = self._accounts.job_s
        if self.lane.prompt or self.is_clogged or job_s <= 0.0:
            return max(free, 0)
        ahead = min(int(self.lane.slots * PREFETCH_S / job_s), PREFETCH_SLOTS * self.lane.slots)
        # Beyond the free slots at most half of it at once: one half runs while the store turns the other over.
        return max(min(free + ahead, (self.lane.slots + ahead + 1) // 2), free, 0)

    def free_slots(self) -> int:
        return max(self.lane.slots - self.running - len(self.held), 0)

    def give(self, leases: Sequence[Lease], trusted_until_s: float, now_s: float) -> None:
        """Jobs that were claimed, after the planner has learnt of them."""
        if not leases:
            return
        lines = {(lease.queue, lease.band, lease.tenant) for lease in leases}
        if self.held:
            last = self.held[-1]
            lines.add((last.queue, last.band, last.tenant))
        else:
            self.trusted_until_s, self._is_mixed = trusted_until_s, False
        self.held.extend(leases)
        self._is_mixed = self._is_mixed or len(lines) > 1
        if self._is_mixed:
            self._order(now_s)
        for _ in range(min(len(self._idle), len(self.held))):
            waiting = self._idle.popleft()
            if not waiting.done():
                waiting.set_result(None)

    async def wait(self) -> None:
        """Until a job is given, or everybody is woken to leave."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(waiting)
        await waiting

    def wake_all(self) -> None:
        while self._idle:
            waiting = self._idle.popleft()
            if not waiting.done():
                waiting.set_result(None)

    def next(self, now_s: float) -> Lease:
        """The held job whose turn it is to begin."""
        if self._is_mixed and now_s - self._ordered_s > ORDER_S:
            self._order(now_s)
        return self.held.popleft()

    def _order(self, now_s: float) -> None:
        ordered, self._ordered_s = self.planner.in_order(list(self.held), now_s), now_s
        self.held.clear()
        self.held.extend(ordered)

    def begin(self, lease: Lease, began_s: float) -> None:
        self.running += 1
        self._accounts.begin(lease.tenant, began_s)

    def give_up(self, lease: Lease) -> None:
        """A held job goes back."""
        self._accounts.release(lease.tenant)

    def end(self, lease: Lease, began_s: float, ran_s: float) -> None:
        self.running -= 1
        self._accounts.end(lease.tenant, began_s, ran_s)
        self.is_clogged = False
        self._busy_s += ran_s

    def utilisation(self, now_s: float, running_s: float) -> float:
        """The share of slot time spent running since the last call; `running_s` is what the jobs running now have spent."""
        span = (now_s - self._since_s) * self.lane.slots
        share = min((self._busy_s + running_s) / span, 1.0) if self._since_s and span > 0 else 0.0
        self._busy_s, self._since_s = -running_s, now_s
        return max(share, 0.0)


class Slot:
    """What runs here now. Its task awaits the attempt itself: cancelling it stops the attempt where it waits."""

    __slots__ = (
        "asked_at_s",
        "began_s",
        "job",
        "lease",
        "line",
        "reported",
        "stopping",
        "task",
        "threaded",
        "timeout_s",
        "waits",
    )

    def __init__(self, line: Line | None = None) -> None:
        self.line = line
        """Where a foreman sees what runs here."""
        self.task: asyncio.Task[None] | None = None
        self.lease: Lease | None = None
        self.job: CurrentJob | None = None
        """What the attempt's own code sees of it, and learns from that it should stop."""
        self.began_s = 0.0
        self.timeout_s = 0.0
        self.stopping: Reason | None = None
        self.asked_at_s = 0.0
        self.reported = True
        """The store knows that this attempt has begun."""
        self.threaded = False
        """Runs in a thread: asking it to stop frees nothing."""
        self.waits = False
        """For a process of its own: nothing has run yet."""

    def begin(self, lease: Lease, began_s: float, timeout_s: float) -> None:
        self.lease, self.began_s, self.timeout_s = lease, began_s, timeout_s
        self.stopping, self.reported, self.threaded, self.waits = None, lease.started, False, False
        if self.line is not None:
            self.line.begin(lease.seq, lease.attempt, began_s, timeout_s)

    def stop(self, reason: Reason, now_s: float) -> None:
        """Ask the attempt to stop, once; a lost lease outranks what was asked before."""
        if self.lease is None or self.task is None or (self.stopping is not None and reason != "lease_lost"):
            return
        first, self.stopping = self.stopping is None, reason
        if self.job is not None:
            self.job.stopping = reason
        if first:
            self.asked_at_s = now_s
            # Delivered where the attempt waits, at its next step: the task is suspended inside it whenever other code runs.
            self.task.cancel()

    def end(self) -> None:
        self.lease = self.job = None
        if self.line is not None:
            self.line.end()
        if self.stopping is not None and self.task is not None:
            self.task.uncancel()
