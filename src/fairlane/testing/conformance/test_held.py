"""Held jobs: how they go on, and what people do to them."""

from __future__ import annotations

import pytest

from fairlane.core.ops import ALL_TENANTS, Reset, only
from fairlane.testing.conformance.held_jobs import full_at, held_ids, hold, jobs, put
from fairlane.testing.conformance.limits import claimed, clear_limit, every_tenant, set_limit, tenant, unhold
from fairlane.testing.conformance.samples import completed
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("I2")


def test_a_held_job_is_pending_and_nobody_claims_it(scene: Scene) -> None:
    [held] = hold(scene)
    assert claimed(scene) == []
    scene.promote()
    job = scene.see(held)
    assert (job.status, job.attempt, job.run_at, job.scheduled_at) == ("pending", 0, scene.now, scene.now)
    assert scene.list_jobs(statuses=("pending",)) == [held]
    assert [queue.held for queue in scene.stats(only("acme")).queues] == [1]
    assert scene.stats(only("bolt")).queues == ()


def test_a_held_job_shows_when_it_is_due(scene: Scene) -> None:
    [delayed] = hold(scene, delay_s=60)
    [past] = hold(scene, run_at=scene.at(-60))
    assert (scene.see(delayed).run_at, scene.see(past).run_at) == (scene.at(60), scene.at(-60))


def test_held_jobs_go_on_as_far_as_there_is_room_first_in_first_out(scene: Scene) -> None:
    worker, limit = scene.hire(6000), full_at(2)
    result = put(scene, 5, limit)
    first, second, *rest = [receipt.id for receipt in result.receipts]
    assert held_ids(result) == rest
    assert unhold(scene, limit) == 0
    leases = scene.claim(worker, 2)
    assert unhold(scene, limit) == 0
    scene.settle(worker, completed(leases[0]))
    assert unhold(scene, limit) == 1
    assert [lease.id for lease in scene.claim(worker, 9)] == rest[:1]
    scene.settle(worker, completed(leases[1]))
    assert unhold(scene, limit) == 1
    assert (scene.queue().held, scene.list_jobs(statuses=("completed",))) == (1, [second, first])
    assert [lease.id for lease in scene.claim(worker, 9)] == rest[1:2]


def test_held_jobs_go_on_by_number_whatever_their_priority(scene: Scene) -> None:
    low = hold(scene, 2, priority=9)
    [high] = hold(scene, priority=0)
    assert unhold(scene, full_at(2)) == 2
    assert claimed(scene) == low
    assert unhold(scene) == 1
    assert claimed(scene) == [high]


def test_a_held_job_keeps_its_place_by_due_time_once_it_goes_on(scene: Scene) -> None:
    [older] = hold(scene, run_at=scene.at(-60))
    [newer] = [receipt.id for receipt in put(scene, 1).receipts]
    unhold(scene)
    assert claimed(scene) == [older, newer]


def test_held_jobs_that_are_not_due_yet_are_scheduled(scene: Scene) -> None:
    [held] = hold(scene, delay_s=60)
    [due] = hold(scene, delay_s=5)
    scene.later(5)
    assert unhold(scene) == 2
    assert (scene.queue().ready, scene.queue().scheduled, scene.queue().failed) == (1, 1, 0)
    assert claimed(scene) == [due]
    scene.later(55)
    assert scene.promote().count == 1
    assert claimed(scene) == [held]


def test_without_a_limit_any_more_all_go_on(scene: Scene) -> None:
    set_limit(scene, full_at(1))
    put(scene, 4)
    assert unhold(scene) == 0
    clear_limit(scene, tenant("acme"))
    assert unhold(scene) == 3
    assert len(claimed(scene)) == 4


def test_a_raised_limit_lets_so_many_more_go_on(scene: Scene) -> None:
    put(scene, 6, full_at(2))
    assert unhold(scene, full_at(3, "reject")) == 1
    assert unhold(scene, full_at(5, "warn")) == 2
    assert unhold(scene, full_at(5, "warn")) == 0


def test_a_lowered_limit_holds_back_only_what_is_held(scene: Scene) -> None:
    put(scene, 6, full_at(4))
    assert unhold(scene, full_at(1)) == 0
    assert (scene.queue().ready, scene.queue().held) == (4, 2)


def test_scheduled_jobs_use_up_the_room_of_held_ones(scene: Scene) -> None:
    put(scene, 2, delay_s=60)
    hold(scene, 3)
    assert unhold(scene, full_at(3)) == 1


