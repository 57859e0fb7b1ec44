"""A slot: one place in a lane where one attempt runs at a time, and how that attempt is told to stop."""

from __future__ import annotations

import asyncio

from fairlane.client.context import CurrentJob, Stopping as Reason
from fairlane.core.job import Lease
from fairlane.worker.board import Line


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
