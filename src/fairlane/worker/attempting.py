"""One attempt, here and now: in a child of its own, or in a test."""

from __future__ import annotations

import asyncio

from fairlane.client.app import Fairlane
from fairlane.client.context import running
from fairlane.client.guarding import around_by_caller
from fairlane.client.noting import NoteTaker
from fairlane.core.job import Lease
from fairlane.core.outcome import Outcome
from fairlane.errors import AttemptInterrupted
from fairlane.worker.prepared import PreparedTask


def run_here(app: Fairlane, lease: Lease, notes: NoteTaker | None = None) -> Outcome:
    """Run one leased attempt in this thread, an `async def` on a loop of its own, and decide how it ended; settles nothing."""
    task = PreparedTask(app, app.require_task(lease.type))
    began_s = app.clock.monotonic()
    try:
        with running(lease, notes, app.clock, began_s + task.timeout_s(lease)), around_by_caller(task.breaker):
            arguments = task.decode(lease)
            result = asyncio.run(task.function(**arguments)) if task.is_async else task.function(**arguments)
    except (Exception, AttemptInterrupted) as error:  # noqa: BLE001 - a runner: whatever a task raises becomes an outcome
        return task.raised(lease, error, app.clock.monotonic() - began_s)
    return task.returned(lease, result, app.clock.monotonic() - began_s)