def test_unholding_is_bounded_and_goes_by_queue_then_tenant(scene: Scene) -> None:
    for queue, name in (("b", "x"), ("a", "y"), ("a", "x"), ("b", "w")):
        scene.enqueue(*jobs(scene, 2, queue=queue, tenant=name), limits=(every_tenant(waiting=0, when_full="hold"),))
    order = []
    while unhold(scene, limit=1):
        [lease] = scene.claim(scene.hire(6000), 9, queues=("a", "b"))
        order.append((lease.queue, lease.tenant))
    assert order == [("a", "x")] * 2 + [("a", "y")] * 2 + [("b", "w")] * 2 + [("b", "x")] * 2


def test_a_tenant_without_room_does_not_hold_up_the_others(scene: Scene) -> None:
    hold(scene, 3)
    zed = scene.enqueue(*jobs(scene, 2, tenant="zed"), limits=(tenant("zed", waiting=0, when_full="hold"),))
    assert unhold(scene, full_at(0), tenant("zed", waiting=1), limit=2) == 1
    assert claimed(scene) == [zed.receipts[0].id]


def test_unholding_where_nothing_is_held_does_nothing(scene: Scene) -> None:
    put(scene, 1)
    assert unhold(scene) == 0
    hold(scene)
    assert unhold(scene, limit=0) == 0


def test_jobs_enqueued_while_others_are_held_are_held_behind_them(scene: Scene) -> None:
    """Held ones count: nobody overtakes them while the limit is full."""
    worker, limit = scene.hire(6000), full_at(1)
    first = put(scene, 2, limit)
    [lease] = scene.claim(worker)
    scene.settle(worker, completed(lease))
    second = put(scene, 1, limit)
    assert held_ids(second) == [second.receipts[0].id]
    assert unhold(scene, limit) == 1
    assert claimed(scene) == held_ids(first)


# What people do to held jobs.


def test_a_held_job_can_be_cancelled(scene: Scene) -> None:
    [held] = hold(scene, dedup_key="once")
    told = scene.cancel(held)
    assert told.refused is None
    assert scene.status(held) == "cancelled"
    assert (scene.see(held).finished_at, scene.attempts(held)) == (scene.now, ())
    assert put(scene, 1, dedup_key="once").receipts[0].disposition == "created"
    assert unhold(scene) == 0
    [record] = scene.audit()
    assert (record.before, record.after) == (
        {"status": "pending", "attempts": 0},
        {"status": "cancelled", "attempts": 0},
    )


def test_a_held_job_failed_by_hand_is_dead_or_waits_for_its_retry(scene: Scene) -> None:
    [dead], [retried_later] = hold(scene), hold(scene)
    scene.fail(dead)
    scene.fail(retried_later, retry_delay_s=30)
    assert (scene.status(dead), scene.status(retried_later)) == ("dead", "failed")
    [attempt] = scene.attempts(dead)
    assert (attempt.attempt, attempt.outcome, attempt.worker) == (1, "failed_by_hand", None)
    assert (scene.queue().scheduled, scene.queue().held, scene.queue().failed) == (1, 0, 1)
    assert unhold(scene, full_at(0)) == 0
    scene.later(30)
    scene.promote()
    assert claimed(scene) == [retried_later]


def test_a_held_job_can_be_buried(scene: Scene) -> None:
    [held] = hold(scene)
    scene.bury(held)
    assert scene.status(held) == "dead"
    assert scene.letter(scene.see(held).seq).error_type == "Buried"
    assert unhold(scene) == 0


def test_a_foreign_tenant_does_nothing_to_a_held_job(scene: Scene) -> None:
    [held] = hold(scene)
    foreign = only("bolt")
    acts = (scene.cancel(held, foreign), scene.fail(held, scope=foreign), scene.bury(held, scope=foreign))
    assert [act.refused for act in acts] == ["not_found"] * 3
    assert scene.find(held, foreign) is None
    assert (scene.status(held), scene.queue().held) == ("pending", 1)


def test_a_held_job_is_not_reset(scene: Scene) -> None:
    [held] = hold(scene)
    assert scene.run(Reset(scope=ALL_TENANTS, id=held, by="ada")).refused == "not_allowed"


def test_a_held_job_is_never_removed_by_retention(scene: Scene) -> None:
    [held] = hold(scene)
    scene.later(1000)
    assert scene.retain(finished_before=scene.now, closed_before=scene.now) == 0
    assert scene.status(held) == "pending"


def test_what_a_held_job_carries_survives(scene: Scene) -> None:
    [held] = hold(scene, payload='{"a":"\\u0000é𝄞"}', headers={"x": "y"}, refs={"user": 7}, category="mail", priority=3)
    unhold(scene)
    [lease] = scene.claim(scene.hire())
    assert (lease.id, lease.payload, lease.headers, lease.refs) == (held, '{"a":"\\u0000é𝄞"}', {"x": "y"}, {"user": 7})
    assert (lease.category, lease.band, lease.enqueued_at) == ("mail", 3, scene.now)
