"""Room that appears, and jobs that come back, wake workers that wait for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlane.core.job_keys import JobKey
from fairlane.core.limits import Limit
from fairlane.core.ops import ALL_TENANTS, FreePlace, Lapse, Reset, ResumeClaims
from fairlane.core.ops.pauses import PauseClaims
from fairlane.core.outcome import Crashed
from fairlane.stores.sqlite.listener import SqliteListener
from fairlane.testing.conformance.faces import NEVER_S, WaitingWorker
from fairlane.testing.conformance.limits import clear_limit, queue, set_limit, task, tenant, unhold
from fairlane.testing.conformance.samples import completed, died, released, retried
from fairlane.testing.conformance.scene import wanting


def test_a_listener_proves_that_wake_ups_arrive_and_wakes_nobody_else(waiting: WaitingWorker) -> None:
    other = waiting.store.listener(waiting.scene.making.worker_id())
    try:
        for listener in (waiting.listener, other):
            while listener.wait(0.0):
                pass
        waiting.listener.prove()
        assert waiting.listener.wait(NEVER_S)
        assert not other.wait(0.0)
    finally:
        other.close()


def test_setting_or_clearing_a_limit_wakes_a_waiting_worker(waiting: WaitingWorker) -> None:
    scene = waiting.scene
    scene.put()
    assert waiting.wait_for(lambda: set_limit(scene, queue(running=3)))
    assert waiting.wait_for(lambda: clear_limit(scene, queue()))
    scene.run(PauseClaims(kind="queue", name="default", by="ada"))
    assert waiting.wait_for(lambda: scene.run(ResumeClaims(kind="queue", name="default", by="ada")))


def test_a_held_job_that_goes_on_wakes_a_waiting_worker(waiting: WaitingWorker) -> None:
    scene = waiting.scene
    scene.enqueue(scene.job(tenant="acme"), limits=(tenant("acme", waiting=0, when_full="hold"),))
    assert waiting.wait_for(lambda: unhold(scene))


@pytest.mark.parametrize("way", ["completed", "retried", "released", "retired", "lapsed", "reset", "buried"])
def test_the_end_of_a_lease_under_a_running_limit_wakes_a_waiting_worker(waiting: WaitingWorker, way: str) -> None:
    scene = waiting.scene
    set_limit(scene, task(running=1))
    scene.put_many(2)
    busy = scene.hire(6000)
    [lease] = scene.claim(busy, 9)
    ends: dict[str, Callable[[], object]] = {
        "completed": lambda: scene.settle(busy, completed(lease)),
        "retried": lambda: scene.settle(busy, retried(lease, 60)),
        "released": lambda: scene.settle(busy, released(lease)),
        "retired": lambda: scene.retire(busy),
        "lapsed": lambda: scene.run(Lapse(worker=busy)),
        "reset": lambda: scene.run(Reset(scope=ALL_TENANTS, id=lease.id, by="ada")),
        "buried": lambda: scene.bury(lease.id),
    }
    assert waiting.wait_for(ends[way])
    assert len(scene.claim(waiting.worker, 9)) == 1


@pytest.mark.parametrize("by", ["task", "queue", "tenant"])
def test_a_place_that_is_taken_again_at_once_wakes_nobody_and_one_that_is_not_does(
    waiting: WaitingWorker, by: str
) -> None:
    scene = waiting.scene
    set_limit(scene, {"task": task(running=2), "queue": queue(running=2), "tenant": tenant("acme", running=2)}[by])
    scene.put_many(4, tenant="acme")
    busy = scene.hire(6000)
    first, second = scene.claim(busy, 9)
    woken = waiting.wait_for(lambda: scene.turn(busy, wanting(9), outcomes=(completed(first),)), within_s=0.2)
    # Who listens beside a SQLite file also hears that it has changed; what is sent there: tests/unit/test_sqlite_limits.py
    assert not woken or isinstance(waiting.listener, SqliteListener)
    assert scene.queue().processing == 2
    assert waiting.wait_for(lambda: scene.settle(busy, completed(second)))


@pytest.mark.parametrize("way", ["released", "crashed", "retired", "lapsed", "reset"])
def test_a_job_that_goes_back_wakes_a_waiting_worker(waiting: WaitingWorker, way: str) -> None:
    scene = waiting.scene
    scene.put()
    busy = scene.hire(6000)
    [lease] = scene.claim(busy)
    ways: dict[str, Callable[[], object]] = {
        "released": lambda: scene.settle(busy, released(lease)),
        "crashed": lambda: scene.settle(busy, Crashed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no)),
        "retired": lambda: scene.retire(busy),
        "lapsed": lambda: scene.run(Lapse(worker=busy)),
        "reset": lambda: scene.run(Reset(scope=ALL_TENANTS, id=lease.id, by="ada")),
    }
    assert waiting.wait_for(ways[way])
    assert len(scene.claim(waiting.worker)) == 1


@pytest.mark.requirement("D24")
@pytest.mark.parametrize("way", ["enqueued", "freed", "buried", "retired", "lapsed", "reset", "resolved", "limit"])
def test_what_frees_a_place_at_a_key_or_comes_to_it_wakes_a_waiting_worker(waiting: WaitingWorker, way: str) -> None:
    scene, key = waiting.scene, JobKey(value="customer:42", ordered=way == "resolved")
    first, _ = scene.put(key=key), scene.put(key=key)
    busy = scene.hire(6000)
    [lease] = scene.claim(busy, 9)
    if way == "resolved":
        scene.settle(busy, died(lease))
    ways: dict[str, Callable[[], object]] = {
        "enqueued": lambda: scene.put(key=JobKey(value="customer:43")),
        "freed": lambda: scene.run(FreePlace(scope=ALL_TENANTS, id=first.id, by="ada")),
        "buried": lambda: scene.bury(first.id),
        "retired": lambda: scene.retire(busy),
        "lapsed": lambda: scene.run(Lapse(worker=busy)),
        "reset": lambda: scene.run(Reset(scope=ALL_TENANTS, id=first.id, by="ada")),
        "resolved": lambda: scene.resolve(first.seq),
        "limit": lambda: set_limit(scene, Limit(kind="key", name="customer", running=2)),
    }
    assert waiting.wait_for(ways[way])
    assert len(scene.claim(waiting.worker, 9)) == 1
