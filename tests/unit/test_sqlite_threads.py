"""Many threads on one memory store: every job has one owner at a time, and none is lost."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from msgspec import Raw

from fairlane.core.chance import SystemChance
from fairlane.core.ids import JobId, WorkerId, uuid7
from fairlane.core.job import JobSpec
from fairlane.core.ops import ALL_TENANTS, Enqueue, GetStats, Renew, Retire, Turn, Want
from fairlane.core.outcome import Completed, Outcome, Released
from fairlane.stores.sqlite import MemoryStore

THREADS = 6
CHANCE = SystemChance()


def new_id() -> JobId:
    return JobId(uuid7(1, CHANCE.entropy(10)))


def jobs(count: int, tenant: str, key: str | None = None) -> tuple[JobSpec, ...]:
    return tuple(
        JobSpec(id=new_id(), type="t", payload=Raw(b"{}"), tenant=tenant, idempotency_key=key and f"{key}-{n}")
        for n in range(count)
    )


def work(store: MemoryStore, gate: Barrier, total: int) -> list[tuple[int, int]]:
    """Claim, give back every third job once, complete the rest, until all jobs are completed."""
    worker = WorkerId(new_id())
    store.run(Renew(worker=worker, lease_s=600))
    gate.wait()
    completed: list[tuple[int, int]] = []
    outcomes: tuple[Outcome, ...] = ()
    claim_no = 0
    while True:
        claim_no += 1
        want = Want(lane="general", queues=("default",), limit=7, start=7)
        turn = store.run(Turn(worker=worker, claim_no=claim_no, outcomes=outcomes, wants=(want,)))
        assert turn.refused == ()
        outcomes = tuple(
            Released(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no)
            if lease.seq % 3 == 0 and lease.attempt == 1
            else Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, ran_s=0.0)
            for lease in turn.leases
        )
        completed += [(outcome.seq, outcome.attempt) for outcome in outcomes if isinstance(outcome, Completed)]
        if not outcomes and store.run(GetStats(scope=ALL_TENANTS)).completed == total:
            return completed


@pytest.mark.requirement("W5")
@pytest.mark.timeout(60)
def test_threads_that_claim_at_once_share_the_jobs_without_one_run_twice() -> None:
    store, gate, per_thread = MemoryStore(), Barrier(2 * THREADS), 100

    def put(nth: int) -> None:
        gate.wait()
        for _ in range(per_thread // 10):
            store.run(Enqueue(jobs=jobs(10, f"tenant-{nth}")))

    with ThreadPoolExecutor(2 * THREADS) as pool:
        putting = [pool.submit(put, nth) for nth in range(THREADS)]
        working = [pool.submit(work, store, gate, THREADS * per_thread) for _ in range(THREADS)]
        for done in putting:
            done.result()
        completed = Counter(seq for done in working for seq, _ in done.result())
    assert set(completed) == set(range(1, THREADS * per_thread + 1))
    assert set(completed.values()) == {1}


@pytest.mark.requirement("W6")
def test_threads_that_enqueue_the_same_keys_at_once_make_one_job_of_each() -> None:
    store, gate = MemoryStore(), Barrier(THREADS)

    def put(_: int) -> list[str]:
        gate.wait()
        receipts = [store.run(Enqueue(jobs=(job,))).receipts[0] for job in jobs(100, "acme", key="order")]
        return [receipt.disposition for receipt in receipts]

    with ThreadPoolExecutor(THREADS) as pool:
        dispositions = Counter(one for many in pool.map(put, range(THREADS)) for one in many)
    assert dispositions == {"created": 100, "duplicate": 100 * (THREADS - 1)}


def test_a_worker_that_retires_while_others_claim_loses_none_of_its_jobs() -> None:
    store, gate = MemoryStore(), Barrier(THREADS)
    store.run(Enqueue(jobs=jobs(200, "acme")))

    def claim_and_leave(_: int) -> None:
        gate.wait()
        for _ in range(20):
            worker = WorkerId(new_id())
            store.run(Renew(worker=worker))
            want = Want(lane="general", queues=("default",), limit=20)
            store.run(Turn(worker=worker, claim_no=1, wants=(want,)))
            store.run(Retire(worker=worker))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(claim_and_leave, range(THREADS)))
    [queue] = store.run(GetStats(scope=ALL_TENANTS)).queues
    assert (queue.ready, queue.pending, queue.processing) == (200, 200, 0)
