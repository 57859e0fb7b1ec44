"""Who is claimed next: priority, then one job of each tenant in turn, then due time, then first in first out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fairlane.core.job import Lease
from fairlane.testing.conformance.samples import released
from fairlane.testing.conformance.scene import Scene, wanting

pytestmark = pytest.mark.requirement("W14")


def tenants(leases: Sequence[Lease]) -> list[str]:
    return [lease.tenant for lease in leases]


@pytest.mark.requirement("Q1")
def test_the_lowest_priority_number_goes_first_however_late_it_came(scene: Scene) -> None:
    for priority in (5, 10, 0, 7, 5):
        scene.put(priority=priority)
        scene.later(1)
    leases = scene.claim(scene.hire(), 5)
    assert [lease.priority for lease in leases] == [0, 5, 5, 7, 10]


@pytest.mark.requirement("Q1")
def test_within_one_priority_the_first_in_is_the_first_out(scene: Scene) -> None:
    jobs = scene.put_many(20)
    assert [lease.id for lease in scene.claim(scene.hire(), 20)] == [job.id for job in jobs]


def test_due_time_goes_before_the_order_of_arrival(scene: Scene) -> None:
    second, first = scene.put(run_at=scene.at(-10)), scene.put(run_at=scene.at(-20))
    assert [lease.id for lease in scene.claim(scene.hire(), 2)] == [first.id, second.id]


@pytest.mark.requirement("Q2")
def test_a_future_job_of_high_priority_never_holds_back_a_ready_one(scene: Scene) -> None:
    urgent_later = scene.put(priority=0, delay_s=60)
    plain = scene.put(priority=9)
    worker = scene.hire(lease_s=600)
    assert [lease.id for lease in scene.claim(worker, 5)] == [plain.id]
    scene.later(60)
    assert [lease.id for lease in scene.claim(worker, 5)] == [urgent_later.id]


@pytest.mark.requirement("Q2")
def test_a_promoted_job_of_high_priority_overtakes_what_waits(scene: Scene) -> None:
    plain = scene.put(priority=9)
    urgent = scene.put(priority=0, delay_s=60)
    worker = scene.hire(lease_s=600)
    scene.later(60)
    assert [lease.id for lease in scene.claim(worker, 5)] == [urgent.id, plain.id]


def test_tenants_are_served_one_job_each_in_turn(scene: Scene) -> None:
    scene.put_many(5, tenant="acme")
    scene.put_many(2, tenant="bolt")
    scene.put_many(1, tenant="coil")
    assert tenants(scene.claim(scene.hire(), 8)) == ["acme", "bolt", "coil", "acme", "bolt", "acme", "acme", "acme"]


def test_a_flood_of_one_tenant_does_not_delay_another_even_one_job_at_a_time(scene: Scene) -> None:
    scene.put_many(50, tenant="flood")
    scene.put_many(3, tenant="quiet")
    worker, cursor, order = scene.hire(), "", []
    for _ in range(7):
        result = scene.turn(worker, wanting(1, cursor=cursor))
        order += tenants(result.leases)
        cursor = result.cursors["general"]
    assert order == ["flood", "quiet", "flood", "quiet", "flood", "quiet", "flood"]


def test_fairness_holds_within_every_priority(scene: Scene) -> None:
    for tenant in ("acme", "bolt"):
        scene.put_many(2, tenant=tenant, priority=5)
        scene.put_many(2, tenant=tenant, priority=1)
    leases = scene.claim(scene.hire(), 8)
    assert [(lease.priority, lease.tenant) for lease in leases] == [
        (priority, tenant) for priority in (1, 5) for tenant in ("acme", "bolt") * 2
    ]


def test_discovery_begins_behind_the_cursor_and_wraps_round(scene: Scene) -> None:
    for tenant in "abcd":
        scene.put_many(2, tenant=tenant)
    result = scene.turn(scene.hire(), wanting(6, cursor="b"))
    assert tenants(result.leases) == ["c", "d", "a", "b", "c", "d"]
    assert result.cursors == {"general": "d"}


def test_a_cursor_that_names_no_tenant_still_marks_a_place(scene: Scene) -> None:
    for tenant in "ac":
        scene.put(tenant=tenant)
    assert tenants(scene.claim(scene.hire(), 2, cursor="b")) == ["c", "a"]


def test_a_cursor_behind_the_last_tenant_begins_at_the_first(scene: Scene) -> None:
    for tenant in "ab":
        scene.put(tenant=tenant)
    assert tenants(scene.claim(scene.hire(), 2, cursor="zzz")) == ["a", "b"]


def test_the_cursor_carries_on_from_turn_to_turn(scene: Scene) -> None:
    for tenant in "abc":
        scene.put_many(4, tenant=tenant)
    worker, cursor, order = scene.hire(), "", []
    for _ in range(3):
        result = scene.turn(worker, wanting(2, cursor=cursor))
        order += tenants(result.leases)
        cursor = result.cursors["general"]
    assert order == ["a", "b", "c", "a", "b", "c"]


def test_tenants_are_ordered_by_code_point_not_by_anyones_alphabet(scene: Scene) -> None:
    names = ["émile", "anna", "Zoe", "B-12", "a", "\U0001f680", "\uffee", "_x", "B 12"]
    for tenant in names:
        scene.put(tenant=tenant)
    assert tenants(scene.claim(scene.hire(), 20)) == sorted(names)


def test_a_short_batch_is_filled_from_whoever_has_work(scene: Scene) -> None:
    scene.put_many(9, tenant="acme")
    scene.put_many(1, tenant="bolt")
    assert len(scene.claim(scene.hire(), 10)) == 10


def test_priority_within_a_tenant_never_reaches_beyond_it(scene: Scene) -> None:
    own = {"priority_scope": "tenant"}
    for tenant, priorities in {"acme": (9, 1), "bolt": (8, 7)}.items():
        for priority in priorities:
            scene.put(tenant=tenant, priority=priority, **own)
    leases = scene.claim(scene.hire(), 4)
    assert [(lease.tenant, lease.priority) for lease in leases] == [("acme", 1), ("bolt", 7), ("acme", 9), ("bolt", 8)]
    assert {(lease.band, lease.rank) for lease in leases} == {(0, priority) for priority in (1, 7, 9, 8)}


def test_a_queue_wide_priority_is_the_band_of_its_lease(scene: Scene) -> None:
    scene.put(priority=3)
    [lease] = scene.claim(scene.hire())
    assert (lease.band, lease.rank) == (3, 0)


def test_queues_are_served_in_the_order_asked_for(scene: Scene) -> None:
    for queue in ("bulk", "critical", "default"):
        scene.put_many(2, queue=queue, priority=1 if queue == "bulk" else 9)
    leases = scene.claim(scene.hire(), 5, queues=("critical", "bulk"))
    assert [lease.queue for lease in leases] == ["critical", "critical", "bulk", "bulk"]


def test_a_queue_nobody_asked_for_is_left_alone(scene: Scene) -> None:
    scene.put(queue="bulk")
    assert scene.claim(scene.hire(), 5, queues=("default", "critical")) == ()


def test_a_worker_never_gets_a_type_it_does_not_know(scene: Scene) -> None:
    for name in ("mail.send", "report.make", "mail.send", "sync.run"):
        scene.put(name)
    worker = scene.hire()
    assert [lease.type for lease in scene.claim(worker, 9, types=("mail.send",))] == ["mail.send"] * 2
    assert scene.claim(worker, 9, types=("mail.send",)) == ()
    assert {lease.type for lease in scene.claim(worker, 9)} == {"report.make", "sync.run"}


def test_a_worker_that_knows_no_type_gets_nothing(scene: Scene) -> None:
    scene.put()
    assert scene.claim(scene.hire(), 9, types=()) == ()


@pytest.mark.requirement("L6")
def test_unknown_types_in_front_do_not_hide_a_known_one(scene: Scene) -> None:
    scene.put_many(30, "report.make", tenant="acme")
    wanted = scene.put("mail.send", tenant="acme")
    assert [lease.id for lease in scene.claim(scene.hire(), 2, types=("mail.send",))] == [wanted.id]


def test_a_tenant_without_wanted_types_does_not_use_up_a_turn(scene: Scene) -> None:
    scene.put("report.make", tenant="acme")
    scene.put_many(2, "mail.send", tenant="bolt")
    assert tenants(scene.claim(scene.hire(), 2, types=("mail.send",))) == ["bolt", "bolt"]


def test_no_more_is_claimed_than_asked_for(scene: Scene) -> None:
    scene.put_many(5)
    worker = scene.hire()
    assert len(scene.claim(worker, 3)) == 3
    assert len(scene.claim(worker, 3)) == 2
    assert scene.claim(worker, 3) == ()


def test_a_want_for_nothing_gets_nothing(scene: Scene) -> None:
    scene.put()
    assert scene.claim(scene.hire(), 0) == ()


def test_several_lanes_are_served_in_one_turn_and_each_lease_names_its_lane(scene: Scene) -> None:
    scene.put_many(2, queue="critical")
    scene.put_many(2, queue="default")
    result = scene.turn(
        scene.hire(),
        wanting(1, lane="fast", queues=("critical",)),
        wanting(9, lane="general", queues=("critical", "default")),
    )
    assert [(lease.lane, lease.queue) for lease in result.leases] == [
        ("fast", "critical"),
        ("general", "critical"),
        ("general", "default"),
        ("general", "default"),
    ]
    assert result.cursors == {"fast": "system", "general": "system"}


def test_a_job_given_back_takes_the_place_it_had(scene: Scene) -> None:
    first, _ = scene.put(), scene.put()
    worker = scene.hire()
    [lease] = scene.claim(worker)
    scene.later(5)
    scene.settle(worker, released(lease))
    assert scene.claim(worker)[0].id == first.id
