"""Counts and ages: what waits where, and for how long."""

from __future__ import annotations

import pytest

from tests.support.acting import Scene
from tests.support.making import cancelled, completed, died, retried, snoozed

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
