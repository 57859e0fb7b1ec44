"""Runs due jobs here and now, without a worker.

There are no timeouts, no renewals and no second thread. What is shared with a worker is what decides: the claim, the
check of the payload, the current job, its hooks, and how an attempt ends.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from fairlane.client.app import Fairlane
from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import ALL_TENANTS, Advance, Deliver, GetStats, Renew, Retire, Take, Turn, Want
from fairlane.core.outcome import Outcome
from fairlane.errors import InvalidOption
from fairlane.worker.attempts import AttemptStore, record_failure
from fairlane.worker.direct_runs import DirectRun, arun_call_directly, run_call_directly, run_directly

LANE = "run_due"
LEASE_S = 3600.0


class Ran(NamedTuple):
    """One attempt that was run, and how it ended."""

    lease: Lease
    outcome: Outcome
    error: BaseException | None = None
    """What it raised."""


def run_due(app: Fairlane, limit: int = 1000, *, queues: tuple[str, ...] | None = None) -> tuple[Ran, ...]:
    """Run jobs that are due, one after the other, until there is none left or `limit` have run.

    Takes the jobs of every task registered with `app`, by default from every queue that has any. A job it enqueues
    while running is run too, and nodes of workflows that it lets go, however many. A batch task gets those that are due
    in one call, up to its `batch`. A job that waits for its retry, or for room under a limit, is left until the store's
    clock reaches it. In async code use `arun_due`.
    """
    runs = _due(app, limit, queues)
    try:
        leases, steps = next(runs)
        while True:
            leases, steps = runs.send(run_call_directly(app, leases, steps=steps))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        runs.close()


async def arun_due(app: Fairlane, limit: int = 1000, *, queues: tuple[str, ...] | None = None) -> tuple[Ran, ...]:
    """The same on the running loop: `async def` tasks run on it, plain functions in a thread."""
    runs = _due(app, limit, queues)
    try:
        leases, steps = next(runs)
        while True:
            leases, steps = runs.send(await arun_call_directly(app, leases, steps))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        runs.close()


def run_attempt(app: Fairlane, lease: Lease) -> Outcome:
    """Run one leased attempt in this thread and decide how it ended; settles nothing."""
    ran = run_directly(app, lease)
    record_failure(app, lease, ran.outcome)
    return ran.outcome


def _due(
    app: Fairlane, limit: int, queues: tuple[str, ...] | None
) -> Generator[tuple[list[Lease], AttemptStore], list[DirectRun], tuple[Ran, ...]]:
    """Yields the leases of each call, and where its steps are recorded; is sent how they ended."""
    if limit < 1:
        raise InvalidOption("limit", limit, "a whole number from 1 on")
    worker = WorkerId(app.runtime.new_job_id())
    types, steps = tuple(sorted(app.tasks)), AttemptStore(app, worker)
    app.runtime.store.run(Renew(worker=worker, lease_s=LEASE_S, name=LANE, queues=queues or (), types=types))
    ran: list[Ran] = []
    settled: list[Outcome] = []
    claim_no = 0

    def claimed(*wants: Want) -> tuple[Lease, ...]:
        nonlocal claim_no
        claim_no += 1
        outcomes, limits = tuple(settled), app.limits.declared
        settled.clear()
        turn = Turn(worker=worker, claim_no=claim_no, outcomes=outcomes, wants=wants, limits=limits)
        return app.runtime.store.run(turn).leases

    try:
        while len(ran) < limit:
            lanes = queues if queues is not None else _queues_with_work(app)
            has_settled = bool(settled)
            leases = claimed(*(Want(lane=LANE, queues=lanes, limit=1, start=1, types=types),) if lanes else ())
            if not leases:
                # What was settled just now may have let nodes go into queues that had nothing before.
                if not has_settled and not _moved_on(app):
                    break
                continue
            first, batch = leases[0], app.tasks[leases[0].type].definition.batch
            if batch is not None and (more := min(batch.size, limit - len(ran)) - 1):
                line = Take(queue=first.queue, band=first.band, tenant=first.tenant, limit=more)
                names = (first.queue,)
                want = Want(
                    lane=LANE, queues=names, limit=more, start=more, types=(first.type,), takes=(line,), discover=False
                )
                leases += claimed(want)
            for lease, run in zip(leases, (yield list(leases), steps), strict=True):
                record_failure(app, lease, run.outcome)
                ran.append(Ran(lease, run.outcome, run.error))
                settled.append(run.outcome)
        if settled:
            claimed()
    finally:
        app.runtime.store.run(Retire(worker=worker))
    return tuple(ran)


def _moved_on(app: Fairlane) -> bool:
    """Do what the duties of a worker do: release nodes and deliver signals that one commit had no room for."""
    store = app.runtime.store
    return store.run(Advance()).count + store.run(Deliver()).count > 0


def _queues_with_work(app: Fairlane) -> tuple[str, ...]:
    return tuple(queue.queue for queue in app.runtime.store.run(GetStats(scope=ALL_TENANTS, cap=1)).queues)
