"""Lanes: slots reserved for certain queues, so that urgent work never waits for slow work to end.

A slot runs one attempt at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairlane.client.context import CurrentJob, Stopping as Reason
from fairlane.core.fairness.plan import ClaimPlanner
from fairlane.core.job import Lease
from fairlane.core.ops.turn import START_BY_S
from fairlane.core.profiles import Lane
from fairlane.worker.board import BoardLine

if TYPE_CHECKING:
    from fairlane.worker.batch_calls import BatchCall

PREFETCH_S = 0.05
"""A lane holds at most this much measured work beyond its slots."""
PREFETCH_SLOTS, PREFETCH_JOBS = 9, 400
"""And at most this many times as many jobs as it has slots; after as many short jobs in a row up to this many: Turns
for a few jobs each cost a lane of few slots more than the jobs."""
REPORT_START_S = 0.1
"""An attempt still running after this is reported as begun; a shorter one costs no write of its own."""
KEEP_WAITING_S = START_BY_S / 2
"""One that waits for a process, or for others of its batch, is kept by reporting it, too, before its lease ends."""
ORDER_S = 0.005
"""The order of held jobs depends on how long others have run: it is recomputed after this long."""


class LaneState:
    """One lane in one process: the jobs it holds, the slots that wait for one, and how busy it is."""

    def __init__(self, config: Lane, queues: tuple[str, ...], types: tuple[str, ...]) -> None:
        self.config, self.queues = config, queues
        self.planner = ClaimPlanner(config.name, queues, types)
        self._accounts = self.planner.accounts
        self.held: deque[Lease] = deque()
        """Claimed and not begun, in the order in which they begin."""
        self._is_mixed = False
        """The held jobs come from more than one line (queue, band, tenant)."""
        self._ordered_s = 0.0
        self._idle: deque[asyncio.Future[None]] = deque()
        self.trusted_until_s = 0.0
        """Until then every held job is surely still leased to us."""
        self.is_clogged = False
        """Held jobs waited too long for a slot: nothing is prefetched until one ends."""
        self._short_jobs = 0
        """How many have ended since one took longer than what may be prefetched, or made others wait."""
        self.gathering: dict[object, BatchCall] = {}
        self.calls: deque[BatchCall] = deque()
        """Batch calls that wait for a slot."""
        self.gathered = 0
        """Jobs of batch calls that have not begun."""
        self.running = 0
        self._busy_s = 0.0
        self._since_s = 0.0
        self.empty = False
        """The last claim returned less than it asked for, or only took again the places that it had freed."""
        self.rests_until_s = 0.0
        """Until then a claim that took freed places again is not followed by one for the other slots."""

    def room(self) -> int:
        """How many more jobs to claim: for the free slots, and to keep them busy until the next answer."""
        free = self.config.slots - self.running - len(self.held) - len(self.calls)
        job_s = self._accounts.job_s
        if self.config.prompt or self.is_clogged or job_s <= 0.0:
            return max(free, 0)
        most = max(PREFETCH_SLOTS * self.config.slots, min(self._short_jobs, PREFETCH_JOBS))
        ahead = min(int(self.config.slots * PREFETCH_S / job_s), most)
        # Beyond the free slots at most half of it at once: one half runs while the store settles and claims the other.
        return max(min(free + ahead, (self.config.slots + ahead + 1) // 2), free, 0)

    def free_slots(self) -> int:
        return max(self.config.slots - self.running - len(self.held) - len(self.calls), 0)

    def give(self, leases: Sequence[Lease], trusted_until_s: float, now_s: float) -> None:
        """Add claimed jobs, after the planner has learnt of them."""
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
        self._wake(len(self.held))

    async def wait(self) -> None:
        """Until a job is given, or all slots are woken to end."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(waiting)
        await waiting

    def wake_all(self) -> None:
        self._wake(len(self._idle))

    def _wake(self, count: int) -> None:
        while self._idle and count > 0:
            waiting = self._idle.popleft()
            if not waiting.done():  # else its slot was cancelled while it waited, and wakes nobody
                waiting.set_result(None)
                count -= 1

    def next(self, now_s: float) -> Lease:
        """The held job that begins next."""
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

    def release(self, lease: Lease) -> None:
        """Forget a held job that goes back to the store."""
        self._accounts.release(lease.tenant)

    def end(self, lease: Lease, began_s: float, ran_s: float) -> None:
        self.running -= 1
        self._accounts.end(lease.tenant, began_s, ran_s)
        self._short_jobs = 0 if ran_s > PREFETCH_S or self.is_clogged else self._short_jobs + 1
        self.is_clogged = False
        self._busy_s += ran_s

    def add_call(self, call: BatchCall) -> None:
        """Let the next free slot run a batch call."""
        self.calls.append(call)
        self._wake(1)

    def give_back_gathered(self) -> None:
        """Release the jobs of batch calls that have not begun."""
        calls = [*self.gathering.values(), *self.calls]
        self.gathering.clear()
        self.calls.clear()
        for call in calls:
            call.give_back()

    def begin_call(self, leases: Sequence[Lease], began_s: float) -> None:
        """Jobs of one tenant begin in one slot: the first stands for them until they end."""
        self.gathered -= len(leases)
        self.begin(leases[0], began_s)

    def end_call(self, leases: Sequence[Lease], began_s: float, ran_s: float) -> None:
        """Each of them has had its part of the time."""
        part_s = ran_s / len(leases)
        self.end(leases[0], began_s, part_s)
        for lease in leases[1:]:
            self.begin(lease, began_s)
            self.end(lease, began_s, part_s)

    def utilisation(self, now_s: float, running_s: float) -> float:
        """The share of slot time spent running since the last call; `running_s`: run time of the jobs running now."""
        span = (now_s - self._since_s) * self.config.slots
        share = min((self._busy_s + running_s) / span, 1.0) if self._since_s and span > 0 else 0.0
        self._busy_s, self._since_s = -running_s, now_s
        return max(share, 0.0)


