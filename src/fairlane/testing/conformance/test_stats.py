"""Counts and ages: what waits where, and for how long."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlane.core.limits import Limit
from fairlane.core.ops import ALL_TENANTS, Scope, only
from fairlane.testing.conformance.samples import cancelled, completed, died, retried, snoozed
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("Q11", "L5")


def test_an_empty_store_counts_nothing(scene: Scene) -> None:
    stats = scene.stats()
    assert (stats.now, stats.queues, stats.dead_letters) == (scene.now, (), {})
    assert (stats.completed, stats.dead, stats.cancelled) == (0, 0, 0)


def test_a_queue_is_counted_by_where_its_jobs_are(scene: Scene) -> None:
    worker = scene.hire(lease_s=600)
    scene.put_many(7)
    retry, snooze, running, *prefetched = scene.claim(worker, 5, start=3)
    scene.settle(worker, retried(retry, 60), snoozed(snooze, 60))
    scene.put(delay_s=60)
    queue = scene.queue()
    assert (queue.ready, queue.scheduled, queue.processing, queue.failed) == (2, 3, 1, 1)
    assert queue.pending == 2 + 1 + 1 + len(prefetched)
    assert scene.status(running.id) == "processing"


def test_queues_with_unfinished_jobs_are_told_by_name(scene: Scene) -> None:
    for name in ("default", "Zebra", "bulk", "été"):
        scene.put(queue=name)
    scene.cancel(scene.put(queue="all done").id)
    assert [queue.queue for queue in scene.stats().queues] == sorted(["default", "Zebra", "bulk", "été"])


def test_a_queue_with_only_running_or_scheduled_jobs_is_told_too(scene: Scene) -> None:
    scene.leased(queue="running")
    scene.put(queue="scheduled", delay_s=60)
    assert [(queue.queue, queue.oldest_due_at) for queue in scene.stats().queues] == [
        ("running", None),
        ("scheduled", None),
    ]


def test_the_oldest_due_time_is_the_earliest_among_the_ready(scene: Scene) -> None:
    scene.put(run_at=scene.at(-10))
    scene.put(run_at=scene.at(-90), priority=9)
    scene.put(run_at=scene.at(-50), tenant="acme")
    assert scene.queue().oldest_due_at == scene.at(-90)
    [lease] = scene.claim(scene.hire(), discover=True, cursor="acme")
    assert lease.tenant == "system"
    assert scene.queue().oldest_due_at == scene.at(-90)


def test_a_due_job_not_yet_promoted_is_still_scheduled(scene: Scene) -> None:
    scene.put(delay_s=5)
    scene.later(10)
    assert (scene.queue().ready, scene.queue().scheduled, scene.queue().oldest_due_at) == (0, 1, None)
    scene.promote()
    assert (scene.queue().ready, scene.queue().scheduled) == (1, 0)


def test_the_finished_are_counted_by_how_they_ended(scene: Scene) -> None:
    for outcome, count in ((completed, 3), (died, 2), (cancelled, 1)):
        for _ in range(count):
            worker, lease = scene.leased()
            scene.settle(worker, outcome(lease))
    stats = scene.stats()
    assert (stats.completed, stats.dead, stats.cancelled, stats.queues) == (3, 2, 1, ())
    assert stats.dead_letters == {"pending_review": 2}


def test_dead_letters_are_counted_by_status(scene: Scene) -> None:
    dead = [scene.dead().seq for _ in range(5)]
    scene.reprocess(dead[0])
    scene.discard(dead[1])
    scene.resolve(dead[2])
    assert scene.stats().dead_letters == {"pending_review": 2, "retried": 1, "discarded": 1, "resolved": 1}


def test_counts_stop_at_the_cap(scene: Scene) -> None:
    scene.put_many(5)
    scene.put(delay_s=60)
    for _ in range(4):
        scene.cancel(scene.put(queue="bulk").id)
    stats = scene.stats(cap=3)
    [queue] = stats.queues
    assert (queue.ready, queue.scheduled, stats.cancelled) == (3, 1, 3)
    assert queue.pending >= 3


def test_rough_numbers_are_exact_up_to_the_cap_and_not_below_it_beyond(scene: Scene) -> None:
    worker = scene.hire(lease_s=600)
    scene.put_many(3, queue="at the cap")
    scene.put_many(7, queue="beyond")
    for _ in range(5):
        scene.put(queue="beyond", delay_s=60)
    leases = scene.claim(worker, 4, queues=("beyond",))
    scene.settle(worker, *(retried(lease, 60) for lease in leases))
    at_cap, beyond = scene.stats(cap=3, rough=True).queues
    assert (at_cap.pending, at_cap.ready, at_cap.scheduled, at_cap.failed) == (3, 3, 0, 0)
    assert (beyond.ready, beyond.processing, beyond.held) == (3, 0, 0)
    for number in (beyond.scheduled, beyond.failed, beyond.pending):
        assert number >= 3
    assert beyond.scheduled <= 9
    assert beyond.pending <= 8
    assert scene.stats(cap=100, rough=True) == scene.stats()


def test_rough_numbers_of_a_tenant_are_those_of_its_own_jobs(scene: Scene) -> None:
    scene.put_many(8, tenant="globex")
    scene.put_many(2, tenant="acme")
    scene.put(tenant="acme", priority=9)
    [queue] = scene.stats(only("acme"), cap=4, rough=True).queues
    assert (queue.ready, queue.pending) == (3, 3)
    [queue] = scene.stats(only("acme"), cap=1, rough=True).queues
    assert 1 <= queue.ready <= 3


def test_rough_numbers_of_a_tenants_dead_letters_look_at_the_newest_of_all(scene: Scene) -> None:
    for tenant in ("acme", "acme", "globex", "acme", "globex"):
        scene.dead(tenant=tenant)
    assert scene.stats(only("acme"), cap=3).dead_letters == {"pending_review": 3}
    assert scene.stats(only("acme"), cap=3, rough=True).dead_letters == {"pending_review": 1}
    assert scene.stats(only("acme"), cap=5, rough=True).dead_letters == {"pending_review": 3}
    assert scene.stats(cap=3, rough=True).dead_letters == {"pending_review": 3}


def test_only_the_parts_that_are_asked_for_are_counted(scene: Scene) -> None:
    scene.dead(tenant="acme")
    scene.put(tenant="acme")
    scene.cancel(scene.put(tenant="acme").id)
    for scope in (ALL_TENANTS, only("acme")):
        whole = scene.stats(scope)
        assert (len(whole.queues), whole.dead, whole.cancelled, whole.dead_letters) == (1, 1, 1, {"pending_review": 1})
        assert scene.stats(scope, parts=("queues",)) == replace(whole, dead=0, cancelled=0, dead_letters={})
        assert scene.stats(scope, parts=("ended",)) == replace(whole, queues=(), dead_letters={})
        assert scene.stats(scope, parts=("dead_letters",)) == replace(whole, queues=(), dead=0, cancelled=0)


def test_a_tenants_completed_jobs_are_counted_though_more_wait_than_the_cap(scene: Scene) -> None:
    for _ in range(3):
        worker, lease = scene.leased(tenant="acme")
        scene.settle(worker, completed(lease))
    scene.put_many(5, tenant="acme")
    assert scene.stats(only("acme"), cap=4).completed == 3
    assert scene.stats(only("acme"), cap=2).completed == 2


def test_the_oldest_due_time_is_found_in_whichever_line_it_stands(scene: Scene) -> None:
    for number in range(40):
        for priority in (1, 5, 6):
            scene.put(tenant=f"t{number:02}", priority=priority, run_at=scene.at(-10))
    scene.put_many(40, tenant="t20", run_at=scene.at(-9))
    for tenant, priority, age_s in (("t39", 6, 20), ("t20", 6, 30), ("t00", 1, 40), ("t20", 1, 50)):
        scene.put(tenant=tenant, priority=priority, run_at=scene.at(-age_s))
        assert scene.queue().oldest_due_at == scene.at(-age_s)
        [mine] = scene.stats(only(tenant)).queues
        assert mine.oldest_due_at == scene.at(-age_s)


@pytest.mark.requirement("L13")
def test_pending_jobs_are_counted_by_type_wherever_they_wait(scene: Scene) -> None:
    def types(scope: Scope = ALL_TENANTS, **options: Any) -> dict[str, int]:
        return scene.stats(scope, parts=("types",), **options).pending_types

    assert types() == {}
    worker = scene.hire(lease_s=3600)
    for tenant, queue in (("acme", "default"), ("acme", "bulk"), ("bolt", "bulk")):
        scene.put(type="report", tenant=tenant, queue=queue)
        scene.put(type="mail", tenant=tenant, queue=queue, priority=2)
    scene.put(type="later", delay_s=60.0)
    one = Limit(kind="tenant", name="acme", waiting=1, when_full="hold")
    scene.enqueue(scene.job("kept", tenant="acme", queue="bulk"), limits=(one,))
    [prefetched] = scene.prefetch(worker, queues=("bulk",), types=("report",))
    assert types() == types(rough=True) == types(cap=0) == {"report": 3, "mail": 3, "later": 1, "kept": 1}
    assert types(Scope("acme")) == {"report": 2, "mail": 2, "kept": 1}
    assert types(Scope("nobody")) == {}
    scene.start(worker, prefetched)
    [failing] = scene.claim(worker, types=("mail",))
    scene.settle(worker, retried(failing, 60.0))
    assert types() == {"report": 2, "mail": 2, "later": 1, "kept": 1}
    assert scene.stats().pending_types == {}
