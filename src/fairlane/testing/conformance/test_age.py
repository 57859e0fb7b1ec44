"""Aging: jobs that wait for long move up in their line, a step for every span."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.core.ids import JobId
from fairlane.core.ops import ALL_TENANTS, Age, Mark, Reset, Take
from fairlane.testing.conformance.limits import tenant, unhold
from fairlane.testing.conformance.samples import released, retried, snoozed
from fairlane.testing.conformance.scene import Scene, wanting

pytestmark = pytest.mark.requirement("W14")


def age(scene: Scene, every_s: float = 10.0, queue: str = "default", limit: int = 1000) -> int:
    return scene.run(Age(queue=queue, every_s=every_s, limit=limit)).count


def bands(scene: Scene, **want: Any) -> list[tuple[JobId, int, int]]:
    """All that is claimed now, in order, with band and rank."""
    return [(lease.id, lease.band, lease.rank) for lease in scene.claim(scene.hire(9000), 99, **want)]


def put(scene: Scene, priority: int, **options: Any) -> JobId:
    return scene.put(priority=priority, **options).id


def test_a_job_moves_up_one_step_for_every_span_it_has_waited(scene: Scene) -> None:
    job = put(scene, 5)
    scene.later(9.999999)
    assert age(scene) == 0
    scene.later(0.000001)
    assert age(scene) == 1
    assert age(scene) == 0
    scene.later(25)
    assert age(scene) == 1
    assert bands(scene) == [(job, 2, 0)]


def test_nothing_moves_up_further_than_the_first_band(scene: Scene) -> None:
    job = put(scene, 3)
    scene.later(1000)
    assert age(scene) == 1
    assert age(scene) == 0
    assert bands(scene) == [(job, 0, 0)]


def test_a_job_of_long_waiting_overtakes_fresh_ones_of_better_priority(scene: Scene) -> None:
    old = put(scene, 5)
    scene.later(40)
    fresh = put(scene, 2)
    assert age(scene) == 1
    assert bands(scene) == [(old, 1, 0), (fresh, 2, 0)]


def test_in_a_band_the_aged_and_the_others_share_one_line(scene: Scene) -> None:
    old = put(scene, 5)
    scene.later(30)
    fresh = put(scene, 2)
    age(scene)
    assert bands(scene) == [(old, 2, 0), (fresh, 2, 0)]
    other = put(scene, 5, tenant="a")
    scene.later(30)
    put(scene, 2, tenant="b")
    age(scene)
    [first] = bands(scene, takes=(Take(queue="default", band=2, tenant="a", limit=9),), discover=False)
    assert first == (other, 2, 0)


def test_the_priority_of_the_job_stays(scene: Scene) -> None:
    job = put(scene, 5)
    scene.later(30)
    age(scene)
    assert scene.see(job).priority == 5
    [lease] = scene.claim(scene.hire())
    assert (lease.priority, lease.band) == (5, 2)


def test_a_priority_among_the_tenants_own_jobs_ages_in_its_rank(scene: Scene) -> None:
    old = put(scene, 5, priority_scope="tenant")
    scene.later(40)
    fresh = put(scene, 2, priority_scope="tenant")
    assert age(scene) == 1
    assert bands(scene) == [(old, 0, 1), (fresh, 0, 2)]


def test_waiting_is_counted_from_when_the_job_was_due(scene: Scene) -> None:
    early = put(scene, 5, run_at=scene.at(-30))
    later = put(scene, 5, delay_s=10)
    scene.later(20)
    scene.promote()
    assert age(scene) == 2
    assert bands(scene) == [(early, 0, 0), (later, 4, 0)]


def test_only_ready_jobs_of_the_queue_age(scene: Scene) -> None:
    elsewhere = put(scene, 5, queue="bulk")
    worker = scene.hire(9000)
    put(scene, 5)
    [lease] = scene.claim(worker)
    scheduled = put(scene, 5, delay_s=5)
    held = scene.enqueue(scene.job(tenant="acme"), limits=(tenant("acme", waiting=0, when_full="hold"),)).receipts[0].id
    scene.later(60)
    assert age(scene) == 0
    scene.settle(worker, released(lease))
    scene.promote()
    unhold(scene)
    assert bands(scene) == [(held, 5, 0), (lease.id, 5, 0), (scheduled, 5, 0)]
    assert bands(scene, queues=("bulk",)) == [(elsewhere, 5, 0)]


def test_aging_is_bounded_and_begins_with_the_most_urgent(scene: Scene) -> None:
    """In the order of band, tenant, rank, due, seq."""
    low = put(scene, 9)
    second = put(scene, 5, tenant="b")
    first = put(scene, 5, tenant="a", run_at=scene.at(-1))
    before_first = put(scene, 5, tenant="a", run_at=scene.at(-2))
    scene.later(10)

    def reached() -> dict[JobId, int]:
        worker = scene.hire(9000)
        leases = scene.prefetch(worker, 99)
        scene.retire(worker)
        return {lease.id: lease.band for lease in leases}

    assert age(scene, limit=0) == 0
    for moved in ([before_first], [before_first, first], [before_first, first, second]):
        assert age(scene, limit=1) == 1
        assert {job for job, band in reached().items() if band == 4} == set(moved)
    assert age(scene) == 1
    assert reached()[low] == 8
    assert age(scene) == 0


@pytest.mark.parametrize("way", ["released", "retired", "lapsed", "reset", "retried", "snoozed", "failed by hand"])
def test_a_job_keeps_what_it_has_reached_when_it_goes_back(scene: Scene, way: str) -> None:
    job = put(scene, 5)
    scene.later(30)
    age(scene)
    worker = scene.hire(10)
    [lease] = scene.claim(worker)
    if way == "retired":
        scene.retire(worker)
    elif way == "lapsed":
        scene.later(10)
        scene.reclaim()
    elif way == "reset":
        scene.run(Reset(scope=ALL_TENANTS, id=job, by="ada"))
    elif way == "failed by hand":
        scene.fail(job, retry_delay_s=0)
    else:
        outcome = {"released": released(lease), "retried": retried(lease, 0), "snoozed": snoozed(lease, 0)}[way]
        scene.settle(worker, outcome)
    scene.promote()
    assert bands(scene) == [(job, 2, 0)]


def test_a_retried_job_moves_further_only_from_its_new_due_time_on(scene: Scene) -> None:
    job = put(scene, 5)
    scene.later(30)
    age(scene)
    worker = scene.hire(9000)
    [lease] = scene.claim(worker)
    scene.settle(worker, retried(lease, 5))
    scene.later(35)
    scene.promote()
    assert age(scene) == 0
    scene.later(10)
    assert age(scene) == 1
    assert bands(scene) == [(job, 1, 0)]


def test_marks_name_the_band_and_rank_a_job_has_reached(scene: Scene) -> None:
    job, own = scene.put(priority=5), scene.put(priority=5, priority_scope="tenant", tenant="a")
    due = scene.now
    scene.later(20)
    age(scene)
    result = scene.turn(scene.hire(), wanting(9))
    assert result.marks == (
        Mark(queue="default", band=0, tenant="a", rank=3, due_at=due, seq=own.seq),
        Mark(queue="default", band=3, tenant="system", rank=0, due_at=due, seq=job.seq),
    )


def test_an_aged_job_made_anew_from_its_dead_letter_begins_with_its_own_priority(scene: Scene) -> None:
    job = put(scene, 5)
    scene.later(30)
    age(scene)
    scene.bury(job)
    new = scene.reprocess(scene.see(job).seq).new_job
    assert new is not None
    assert bands(scene) == [(new.id, 5, 0)]