class Slot:
    """What runs here now. Its task awaits the attempt itself: cancelling the task stops the attempt at its `await`."""

    __slots__ = (
        "began_s",
        "error",
        "job",
        "lease",
        "line",
        "reported",
        "stopping",
        "task",
        "timeout_s",
        "unsettled",
        "waits",
    )

    def __init__(self, line: BoardLine | None = None) -> None:
        self.line = line
        """Shows the foreman what runs here."""
        self.task: asyncio.Task[None] | None = None
        self.lease: Lease | None = None
        self.job: CurrentJob | None = None
        """The attempt's own view of its job, from which it also learns that it should stop."""
        self.error: BaseException | None = None
        """What the attempt that has failed here raised, until that is logged."""
        self.began_s = 0.0
        self.timeout_s = 0.0
        self.stopping: Reason | None = None
        self.reported = True
        """The store knows that this attempt has begun, and its deadline."""
        self.waits = False
        """Waits for a process of its own, or for others of its batch: nothing has run yet."""
        self.unsettled: Lease | BatchCall | None = None
        """Begun here, and not yet handed over with its outcome."""

    @property
    def width(self) -> int:
        """How many jobs run in this place of the lane."""
        return 1

    @property
    def report_at_s(self) -> float:
        """When the attempt is to be reported as begun."""
        if self.reported:
            return float("inf")
        return self.began_s + (KEEP_WAITING_S if self.waits else REPORT_START_S)

    def begin(self, lease: Lease, began_s: float, timeout_s: float) -> None:
        self.lease, self.began_s, self.timeout_s = lease, began_s, timeout_s
        self.stopping, self.reported, self.waits = None, False, False
        if self.line is not None:
            self.line.begin(lease, began_s, timeout_s)

    def wait(self) -> None:
        """The attempt waits until it can begin: nobody takes it for one that runs."""
        self.waits = True
        if self.line is not None:
            self.line.end()

    def stop(self, reason: Reason) -> None:
        """Ask the attempt to stop, once; a lost lease outranks what was asked before."""
        if self.lease is None or self.task is None or (self.stopping is not None and reason != "lease_lost"):
            return
        first, self.stopping = self.stopping is None, reason
        if self.job is not None:
            self.job.stopping = reason
        if first:
            # Raised at the `await` the attempt is suspended in, at its next step.
            self.task.cancel()

    def end(self) -> None:
        self.lease = self.job = None
        if self.line is not None:
            self.line.end()
        if self.stopping is not None and self.task is not None:
            self.task.uncancel()
