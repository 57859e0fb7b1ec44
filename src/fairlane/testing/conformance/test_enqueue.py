"""Putting jobs in: what is created, what is recognised, what is refused."""

from __future__ import annotations

import pytest

from fairlane.core.job import JobSpec
from fairlane.testing.conformance.samples import completed
from fairlane.testing.conformance.scene import Scene


def test_a_new_job_is_created_under_the_id_its_client_made(scene: Scene) -> None:
    job = scene.job()
    [receipt] = scene.enqueue(job).receipts
    assert (receipt.disposition, receipt.id, receipt.key) == ("created", job.id, None)
    assert scene.see(job.id).seq == receipt.seq


@pytest.mark.requirement("L1", "L4")
def test_a_job_keeps_everything_it_was_given(scene: Scene) -> None:
    parent = scene.put()
    job = scene.job(
        "mail.send",
        payload='{"to": 7}',
        payload_version=3,
        tenant="acme",
        queue="critical",
        priority=2,
        category="notifications",
        idempotency_key="welcome-7",
        dedup_key="welcome",
        correlation_id="order-12",
        parent_id=parent.id,
        created_by="ada",
        refs={"user": 7, "order": "o-12"},
        headers={"traceparent": "00-ab-cd-01"},
        max_attempts=3,
        timeout_s=12.5,
    )
    scene.enqueue(job)
    seen = scene.see(job.id)
    assert seen.status == "pending"
    assert (seen.type, seen.payload, seen.payload_version) == ("mail.send", '{"to": 7}', 3)
    assert (seen.tenant, seen.queue, seen.priority, seen.category) == ("acme", "critical", 2, "notifications")
    assert (seen.idempotency_key, seen.dedup_key, seen.correlation_id) == ("welcome-7", "welcome", "order-12")
    assert (seen.parent_id, seen.created_by) == (parent.id, "ada")
    assert (seen.refs, seen.headers) == ({"user": 7, "order": "o-12"}, {"traceparent": "00-ab-cd-01"})
    assert (seen.max_attempts, seen.timeout_s) == (3, 12.5)
    assert (seen.attempt, seen.attempts, seen.crashes) == (0, 0, 0)
    assert (seen.enqueued_at, seen.scheduled_at, seen.run_at) == (scene.now, scene.now, scene.now)
    assert (seen.started_at, seen.finished_at, seen.worker, seen.result) == (None, None, None, None)
    assert (seen.error_class, seen.error_type, seen.last_error, seen.last_error_at) == (None, None, None, None)
    assert seen.cancel_requested is False


def test_a_job_without_keys_shows_its_own_id_in_their_place(scene: Scene) -> None:
    job = scene.put()
    seen = scene.see(job.id)
    assert (seen.idempotency_key, seen.correlation_id, seen.dedup_key) == (str(job.id), str(job.id), None)


def test_receipts_come_in_the_order_of_the_jobs_and_so_do_their_numbers(scene: Scene) -> None:
    jobs = [scene.job(tenant=tenant, priority=priority) for tenant in "cab" for priority in (9, 0, 5)]
    receipts = scene.enqueue(*jobs).receipts
    assert [receipt.id for receipt in receipts] == [job.id for job in jobs]
    assert [receipt.seq for receipt in receipts] == sorted({receipt.seq for receipt in receipts})


@pytest.mark.parametrize("key", ["idempotency_key", "dedup_key"])
def test_jobs_with_keys_are_numbered_in_the_order_given_and_the_first_of_a_key_wins(scene: Scene, key: str) -> None:
    jobs = [scene.job(tenant=tenant, **{key: name}) for tenant in "ba" for name in ("z", "m", "z", "a")]
    receipts = scene.enqueue(*jobs).receipts
    assert [receipt.id for receipt in receipts] == [jobs[first].id for first in (0, 1, 0, 3, 4, 5, 4, 7)]
    created = [receipt.seq for receipt in receipts if receipt.disposition == "created"]
    assert len(created) == 6
    assert created == sorted(created)


def test_a_later_call_gets_higher_numbers(scene: Scene) -> None:
    assert scene.put().seq < scene.put().seq


def test_enqueueing_nothing_is_fine(scene: Scene) -> None:
    assert scene.enqueue().receipts == ()


@pytest.mark.requirement("W6")
def test_a_repeated_enqueue_after_a_lost_reply_makes_one_job(scene: Scene) -> None:
    job = scene.job(idempotency_key="k", dedup_key="d")
    [first] = scene.enqueue(job).receipts
    scene.later(60)
    [again] = scene.enqueue(job).receipts
    assert (again.disposition, again.id, again.seq) == ("replayed", first.id, first.seq)
    assert scene.list_jobs() == [job.id]
    assert scene.see(job.id).enqueued_at == scene.at(-60)


def test_a_replay_of_a_finished_job_does_not_run_it_again(scene: Scene) -> None:
    job = scene.job()
    scene.enqueue(job)
    worker = scene.hire()
    [lease] = scene.claim(worker)
    scene.settle(worker, completed(lease))
    [again] = scene.enqueue(job).receipts
    assert again.disposition == "replayed"
    assert scene.claim(worker) == ()


def test_one_call_with_the_same_job_twice_makes_one(scene: Scene) -> None:
    job = scene.job()
    first, again = scene.enqueue(job, job).receipts
    assert (first.disposition, again.disposition) == ("created", "replayed")
    assert first.seq == again.seq


