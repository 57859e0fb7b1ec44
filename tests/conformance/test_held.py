"""Tenants' limits on what may wait: warn, reject or hold; and how held jobs go on."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.core.ids import JobId
from fairlane.core.limit import NO_LIMIT, Limit
from fairlane.core.ops import ALL_TENANTS, EnqueueResult, LimitHit, Reset, only
from tests.support.acting import Scene
from tests.support.limiting import claimed, clear_limit, every_tenant, set_limit, tenant, unhold
from tests.support.making import completed, retried

pytestmark = pytest.mark.requirement("I2")

POLICIES = ("warn", "reject", "hold")
each_policy = pytest.mark.parametrize("policy", POLICIES)


def full_at(waiting: int, policy: Any = "hold", **said: Any) -> Limit:
    return tenant("acme", waiting=waiting, when_full=policy, **said)


def jobs(scene: Scene, count: int, **options: Any) -> list[Any]:
    return [scene.job(**{"tenant": "acme", **options}) for _ in range(count)]


def put(scene: Scene, count: int, *limits: Limit, **options: Any) -> EnqueueResult:
    return scene.enqueue(*jobs(scene, count, **options), limits=limits)


def hit(limit: int, found: int, policy: Any, queue: str = "default", name: str = "acme") -> LimitHit:
    return LimitHit(tenant=name, queue=queue, cause="waiting", limit=limit, found=found, policy=policy)


def held_ids(result: EnqueueResult) -> list[JobId]:
    return [receipt.id for receipt in result.receipts if receipt.held]


def hold(scene: Scene, count: int = 1, **options: Any) -> list[JobId]:
    """So many jobs of acme that are held at once."""
    ids = held_ids(put(scene, count, full_at(0), **options))
    assert len(ids) == count
    return ids


# At the limit.


@each_policy
@pytest.mark.parametrize("by", ["given", "set"])
def test_below_the_limit_nothing_is_said(scene: Scene, policy: str, by: str) -> None:
    limit = full_at(3, policy)
    given = (limit,) if by == "given" else ()
    if by == "set":
        set_limit(scene, limit)
    for _ in range(3):
        result = put(scene, 1, *given)
        assert (result.hits, result.refused, held_ids(result)) == ((), None, [])
    result = put(scene, 1, *given)
    assert result.refused == (hit(3, 3, "reject") if policy == "reject" else None)
    assert result.hits == (() if policy == "reject" else (hit(3, 3, policy),))


def test_with_warn_the_jobs_are_queued_all_the_same(scene: Scene) -> None:
    result = put(scene, 4, full_at(2, "warn"))
    assert result.hits == (hit(2, 0, "warn"),)
    assert [receipt.disposition for receipt in result.receipts] == ["created"] * 4
    assert (scene.queue().ready, scene.queue().held) == (4, 0)


def test_warn_is_what_happens_where_nobody_says(scene: Scene) -> None:
    assert put(scene, 2, tenant("acme", waiting=1)).hits == (hit(1, 0, "warn"),)


def test_with_reject_the_whole_call_is_refused_and_nothing_written(scene: Scene) -> None:
    other = scene.job(tenant="bolt")
    result = scene.enqueue(other, *jobs(scene, 3), limits=(full_at(2, "reject"),))
    assert result == EnqueueResult(refused=hit(2, 0, "reject"))
    assert scene.list_jobs() == []


def test_with_hold_those_beyond_the_limit_are_held_in_their_order(scene: Scene) -> None:
    result = put(scene, 4, full_at(2))
    assert [receipt.held for receipt in result.receipts] == [False, False, True, True]
    assert result.hits == (hit(2, 0, "hold"),)
    assert (scene.queue().ready, scene.queue().held, scene.queue().pending) == (2, 2, 4)


@each_policy
def test_a_limit_of_nothing_is_always_full(scene: Scene, policy: str) -> None:
    result = put(scene, 1, full_at(0, policy))
    assert (result.refused or result.hits[0]) == hit(0, 0, policy)


def test_no_limit_said_by_a_person_wins_over_the_limit_of_the_code(scene: Scene) -> None:
    set_limit(scene, tenant("acme", waiting=NO_LIMIT))
    assert put(scene, 3, full_at(1, "reject")).hits == ()


def test_what_is_found_is_counted_only_up_to_the_limit(scene: Scene) -> None:
    put(scene, 5)
    assert put(scene, 1, full_at(3)).hits == (hit(3, 3, "hold"),)


def test_ready_scheduled_held_and_leased_jobs_count_and_finished_ones_do_not(scene: Scene) -> None:
    worker = scene.hire(6000)
    put(scene, 3)
    running, done, retry = scene.claim(worker, 3)
    scene.settle(worker, completed(done), retried(retry, 60))
    put(scene, 1)
    put(scene, 1, delay_s=60)
    hold(scene)
    scene.cancel(put(scene, 1).receipts[0].id)
    scene.fail(put(scene, 1).receipts[0].id)
    assert running.id in scene.list_jobs(statuses=("processing",))
    assert put(scene, 1, full_at(5)).hits == (hit(5, 5, "hold"),)
    assert put(scene, 1, full_at(7)).hits == ()


def test_each_queue_of_a_tenant_is_counted_for_itself(scene: Scene) -> None:
    put(scene, 2, queue="bulk")
    assert put(scene, 2, full_at(2)).hits == ()
    result = scene.enqueue(*jobs(scene, 1, queue="bulk"), *jobs(scene, 1), limits=(full_at(2),))
    assert result.hits == (hit(2, 2, "hold", "bulk"), hit(2, 2, "hold", "default"))


def test_each_tenant_is_counted_for_itself(scene: Scene) -> None:
    put(scene, 2)
    limit = every_tenant(waiting=2, when_full="hold")
    result = scene.enqueue(*jobs(scene, 3, tenant="bolt"), *jobs(scene, 1), limits=(limit,))
    assert [receipt.held for receipt in result.receipts] == [False, False, True, True]
    assert result.hits == (hit(2, 2, "hold"), hit(2, 0, "hold", name="bolt"))


def test_hits_are_told_by_tenant_then_queue(scene: Scene) -> None:
    names = [("b", "x"), ("a", "z"), ("b", "a"), ("a", "é"), ("B", "x")]
    specs = [scene.job(tenant=name, queue=queue) for name, queue in names]
    hits = scene.enqueue(*specs, limits=(every_tenant(waiting=0),)).hits
    assert [(told.tenant, told.queue) for told in hits] == sorted(names)


def test_the_particular_wins_over_the_general_field_by_field(scene: Scene) -> None:
    limits = (
        every_tenant(waiting=1, when_full="reject"),
        every_tenant("bulk", waiting=2),
        tenant("acme", when_full="hold"),
        tenant("acme", "critical", waiting=3),
    )

    def met(queue: str, name: str = "acme") -> tuple[int, str]:
        result = scene.enqueue(*jobs(scene, 4, queue=queue, tenant=name), limits=limits)
        [told] = result.hits or (result.refused,)
        assert told is not None
        return told.limit, told.policy

    assert met("default") == (1, "hold")
    assert met("bulk") == (2, "hold")
    assert met("critical") == (3, "hold")
    assert met("bulk", "bolt") == (2, "reject")
    set_limit(scene, tenant("acme", waiting=0))
    assert met("bulk") == (0, "hold")
    assert met("critical") == (3, "hold")


def test_other_kinds_of_limits_do_not_concern_enqueueing(scene: Scene) -> None:
    others = (
        Limit(kind="queue", name="default", waiting=0, running=0),
        Limit(kind="type", name="mail.send", waiting=0),
    )
    assert put(scene, 1, *others, tenant("acme", running=0)).hits == ()


def test_the_first_refusal_in_the_order_of_the_jobs_is_told(scene: Scene) -> None:
    limits = (tenant("b", waiting=1, when_full="reject"), tenant("a", waiting=0, when_full="reject"))
    order = [scene.job(tenant=name) for name in ("b", "c", "b", "a")]
    assert scene.enqueue(*order, limits=limits).refused == hit(1, 0, "reject", name="b")
    assert scene.enqueue(*reversed(order), limits=limits).refused == hit(0, 0, "reject", name="a")


def test_a_refusal_wins_over_other_tenants_hits(scene: Scene) -> None:
    limits = (tenant("a", waiting=0, when_full="hold"), tenant("b", waiting=0, when_full="reject"))
    result = scene.enqueue(scene.job(tenant="a"), scene.job(tenant="b"), limits=limits)
    assert result == EnqueueResult(refused=hit(0, 0, "reject", name="b"))
    assert scene.list_jobs() == []


# What is no new job does not count.


@pytest.mark.requirement("W6")
@each_policy
def test_an_enqueue_whose_reply_was_lost_is_not_refused_at_the_limit(scene: Scene, policy: str) -> None:
    limit, specs = full_at(2, policy), jobs(scene, 2)
    first = scene.enqueue(*specs, limits=(limit,))
    again = scene.enqueue(*specs, limits=(limit,))
    assert [receipt.disposition for receipt in again.receipts] == ["replayed"] * 2
    assert [receipt.seq for receipt in again.receipts] == [receipt.seq for receipt in first.receipts]
    assert (again.refused, again.hits) == (None, ())


@pytest.mark.requirement("W6")
@each_policy
@pytest.mark.parametrize("key", ["idempotency_key", "dedup_key"])
def test_duplicates_do_not_count_against_the_limit(scene: Scene, policy: str, key: str) -> None:
    limit = full_at(2, policy)
    result = scene.enqueue(*jobs(scene, 3, **{key: "once"}), *jobs(scene, 1), limits=(limit,))
    assert [receipt.disposition for receipt in result.receipts] == ["created", "duplicate", "duplicate", "created"]
    assert (result.refused, result.hits) == (None, ())
    result = scene.enqueue(*jobs(scene, 1, **{key: "once"}), limits=(limit,))
    assert [receipt.disposition for receipt in result.receipts] == ["duplicate"]
    assert (result.refused, result.hits) == (None, ())


@each_policy
def test_an_id_that_is_taken_does_not_count_against_the_limit(scene: Scene, policy: str) -> None:
    limit = full_at(1, policy)
    [spec] = jobs(scene, 1)
    scene.enqueue(spec, limits=(limit,))
    result = scene.enqueue(*jobs(scene, 1, id=spec.id, payload='{"other":1}'), limits=(limit,))
    assert [receipt.disposition for receipt in result.receipts] == ["conflict"]
    assert (result.refused, result.hits) == (None, ())


def test_a_replayed_job_among_new_ones_leaves_them_their_room(scene: Scene) -> None:
    limit = full_at(2)
    [known] = jobs(scene, 1)
    scene.enqueue(known, limits=(limit,))
    result = scene.enqueue(known, *jobs(scene, 2), limits=(limit,))
    assert [(receipt.disposition, receipt.held) for receipt in result.receipts] == [
        ("replayed", False),
        ("created", False),
        ("created", True),
    ]


@pytest.mark.requirement("W6")
def test_a_held_job_keeps_its_keys(scene: Scene) -> None:
    [held] = hold(scene, dedup_key="once", idempotency_key="id")
    for key in ({"dedup_key": "once"}, {"idempotency_key": "id"}):
        [receipt] = put(scene, 1, **key).receipts
        assert (receipt.disposition, receipt.id, receipt.held) == ("duplicate", held, False)


# The size of a payload.


def test_a_payload_over_the_tenants_size_has_the_call_refused(scene: Scene) -> None:
    limit, payload = tenant("acme", payload_bytes=10), '{"é":1234}'
    result = scene.enqueue(scene.job(tenant="acme", payload="{}"), *jobs(scene, 1, payload=payload), limits=(limit,))
    told = LimitHit(tenant="acme", queue="default", cause="payload_bytes", limit=10, found=11, policy="reject")
    assert result == EnqueueResult(refused=told)
    assert scene.list_jobs() == []


def test_a_payload_of_exactly_the_size_is_taken(scene: Scene) -> None:
    payload = '{"a":12345}'
    assert put(scene, 1, tenant("acme", payload_bytes=11), payload=payload).refused is None
    assert put(scene, 1, tenant("acme", payload_bytes=10), tenant("bolt", payload_bytes=1), payload=payload).refused
    set_limit(scene, tenant("acme", "default", payload_bytes=NO_LIMIT))
    assert put(scene, 1, tenant("acme", payload_bytes=10), payload=payload).refused is None


def test_the_size_is_looked_at_before_what_waits(scene: Scene) -> None:
    limits = (every_tenant(waiting=0, when_full="reject"), tenant("bolt", payload_bytes=1))
    refused = scene.enqueue(*jobs(scene, 1), *jobs(scene, 1, tenant="bolt"), limits=limits).refused
    assert refused is not None
    assert (refused.tenant, refused.cause) == ("bolt", "payload_bytes")


def test_the_capacity_is_looked_at_first_and_counts_held_jobs(scene: Scene) -> None:
    hold(scene, 2)
    limits = (full_at(0, "reject", payload_bytes=0),)
    assert scene.enqueue(*jobs(scene, 2), capacity=3, limits=limits) == EnqueueResult(full=True, depth=2)
    told = scene.enqueue(*jobs(scene, 1), capacity=3, limits=limits)
    assert (told.full, told.depth, told.refused is not None) == (False, 2, True)


# Held jobs.


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
