"""What racers do under limits: each claims what it may, and tells how many it ever saw running at once."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from fairlane.core.ids import WorkerId
from fairlane.core.job_keys import JobKey
from fairlane.core.limits import Limit
from fairlane.core.ops import ALL_TENANTS, Enqueue, GetStats, Renew, TakeTokens, Turn
from fairlane.stores.base import Store
from fairlane.testing.conformance.samples import Making, completed
from fairlane.testing.conformance.scene import wanting


def claim_under_limits(store: Store, number: int, *, limits: list[dict[str, Any]], jobs: int) -> Any:
    """Claim and complete until all jobs are done; some racers know the limits, the others find them kept."""
    given = msgspec.convert(limits, tuple[Limit, ...]) if number % 2 == 0 else ()
    worker, claim_no, most, claimed, outcomes = WorkerId(Making(9000 + number).worker_id()), 0, 0, 0, ()
    store.run(Renew(worker=worker, lease_s=600))
    while True:
        claim_no += 1
        result = store.run(
            Turn(
                worker=worker,
                claim_no=claim_no,
                wants=(wanting(number % 3 + 1),),
                limits=given,
                outcomes=tuple(outcomes),
            )
        )
        claimed += len(result.leases)
        stats = store.run(GetStats(scope=ALL_TENANTS))
        most = max(most, sum(queue.processing for queue in stats.queues))
        if stats.completed >= jobs:
            return {"most": most, "claimed": claimed}
        outcomes = [completed(lease) for lease in result.leases]


def claim_at_a_rate(store: Store, number: int, *, limits: list[dict[str, Any]], turns: int) -> Any:
    """Claim again and again; tells how many were given."""
    given = msgspec.convert(limits, tuple[Limit, ...])
    worker = WorkerId(Making(9500 + number).worker_id())
    store.run(Renew(worker=worker, lease_s=600))
    results = [
        store.run(Turn(worker=worker, claim_no=nth, wants=(wanting(2),), limits=given)) for nth in range(1, turns + 1)
    ]
    return sum(len(result.leases) for result in results)


def take_all_tokens(store: Store, number: int, *, limits: list[dict[str, Any]], tries: int) -> Any:
    """Take tokens one after the other; tells how many were granted."""
    given = msgspec.convert(limits, tuple[Limit, ...])
    return sum(store.run(TakeTokens(counts={"acme": 1}, limits=given)).granted for _ in range(tries))


def run_with_keys(store: Store, number: int, *, keys: list[dict[str, Any]], each: int, jobs: int) -> Any:
    """Enqueue `each` jobs for each key and run whatever comes until all `jobs` are done.

    Tells of each: its tenant, its number, its key, and from when until when it surely ran here.
    """
    making, ran = Making(9700 + number), []
    worker, claim_no, running = WorkerId(making.worker_id()), 0, []
    given = [msgspec.convert(one, JobKey) for one in keys]
    store.run(Renew(worker=worker, lease_s=600))
    for nth in range(each):
        key = given[(number + nth) % len(given)]
        store.run(
            Enqueue(jobs=tuple(making.job(key=key, tenant=f"t{nth % 2}", correlation_id=key.value) for _ in "ab"))
        )
        claim_no, running = _run_some(store, worker, claim_no, running, ran, number)
    while len(running) or store.run(GetStats(scope=ALL_TENANTS)).completed < jobs:
        claim_no, running = _run_some(store, worker, claim_no, running, ran, number)
    return ran


def _run_some(store, worker, claim_no, running, ran, number):
    ended_s = time.monotonic()
    ran += [[lease.tenant, lease.seq, lease.correlation_id, began_s, ended_s] for lease, began_s in running]
    outcomes = tuple(completed(lease) for lease, _ in running)
    wants = (wanting(number % 3 + 1),)
    result = store.run(Turn(worker=worker, claim_no=claim_no + 1, wants=wants, outcomes=outcomes))
    assert not result.refused
    return claim_no + 1, [(lease, time.monotonic()) for lease in result.leases]


LIMITING = {story.__name__: story for story in (claim_under_limits, claim_at_a_rate, take_all_tokens, run_with_keys)}