@pytest.mark.parametrize(
    "other",
    [
        {"type": "mail.other"},
        {"payload": '{"user_id": 8}'},
        {"payload": '{ "user_id":7}'},
        {"tenant": "acme"},
        {"queue": "bulk"},
        {"priority": 1},
        {"idempotency_key": "k"},
        {"dedup_key": "d"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_an_id_taken_by_other_content_is_a_conflict_and_changes_nothing(scene: Scene, other: dict[str, str]) -> None:
    job = scene.put()
    before = scene.find(job.id)
    [receipt] = scene.enqueue(scene.job(**{"type": "mail.send", "id": job.id, **other})).receipts
    assert (receipt.disposition, receipt.id) == ("conflict", job.id)
    assert scene.find(job.id) == before
    assert scene.list_jobs() == [job.id]


@pytest.mark.parametrize("key", [None, "k"])
def test_whose_line_a_priority_orders_is_no_content_of_its_own(scene: Scene, key: str | None) -> None:
    job = scene.put(priority=5, priority_scope="queue", idempotency_key=key)
    again = scene.job(id=job.id, priority=5, priority_scope="tenant", idempotency_key=key)
    [receipt] = scene.enqueue(again).receipts
    assert (receipt.disposition, receipt.seq) == ("replayed", job.seq)


def test_a_conflict_spares_the_other_jobs_of_its_call(scene: Scene) -> None:
    taken = scene.put()
    good = scene.job()
    conflict, created = scene.enqueue(scene.job("mail.other", id=taken.id), good).receipts
    assert (conflict.disposition, created.disposition) == ("conflict", "created")
    assert scene.status(good.id) == "pending"


def test_two_jobs_of_one_call_with_one_id_and_different_content_are_a_job_and_a_conflict(scene: Scene) -> None:
    job = scene.job()
    created, conflict = scene.enqueue(job, scene.job("mail.other", id=job.id)).receipts
    assert (created.disposition, conflict.disposition) == ("created", "conflict")
    assert scene.see(job.id).type == "mail.send"


@pytest.mark.requirement("Q6")
def test_a_store_at_its_capacity_refuses_the_whole_call(scene: Scene) -> None:
    scene.put_many(2)
    scene.put(delay_s=60)
    result = scene.enqueue(scene.job(), scene.job(), capacity=4)
    assert (result.full, result.receipts, result.depth) == (True, (), 3)
    assert len(scene.list_jobs()) == 3


@pytest.mark.requirement("Q6")
def test_a_store_takes_jobs_right_up_to_its_capacity(scene: Scene) -> None:
    scene.put_many(2)
    result = scene.enqueue(scene.job(), scene.job(), capacity=4)
    assert (result.full, len(result.receipts)) == (False, 2)
    assert scene.enqueue(scene.job(), capacity=4).full


def test_the_depth_is_counted_no_further_than_the_capacity(scene: Scene) -> None:
    scene.put_many(5)
    assert scene.enqueue(scene.job(), capacity=3).depth == 3


def test_no_depth_is_counted_where_no_capacity_is_given(scene: Scene) -> None:
    assert scene.enqueue(scene.job()).depth is None


def test_leased_and_finished_jobs_leave_room_for_others(scene: Scene) -> None:
    scene.finished()
    scene.leased()
    assert not scene.enqueue(scene.job(), capacity=1).full


def test_a_job_with_a_delay_waits_until_its_seconds_have_passed(scene: Scene) -> None:
    job = scene.put(delay_s=30)
    worker = scene.hire(lease_s=600)
    seen = scene.see(job.id)
    assert (seen.status, seen.run_at, seen.scheduled_at) == ("pending", scene.at(30), scene.at(30))
    scene.later(29.999999)
    assert scene.claim(worker) == ()
    scene.later(0.000001)
    [lease] = scene.claim(worker)
    assert (lease.id, lease.due_at) == (job.id, scene.now)


def test_run_at_wins_over_a_delay(scene: Scene) -> None:
    job = scene.put(run_at=scene.at(90), delay_s=30)
    assert scene.see(job.id).run_at == scene.at(90)


@pytest.mark.parametrize("options", [{"delay_s": 0.0}, {"delay_s": -5.0}, {}], ids=["no delay", "negative", "none"])
def test_a_job_due_now_is_ready_now(scene: Scene, options: dict[str, float]) -> None:
    scene.put(**options)
    assert (scene.queue().ready, scene.queue().scheduled) == (1, 0)


def test_a_run_at_in_the_past_makes_it_ready_with_that_due_time(scene: Scene) -> None:
    late = scene.at(-3600)
    job = scene.put(run_at=late)
    assert scene.see(job.id).run_at == late
    assert scene.queue().oldest_due_at == late
    [lease] = scene.claim(scene.hire())
    assert lease.due_at == late


def test_a_job_due_at_this_very_instant_is_ready(scene: Scene) -> None:
    scene.put(run_at=scene.now)
    assert scene.queue().ready == 1


def specs_in_one_call(scene: Scene, count: int) -> list[JobSpec]:
    return [scene.job(tenant=f"t{n % 7}", delay_s=float(n % 3)) for n in range(count)]


def test_a_call_of_many_jobs_creates_each_of_them(scene: Scene) -> None:
    jobs = specs_in_one_call(scene, 500)
    receipts = scene.enqueue(*jobs).receipts
    assert {receipt.disposition for receipt in receipts} == {"created"}
    assert set(scene.list_jobs(limit=200)) == {job.id for job in jobs}
