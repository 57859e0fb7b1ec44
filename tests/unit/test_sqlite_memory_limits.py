"""Limits on the store in memory: whom their changes wake, and that threads never overshoot them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock

import pytest

from fairlane.core import ops
from fairlane.core.ids import WorkerId
from fairlane.core.outcome import Completed, Outcome
from fairlane.errors import StoreRefused
from fairlane.stores.sqlite import MemoryStore
from fairlane.stores.sqlite.memory import MemoryListener
from fairlane.testing.conformance.limits import clear_limit, queue, rate, set_limit, task, tenant, unhold
from fairlane.testing.conformance.samples import completed, released
from fairlane.testing.conformance.scene import Scene, wanting


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def scene(store: MemoryStore) -> Scene:
    return Scene(store)


def sleeper(store: MemoryStore, scene: Scene) -> MemoryListener:
    """The listener of a worker that waits and has heard nothing yet."""
    worker = scene.making.worker_id()
    listener = store.listener(worker)
    scene.run(ops.Renew(worker=worker, lease_s=6000, wake_address=listener.address))
    scene.turn(worker, waiting=True)
    assert not listener.wait(0.0)
    return listener


def test_the_end_of_a_lease_under_a_running_limit_wakes_waiting_workers(store: MemoryStore, scene: Scene) -> None:
    scene.put_many(2)
    busy = scene.hire()
    [lease] = scene.claim(busy, 2, limits=(queue(running=1),))
    listener = sleeper(store, scene)
    scene.settle(busy, completed(lease))
    assert listener.wait(0.0)


def test_it_wakes_them_too_where_the_turn_that_ends_it_knows_only_other_limits(
    store: MemoryStore, scene: Scene
) -> None:
    set_limit(scene, queue("bulk", running=5))
    scene.put_many(2)
    busy = scene.hire()
    [lease] = scene.claim(busy, 2, limits=(queue(running=1),))
    listener = sleeper(store, scene)
    scene.settle(busy, completed(lease))
    assert listener.wait(0.0)


@pytest.mark.parametrize("how", ["retire", "lapse", "bury"])
def test_however_a_limited_lease_ends_waiting_workers_are_woken(store: MemoryStore, scene: Scene, how: str) -> None:
    scene.put_many(2)
    busy = scene.hire()
    [lease] = scene.claim(busy, limits=(queue(running=1),))
    listener = sleeper(store, scene)
    if how == "retire":
        scene.retire(busy)
    elif how == "lapse":
        scene.later(60)
        scene.run(ops.Reclaim())
    else:
        scene.run(ops.Bury(scope=ops.ALL_TENANTS, id=lease.id, by="ada", reason="enough"))
    assert listener.wait(0.0)


def test_a_lease_that_came_under_a_limit_later_wakes_waiting_workers_too(store: MemoryStore, scene: Scene) -> None:
    scene.put_many(3, tenant="acme")
    busy = scene.hire()
    first, _ = scene.claim(busy, 2)
    set_limit(scene, tenant("*", running=1))
    listener = sleeper(store, scene)
    scene.settle(busy, completed(first))
    assert listener.wait(0.0)
    clear_limit(scene, tenant("*"))
    assert listener.wait(0.0)


def test_the_end_of_a_lease_that_no_limit_counts_wakes_nobody(store: MemoryStore, scene: Scene) -> None:
    scene.put()
    busy = scene.hire()
    [lease] = scene.claim(busy, limits=(queue(rate=rate(5)), task("other", running=1)))
    listener = sleeper(store, scene)
    scene.settle(busy, completed(lease))
    assert not listener.wait(0.0)


def test_setting_and_clearing_a_limit_wakes_waiting_workers_when_it_changes_anything(
    store: MemoryStore, scene: Scene
) -> None:
    scene.put()
    listener, limit = sleeper(store, scene), queue(running=3)
    for change, woken in ((set_limit, True), (set_limit, False), (clear_limit, True), (clear_limit, False)):
        change(scene, limit)
        assert listener.wait(0.0) is woken


def test_jobs_let_go_wake_waiting_workers_when_they_are_due(store: MemoryStore, scene: Scene) -> None:
    none = tenant(waiting=0, when_full="hold")
    scene.enqueue(scene.job(tenant="acme", delay_s=60.0), limits=(none,))
    listener = sleeper(store, scene)
    assert unhold(scene) == 1
    assert not listener.wait(0.0)
    scene.enqueue(scene.job(tenant="acme"), limits=(none,))
    listener.wait(0.0)
    assert unhold(scene) == 1
    assert listener.wait(0.0)


@pytest.mark.requirement("I2")
def test_counting_that_begins_in_the_middle_finds_the_leases_that_are_there(scene: Scene) -> None:
    scene.put_many(6)
    first, second = scene.hire(6000), scene.hire(6000)
    held = scene.claim(first, 3)
    assert len(scene.claim(second, 9, limits=(task(running=4),))) == 1
    scene.claim(first, 1)
    assert scene.claim(second, 9, limits=(task(running=4),)) == ()
    scene.settle(first, *map(completed, held))
    assert len(scene.claim(second, 9, limits=(task(running=4),))) == 1


@pytest.mark.requirement("I2")
def test_a_queue_of_one_saturated_tenant_is_passed_without_being_looked_at(scene: Scene) -> None:
    scene.put_many(2_000, tenant="acme")
    free = scene.put(tenant="bolt")
    worker = scene.hire()
    turn = scene.turn(worker, wanting(9), limits=(tenant("acme", running=0),))
    assert [lease.id for lease in turn.leases] == [free.id]
    assert [mark.tenant for mark in turn.marks] == ["bolt"]


@pytest.mark.requirement("I2")
@pytest.mark.timeout(60)
def test_threads_that_claim_at_once_never_hold_more_than_the_limit(store: MemoryStore, scene: Scene) -> None:
    threads, total, most, limits = 6, 600, 3, (queue(running=3),)
    scene.put_many(total)
    gate, seen, settled, lock = Barrier(threads), [0], [0], Lock()

    def work(worker: WorkerId) -> None:
        outcomes: tuple[Outcome, ...] = ()
        gate.wait()
        for claim_no in range(1, 100_000):
            turn = store.run(
                ops.Turn(worker=worker, claim_no=claim_no, outcomes=outcomes, wants=(wanting(2),), limits=limits)
            )
            running = sum(record.leases for record in store.run(ops.ListWorkers()).workers)
            outcomes = tuple(
                Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, ran_s=0.0)
                for lease in turn.leases
            )
            with lock:
                seen[0], settled[0] = max(seen[0], running), settled[0] + len(outcomes)
                if settled[0] == total and not outcomes:
                    return

    workers = [scene.making.worker_id() for _ in range(threads)]
    for worker in workers:
        store.run(ops.Renew(worker=worker, lease_s=600))
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, worker) for worker in workers]:
            done.result()
    assert seen[0] <= most
    assert store.run(ops.GetStats(scope=ops.ALL_TENANTS)).completed == total


def test_the_same_limits_given_again_in_another_tuple_are_the_same(scene: Scene) -> None:
    scene.put_many(3)
    worker = scene.hire()
    got = [len(scene.claim(worker, 9, limits=(queue(running=most),))) for most in (1, 1, 2, 1, 3) * 10]
    assert got[:5] == [1, 0, 1, 0, 1]
    assert sum(got) == 3


def test_a_purge_forgets_limits_tenants_counts_and_held_jobs(scene: Scene) -> None:
    scene.enqueue(*(scene.job(tenant="acme") for _ in range(3)), limits=(tenant(waiting=1, when_full="hold"),))
    set_limit(scene, queue(running=1, rate=rate(1)))
    scene.run(ops.SetTenant(name="acme", weight=3.0, by="ada"))
    [lease] = scene.prefetch(scene.hire(), 9)
    scene.run(ops.Purge())
    assert scene.run(ops.ListLimits()).limits == ()
    assert scene.run(ops.ReadWeights()).weights == {}
    assert scene.run(ops.Unhold()).count == 0
    assert scene.run(ops.AddTenants()).added == 0
    scene.put_many(3)
    worker = scene.hire()
    assert len(scene.claim(worker, 9, limits=(queue(running=2, rate=rate(2)),))) == 2
    assert [refusal.seq for refusal in scene.settle(worker, released(lease)).refused] == [lease.seq]


@pytest.mark.parametrize("every_s", [0.0, -1.0, float("nan")])
def test_aging_by_no_span_of_time_is_refused_and_changes_nothing(scene: Scene, every_s: float) -> None:
    scene.put(priority=5)
    scene.later(60)
    with pytest.raises(StoreRefused, match="nothing was changed"):
        scene.run(ops.Age(queue="default", every_s=every_s))
    [lease] = scene.claim(scene.hire())
    assert lease.band == 5
