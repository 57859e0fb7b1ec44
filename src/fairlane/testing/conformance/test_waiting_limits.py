"""Tenants' limits on what may wait, and on a payload's size: warn, reject or hold."""

from __future__ import annotations

import pytest

from fairlane.core.limits import NO_LIMIT, Limit
from fairlane.core.ops import EnqueueResult, LimitHit
from fairlane.testing.conformance.held_jobs import full_at, held_ids, hit, hold, jobs, put
from fairlane.testing.conformance.limits import every_tenant, set_limit, tenant
from fairlane.testing.conformance.samples import completed, retried
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("I2")

POLICIES = ("warn", "reject", "hold")
each_policy = pytest.mark.parametrize("policy", POLICIES)


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


@each_policy
def test_a_caller_that_has_counted_waits_for_no_count_of_limits_that_only_warn(scene: Scene, policy: str) -> None:
    result = scene.enqueue(*jobs(scene, 3), limits=(full_at(2, policy),), warns=False)
    assert result.refused == (hit(2, 0, "reject") if policy == "reject" else None)
    assert result.hits == ((hit(2, 0, "hold"),) if policy == "hold" else ())
    assert held_ids(result) == [receipt.id for receipt in result.receipts[2:] if policy == "hold"]
    [one] = scene.enqueue(scene.job(tenant="acme"), limits=(full_at(2, "warn"),), warns=False).receipts
    assert (one.disposition, one.held) == ("created", False)


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


def test_no_waiting_limit_said_by_a_person_wins_over_the_limit_of_the_code(scene: Scene) -> None:
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
