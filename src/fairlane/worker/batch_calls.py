"""Gathers the jobs of batch tasks and lets one call of the function run them.

    held ──▶ gathering ──full, or waited `within`──▶ ready ──▶ the call, in one slot ──▶ an outcome for each job
                 └─────────cancelled, lost, or the worker leaves: that job alone────────────────▲

Gathering takes no slot: the slots go on claiming and running. Each job keeps its lease, and is cancelled, lost and
settled on its own; the call is stopped only when all its jobs are to stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fairlane.client.context import Stopping
from fairlane.core.job import Lease
from fairlane.worker.board import BoardLine
from fairlane.worker.lanes import LaneState, Slot

if TYPE_CHECKING:
    from fairlane.worker.attempts import PreparedTask
    from fairlane.worker.state import WorkerState

MOST_LINES = 4096
"""Jobs of calls that the foreman is shown at once; beyond it a crash does not count against a job."""

MARGIN_S = 5.0
"""A call begins at least this long before the lease of a job ends that the store does not know as begun."""

Key = tuple[str, str, float]
"""Task, tenant and timeout: what the jobs of one call have in common."""


class BatchMember(Slot):
    """One job of a call: what a slot is to a job that runs by itself."""

    __slots__ = ("call", "result")

    def __init__(self, call: BatchCall) -> None:
        super().__init__()
        self.call = call
        self.result: object = None

    @property
    def width(self) -> int:
        return len(self.call.members)

    def stop(self, reason: Stopping) -> None:
        """A job that is gathered leaves at once. In the call it is told, and the call stops with its last job."""
        if self.lease is None or (self.stopping is not None and reason != "lease_lost"):
            return
        self.stopping = reason
        if not self.call.leases:
            self.call.gatherer.leave(self, reason)
            return
        if self.job is not None:
            self.job.stopping = reason
        self.call.stop_if_unwanted()

    def end(self) -> None:
        self.lease = self.job = None
        if self.line is not None:
            self.line.end()
        self.call.unstop()


class BatchCall:
    """Jobs that are gathered, and then run in one call."""

    def __init__(self, gatherer: BatchGatherer, task: PreparedTask, key: Key) -> None:
        self.gatherer, self.task, self.key = gatherer, task, key
        self.members: list[BatchMember] = []
        self.due: asyncio.TimerHandle | None = None
        self.ready_s: float | None = None
        """Since when it waits for a slot."""
        self.runs_in: asyncio.Task[None] | None = None
        """None: it has not begun, or waits for its breaker."""
        self.leases: list[Lease] = []
        """Of its jobs, once it has begun."""
        self.is_stopped = False

    @property
    def is_unwanted(self) -> bool:
        """All its jobs are to stop."""
        return all(member.stopping is not None for member in self.members if member.lease is not None)

    def stop_if_unwanted(self) -> None:
        """Interrupt the call if none of its jobs wants it any more."""
        if self.runs_in is not None and not self.is_stopped and self.is_unwanted:
            self.is_stopped = True
            self.runs_in.cancel()

    def unstop(self) -> None:
        """Consume the cancellation of a call that has ended."""
        if self.is_stopped and self.runs_in is not None:
            self.is_stopped = False
            self.runs_in.uncancel()

    def give_back(self) -> None:
        """Release the jobs of a call that has not begun."""
        for member in tuple(self.members):
            member.stop("shutdown")
        self.gatherer.forget(self)


class BatchGatherer:
    """Gathers for one lane."""

    def __init__(self, state: WorkerState, lane: LaneState, lines: list[BoardLine]) -> None:
        self._state, self._lane, self._lines = state, lane, lines
        self._most = lane.config.slots * largest_batch(state.tasks.values())
        """As many as the slots could run at once: beyond it the oldest call waits no longer."""

    def add(self, task: PreparedTask, lease: Lease, now_s: float) -> None:
        """Let a job that a slot has taken wait for others of its kind."""
        assert task.batch is not None
        state, lane, key = self._state, self._lane, (lease.type, lease.tenant, task.timeout_s(lease))
        call = None if lease.suspect else lane.gathering.get(key)
        if call is None:
            call = BatchCall(self, task, key)
        member = BatchMember(call)
        member.begin(lease, now_s, key[2])
        member.wait()
        call.members.append(member)
        state.slots.append(member)
        lane.gathered += 1
        state.kick.set()  # its slot is free again
        if lease.suspect or len(call.members) >= task.batch.size or state.stopping:
            self._close(call)
        elif call.due is None:
            lane.gathering[key] = call
            call.due = asyncio.get_running_loop().call_later(min(task.batch.within_s, key[2] / 2), self._close, call)
        if lane.gathered >= self._most and lane.gathering:
            self._close(next(iter(lane.gathering.values())))

    def begin(self, call: BatchCall, now_s: float) -> list[Lease]:
        """Start the clocks of the jobs that are still there, and show them on the board."""
        for member in tuple(call.members):
            lease = member.lease
            if lease is not None and not member.reported and self._state.left_s(lease, now_s) < MARGIN_S:
                member.stop("shutdown")  # it waited too long for a slot: it may belong to another worker soon
        call.leases = [member.lease for member in call.members if member.lease is not None]
        for member, lease in zip(call.members, call.leases, strict=True):
            member.line = self._lines.pop() if self._lines else None
            member.begin(lease, now_s, member.timeout_s)
        return call.leases

    def forget(self, call: BatchCall) -> None:
        """Its jobs have ended, or were given back."""
        if call.due is not None:
            call.due.cancel()
        for member in call.members:
            member.end()
            if member.line is not None:
                self._lines.append(member.line)
        self._state.slots[:] = [slot for slot in self._state.slots if getattr(slot, "call", None) is not call]

    def leave(self, member: BatchMember, reason: Stopping) -> None:
        """A job leaves before its call begins; one that is to be cancelled ends so when it is released."""
        lease, member.lease = member.lease, None
        assert lease is not None
        member.call.members.remove(member)
        self._lane.gathered -= 1
        if reason == "lease_lost":
            self._lane.release(lease)
        else:
            self._state.release(self._lane, lease)
        self._state.kick.set()

    def _close(self, call: BatchCall) -> None:
        """No more jobs join it; the next free slot runs it."""
        if call.due is not None:
            call.due.cancel()
        if self._lane.gathering.get(call.key) is call:
            del self._lane.gathering[call.key]
        call.ready_s = self._state.monotonic()
        self._lane.add_call(call)


def largest_batch(tasks: Iterable[PreparedTask]) -> int:
    """How many jobs a call of these tasks may take; 0: each runs its jobs one by one."""
    return max((task.batch.size for task in tasks if task.batch is not None), default=0)
