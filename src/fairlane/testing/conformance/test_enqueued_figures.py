"""Jobs enqueued, counted into the figures of their minutes: each exactly once, behind everybody's back."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from fairlane.core.ops import AddStats, Enqueue, Purge, ReadEnqueued, ReadStats, RollUpEnqueued, StatRow
from fairlane.testing.conformance.samples import NOON, completed
from fairlane.testing.conformance.scene import Scene

MINUTE = timedelta(minutes=1)


def roll_up(scene: Scene, **how: Any) -> int:
    return scene.run(RollUpEnqueued(**how)).jobs


def rows(scene: Scene) -> tuple[StatRow, ...]:
    return scene.run(ReadStats(since=NOON - timedelta(days=1), until=NOON + timedelta(days=1))).rows


def counted(scene: Scene) -> list[tuple[float, int]]:
    return [((row.minute - NOON) / MINUTE, row.enqueued) for row in rows(scene)]


def a_row(minute: datetime = NOON, **figures: Any) -> StatRow:
    return StatRow(minute=minute, **{"type": "mail.send", "queue": "default", "tenant": "system", **figures})


def test_an_empty_store_has_nothing_to_count(scene: Scene) -> None:
    assert roll_up(scene) == 0
    assert rows(scene) == ()


def test_jobs_are_counted_in_the_minute_they_were_enqueued(scene: Scene) -> None:
    scene.put_many(2)
    scene.later(59.999999)
    scene.put()
    scene.later(0.000001)
    scene.put_many(4)
    scene.later(3600)
    assert roll_up(scene) == 7
    assert rows(scene) == (a_row(enqueued=3), a_row(NOON + MINUTE, enqueued=4))


def test_jobs_are_counted_apart_by_type_queue_and_tenant(scene: Scene) -> None:
    for name, queue, tenant in (("a", "q", "t"), ("a", "q", "u"), ("b", "q", "t"), ("a", "p", "t"), ("a", "q", "t")):
        scene.put(name, queue=queue, tenant=tenant)
    scene.later(60)
    assert roll_up(scene) == 5
    assert rows(scene) == (
        a_row(type="a", queue="p", tenant="t", enqueued=1),
        a_row(type="a", queue="q", tenant="t", enqueued=2),
        a_row(type="a", queue="q", tenant="u", enqueued=1),
        a_row(type="b", queue="q", tenant="t", enqueued=1),
    )


def test_each_job_is_counted_once(scene: Scene) -> None:
    scene.put_many(3)
    scene.later(60)
    assert [roll_up(scene) for _ in range(3)] == [3, 0, 0]
    scene.put_many(2)
    scene.later(60)
    assert [roll_up(scene), roll_up(scene)] == [2, 0]
    assert counted(scene) == [(0, 3), (1, 2)]


def test_many_jobs_are_counted_a_few_at_a_time(scene: Scene) -> None:
    scene.put_many(5)
    scene.later(60)
    assert [roll_up(scene, limit=2) for _ in range(4)] == [2, 2, 1, 0]
    assert counted(scene) == [(0, 5)]
    assert roll_up(scene, limit=0) == 0


def test_a_young_job_waits_until_those_before_it_must_have_committed(scene: Scene) -> None:
    scene.put()
    scene.later(29.999999)
    assert roll_up(scene) == 0
    scene.later(0.000001)
    assert roll_up(scene) == 1


def test_how_long_to_wait_is_for_the_caller_to_say(scene: Scene) -> None:
    scene.put()
    assert roll_up(scene, settled_s=0.5) == 0
    assert roll_up(scene, settled_s=0.0) == 1


def test_nothing_behind_a_young_job_is_counted_before_it(scene: Scene) -> None:
    """A clock may have stepped back between two enqueues; the number decides, and nothing is passed over for good."""
    scene.put()
    late = scene.at(100)
    scene.run(Enqueue(jobs=(scene.job(),), now=late))
    scene.put()
    scene.later(60)
    assert [roll_up(scene), roll_up(scene)] == [1, 0]
    scene.later(70)
    assert roll_up(scene) == 2
    assert counted(scene) == [(0, 2), (1, 1)]


def test_wherever_a_job_is_by_then_it_is_counted(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, completed(lease))
    scene.cancel(scene.put().id)
    dead = scene.dead()
    scene.leased()
    scene.put(delay_s=600)
    scene.put()
    assert scene.reprocess(dead.seq).new_job is not None
    scene.later(60)
    assert roll_up(scene) == 7
    assert counted(scene) == [(0, 7)]


def test_a_delayed_job_counts_when_it_was_enqueued_and_not_when_it_is_due(scene: Scene) -> None:
    scene.put(delay_s=600)
    scene.later(30)
    assert roll_up(scene) == 1
    assert counted(scene) == [(0, 1)]
    scene.later(600)
    scene.promote()
    assert roll_up(scene) == 0


def test_an_enqueue_that_made_no_job_is_not_counted(scene: Scene) -> None:
    job = scene.job(idempotency_key="k")
    for _ in range(3):
        scene.enqueue(job, scene.job(idempotency_key="k"))
    scene.later(60)
    assert roll_up(scene) == 1


def test_jobs_enqueued_and_jobs_ended_share_one_row(scene: Scene) -> None:
    worker = scene.hire(lease_s=600)
    ended = a_row(completed=2, run_us=5, run_buckets={3: 2})
    scene.put_many(3)
    scene.run(AddStats(worker=worker, batch=1, rows=(ended,)))
    scene.later(30)
    roll_up(scene)
    scene.run(AddStats(worker=worker, batch=2, rows=(a_row(failed=1),)))
    assert rows(scene) == (a_row(enqueued=3, completed=2, failed=1, run_us=5, run_buckets={3: 2}),)


def test_a_worker_may_tell_of_jobs_enqueued_too(scene: Scene) -> None:
    worker = scene.hire()
    scene.run(AddStats(worker=worker, batch=1, rows=(a_row(enqueued=4), a_row(enqueued=1))))
    assert rows(scene) == (a_row(enqueued=5),)


def test_a_job_removed_before_it_was_counted_is_passed_over(scene: Scene) -> None:
    scene.finished()
    scene.put()
    assert scene.retain(finished_before=scene.at(1)) == 1
    scene.later(60)
    assert roll_up(scene) == 1


def test_a_job_counted_and_removed_stays_counted(scene: Scene) -> None:
    scene.finished()
    scene.later(60)
    roll_up(scene)
    scene.retain(finished_before=scene.now)
    assert roll_up(scene) == 0
    assert counted(scene) == [(0, 1)]


def test_counts_go_with_the_figures_of_their_minute(scene: Scene) -> None:
    scene.put()
    scene.later(60)
    scene.put()
    scene.later(60)
    roll_up(scene)
    scene.retain(stats_before=NOON + MINUTE)
    assert counted(scene) == [(1, 1)]
    assert roll_up(scene) == 0


def test_after_a_purge_new_jobs_are_counted_as_ever(scene: Scene) -> None:
    scene.put_many(3)
    scene.later(60)
    roll_up(scene)
    scene.put()
    scene.run(Purge())
    assert rows(scene) == ()
    scene.put_many(2)
    scene.later(60)
    assert roll_up(scene) == 2


def lines(scene: Scene, after: int = 0, **how: Any) -> list[tuple[str, str, int]]:
    return [(line.tenant, line.queue, line.jobs) for line in scene.run(ReadEnqueued(after=after, **how)).lines]


def test_where_jobs_were_enqueued_is_read_at_once_by_tenant_and_queue(scene: Scene) -> None:
    assert scene.run(ReadEnqueued()).last == 0
    assert lines(scene) == []
    for queue, tenant in (("q", "t"), ("q", "T"), ("p", "t"), ("q", "t")):
        scene.put(queue=queue, tenant=tenant)
    assert lines(scene) == [("T", "q", 1), ("t", "p", 1), ("t", "q", 2)]


def test_only_numbers_above_the_one_given_and_the_last_so_many_count(scene: Scene) -> None:
    scene.put_many(3, tenant="t")
    seen = scene.run(ReadEnqueued()).last
    assert lines(scene, after=seen) == []
    scene.put_many(2, tenant="u")
    assert lines(scene, after=seen) == [("u", "default", 2)]
    assert lines(scene, limit=1) == [("u", "default", 1)]
    assert lines(scene, limit=0) == []
    assert lines(scene, after=seen - 1) == [("t", "default", 1), ("u", "default", 2)]


def test_where_jobs_were_enqueued_stays_when_they_run_and_end(scene: Scene) -> None:
    worker, lease = scene.leased(tenant="t")
    scene.settle(worker, completed(lease))
    scene.cancel(scene.put(tenant="t").id)
    scene.dead(tenant="t")
    scene.put(tenant="t", delay_s=600)
    assert lines(scene) == [("t", "default", 4)]


def test_more_jobs_are_read_than_a_store_reads_at_once(scene: Scene) -> None:
    scene.put_many(1100, tenant="t")
    scene.put(tenant="u")
    assert lines(scene, limit=1100) == [("t", "default", 1099), ("u", "default", 1)]
