"""Workers seen from outside, and the figures they keep by the minute."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from typing import Any

import pytest

from fairlane.core.ids import WorkerId
from fairlane.core.ops import AddStats, ListWorkers, ReadStats, Renew, Retain, StatRow, WorkerRecord
from fairlane.core.statistics import summed
from fairlane.testing.conformance.samples import NOON, completed
from fairlane.testing.conformance.scene import Scene, wanting


def workers(scene: Scene) -> tuple[WorkerRecord, ...]:
    return scene.run(ListWorkers()).workers


@pytest.mark.requirement("L21")
def test_a_worker_is_listed_with_what_it_said_of_itself(scene: Scene) -> None:
    worker = scene.making.worker_id()
    said: dict[str, Any] = {"name": "host:41", "queues": ("default", "bulk"), "types": ("mail.send",)}
    figures = {"rss_bytes": 48_234_496.0, "lane.fast.utilisation": 0.25}
    scene.run(Renew(worker=worker, lease_s=15, figures=figures, **said))
    [record] = workers(scene)
    assert record == WorkerRecord(
        id=worker,
        registered_at=scene.now,
        renewed_at=scene.now,
        expires_at=scene.at(15),
        waiting=False,
        leases=0,
        figures=figures,
        **said,
    )


@pytest.mark.requirement("L21")
def test_what_a_worker_says_replaces_what_it_said_before(scene: Scene) -> None:
    worker, registered_at = scene.making.worker_id(), scene.now
    scene.run(Renew(worker=worker, name="a", queues=("x",), types=("t",), figures={"rss_bytes": 1.0, "old": 2.0}))
    scene.later(5)
    scene.run(Renew(worker=worker, name="b", queues=("y", "z"), figures={"rss_bytes": 3.0}, lease_s=20))
    [record] = workers(scene)
    assert (record.name, record.queues, record.types, record.figures) == ("b", ("y", "z"), (), {"rss_bytes": 3.0})
    assert (record.registered_at, record.renewed_at, record.expires_at) == (registered_at, scene.now, scene.at(20))
    scene.run(Renew(worker=worker))
    assert workers(scene)[0].figures == {}


def test_workers_are_listed_by_when_they_came(scene: Scene) -> None:
    first = scene.hire()
    scene.later(1)
    two = sorted(scene.making.worker_id() for _ in range(2))
    for worker in reversed(two):
        scene.renew(worker)
    scene.later(1)
    scene.renew(first)
    told = scene.run(ListWorkers())
    assert [record.id for record in told.workers] == [first, *two]
    assert told.now == scene.now


def test_a_listed_worker_shows_what_it_holds_and_whether_it_waits(scene: Scene) -> None:
    scene.put_many(3)
    worker, idle = scene.hire(), scene.hire()
    leases = scene.claim(worker, 3, start=1)
    scene.turn(idle, wanting(1), waiting=True)
    seen = {record.id: (record.leases, record.waiting) for record in workers(scene)}
    assert seen == {worker: (3, False), idle: (0, True)}
    scene.settle(worker, completed(leases[0]))
    scene.turn(idle)
    seen = {record.id: (record.leases, record.waiting) for record in workers(scene)}
    assert seen == {worker: (2, False), idle: (0, False)}


def test_a_late_worker_is_listed_until_its_row_goes(scene: Scene) -> None:
    worker, leaving = scene.hire(), scene.hire()
    scene.retire(leaving)
    scene.later(60)
    assert [record.id for record in workers(scene)] == [worker]
    scene.reclaim()
    assert workers(scene) == ()


def a_row(minute: datetime = NOON, type: str = "mail.send", **figures: Any) -> StatRow:
    return StatRow(minute=minute, type=type, **{"queue": "default", "tenant": "acme", **figures})


def add(scene: Scene, worker: WorkerId, batch: int, *rows: StatRow) -> bool:
    return scene.run(AddStats(worker=worker, batch=batch, rows=rows)).added


def read(
    scene: Scene, since: datetime = NOON, until: datetime = NOON + timedelta(days=1), **where: Any
) -> tuple[StatRow, ...]:
    return scene.run(ReadStats(since=since, until=until, **where)).rows


def minutes(rows: Sequence[StatRow]) -> list[float]:
    return [(row.minute - NOON).total_seconds() / 60 for row in rows]


def test_figures_are_read_as_they_were_added(scene: Scene) -> None:
    row = a_row(
        completed=3,
        failed=1,
        dead=2,
        cancelled=4,
        wait_us=12_345_678_901_234,
        run_us=5,
        wait_buckets={0: 1, 12: 2},
        run_buckets={3: 7},
    )
    assert add(scene, scene.hire(), 1, row, a_row(NOON + timedelta(minutes=1)))
    assert read(scene) == (row, a_row(NOON + timedelta(minutes=1)))


def test_figures_of_one_minute_add_up_over_batches_and_workers(scene: Scene) -> None:
    first, second = scene.hire(), scene.hire()
    add(scene, first, 1, a_row(completed=1, run_us=10, run_buckets={2: 1, 3: 1}, wait_buckets={0: 4}))
    add(scene, first, 2, a_row(completed=2, failed=1, run_us=5, run_buckets={3: 2}))
    add(scene, second, 1, a_row(dead=1, cancelled=1, wait_us=7, wait_buckets={1: 1}))
    assert read(scene) == (
        a_row(
            completed=3,
            failed=1,
            dead=1,
            cancelled=1,
            wait_us=7,
            run_us=15,
            run_buckets={2: 1, 3: 3},
            wait_buckets={0: 4, 1: 1},
        ),
    )


def test_rows_alike_in_one_batch_add_up_too(scene: Scene) -> None:
    add(scene, scene.hire(), 1, a_row(completed=1, run_buckets={2: 1}), a_row(completed=2, run_buckets={2: 2}))
    assert read(scene) == (a_row(completed=3, run_buckets={2: 3}),)


def test_a_batch_told_again_after_a_lost_reply_is_added_once(scene: Scene) -> None:
    worker = scene.hire()
    assert add(scene, worker, 1, a_row(completed=1))
    assert not add(scene, worker, 1, a_row(completed=1))
    assert add(scene, worker, 3, a_row(completed=1))
    assert not add(scene, worker, 2, a_row(completed=1))
    assert read(scene) == (a_row(completed=2),)


def test_an_empty_batch_counts_as_told(scene: Scene) -> None:
    worker = scene.hire()
    assert add(scene, worker, 1)
    assert not add(scene, worker, 1, a_row(completed=1))
    assert read(scene) == ()


def test_figures_of_a_worker_without_a_row_are_not_added(scene: Scene) -> None:
    worker = scene.hire()
    assert not add(scene, scene.making.worker_id(), 1, a_row(completed=1))
    scene.retire(worker)
    assert not add(scene, worker, 1, a_row(completed=1))
    assert read(scene) == ()


def test_a_worker_whose_heartbeat_is_late_may_still_tell_its_figures(scene: Scene) -> None:
    worker = scene.hire()
    scene.later(60)
    assert add(scene, worker, 1, a_row(completed=1))


def test_figures_are_kept_apart_by_type_queue_and_tenant_and_found_by_them(scene: Scene) -> None:
    rows = (
        a_row(type="a", queue="q1", tenant="t2"),
        a_row(type="a", queue="q2", tenant="t1"),
        a_row(type="a", queue="q2", tenant="t2"),
        a_row(type="b", queue="q1", tenant="t1"),
    )
    add(scene, scene.hire(), 1, *reversed(rows))
    assert read(scene) == rows
    assert read(scene, type="b") == rows[3:]
    assert read(scene, queue="q2") == rows[1:3]
    assert read(scene, tenant="t1") == (rows[1], rows[3])
    assert read(scene, type="a", queue="q1", tenant="t1") == ()


def test_minutes_are_read_from_since_to_before_until_oldest_first(scene: Scene) -> None:
    worker = scene.hire()
    for batch, nth in enumerate((3, 0, 2, 1), start=1):
        add(scene, worker, batch, a_row(NOON + timedelta(minutes=nth)))
    assert minutes(read(scene)) == [0, 1, 2, 3]
    assert minutes(read(scene, NOON + timedelta(minutes=1), NOON + timedelta(minutes=3))) == [1, 2]
    assert minutes(read(scene, NOON + timedelta(seconds=30), NOON + timedelta(minutes=2, seconds=1))) == [1, 2]
    assert minutes(read(scene, limit=2)) == [0, 1]
    assert read(scene, limit=0) == ()


def test_minutes_are_summed_by_steps_and_by_what_is_told_apart(scene: Scene) -> None:
    rows = [
        a_row(
            NOON + timedelta(minutes=nth),
            type=f"t{nth % 2}",
            tenant=f"n{nth % 3}",
            completed=1,
            enqueued=nth,
            run_us=10,
            run_buckets={nth % 2: 1, 7: 2},
            wait_buckets={3: 1} if nth == 4 else {},
        )
        for nth in range(6)
    ]
    add(scene, scene.hire(), 1, *rows)
    start = NOON - timedelta(minutes=1)
    assert read(scene, start, step_s=240) == (
        total(start, completed=3, enqueued=3, run_us=30, run_buckets={0: 2, 1: 1, 7: 6}),
        total(
            NOON + timedelta(minutes=3),
            completed=3,
            enqueued=12,
            run_us=30,
            run_buckets={0: 1, 1: 2, 7: 6},
            wait_buckets={3: 1},
        ),
    )
    by_type = read(scene, step_s=3600, by="type")
    assert [(row.type, row.queue, row.tenant, row.enqueued) for row in by_type] == [
        ("t0", "", "", 6),
        ("t1", "", "", 9),
    ]
    by_tenant = read(scene, step_s=240, by="tenant", type="t0")
    assert [(*minutes([row]), row.tenant, row.enqueued) for row in by_tenant] == [
        (0, "n0", 0),
        (0, "n2", 2),
        (4, "n1", 4),
    ]
    assert [row.queue for row in read(scene, step_s=60, by="queue", limit=2)] == ["default", "default"]
    assert read(scene, step_s=60, limit=0) == ()
    assert read(scene, NOON - timedelta(hours=2), NOON, step_s=60) == ()


@pytest.mark.requirement("W10")
@pytest.mark.parametrize(
    "step_s", [1800, 16_261, *(pytest.param(long, marks=pytest.mark.long) for long in (5400, 86_400))]
)
def test_steps_of_half_hours_are_the_sums_of_their_minutes_whatever_is_added_and_removed(
    scene: Scene, step_s: int
) -> None:
    worker, begin = scene.hire(), NOON.replace(hour=0)
    for batch, spread in enumerate((7, 11, 1), start=1):
        rows = [
            a_row(
                begin + timedelta(minutes=97 + nth * spread),
                type=f"t{nth % 3}",
                tenant=f"n{nth % 2}",
                completed=nth,
                run_buckets={nth % 5: nth + 1},
                wait_buckets={batch: 1},
            )
            for nth in range(40)
        ]
        add(scene, worker, batch, *rows)

    def check() -> int:
        ends = [begin + timedelta(minutes=minute) for minute in (130, 270, 271, 1440)]
        starts = [begin, begin + timedelta(minutes=90), begin + timedelta(minutes=100)]
        for since, until in product(starts, ends):
            for by, of_type in product((None, "type", "tenant"), (None, "t1")):
                plain = read(scene, since, until, type=of_type)
                assert read(scene, since, until, step_s=step_s, by=by, type=of_type) == tuple(
                    summed(plain, since, step_s, by)
                )
        return len(read(scene, begin, begin + timedelta(days=1)))

    whole = check()
    scene.retain(stats_before=begin + timedelta(minutes=130), finished_before=scene.at(60), limit=1)
    assert 0 < check() < whole


def total(minute: datetime, **figures: Any) -> StatRow:
    return StatRow(minute=minute, type="", queue="", tenant="", **figures)


def test_a_minute_is_the_same_in_every_zone(scene: Scene) -> None:
    worker = scene.hire()
    add(scene, worker, 1, a_row(completed=1))
    add(scene, worker, 2, a_row(NOON.astimezone(timezone(timedelta(hours=2))), completed=1))
    assert read(scene) == (a_row(completed=2),)
    assert read(scene)[0].minute.tzinfo == UTC


@pytest.mark.requirement("I8")
def test_retention_removes_figures_of_minutes_before_the_given_one(scene: Scene) -> None:
    add(scene, scene.hire(), 1, *(a_row(NOON + timedelta(minutes=nth)) for nth in range(4)))
    scene.finished()
    assert scene.retain(stats_before=NOON + timedelta(minutes=2), finished_before=scene.at(60), limit=1) == 1
    assert minutes(read(scene)) == [2, 3]
    assert scene.retain(finished_before=scene.at(60)) == 0
    assert minutes(read(scene)) == [2, 3]
    assert scene.retain(stats_before=NOON + timedelta(hours=1), limit=0) == 0
    assert read(scene) == ()


def test_old_figures_are_removed_in_bounded_steps_that_say_whether_some_are_left(scene: Scene) -> None:
    worker, count, until = scene.hire(), 2_500, NOON + timedelta(days=2)
    for batch, first in enumerate(range(0, count, 500), 1):
        add(scene, worker, batch, *(a_row(NOON + timedelta(minutes=first + nth)) for nth in range(500)))
    left = []
    while scene.run(Retain(stats_before=until, limit=0)).more_stats:
        left.append(len(read(scene, until=until)))
    assert min(left) >= 500, "a step removes at most 2,000"
    assert read(scene, until=until) == ()
    assert not scene.run(Retain()).more_stats
