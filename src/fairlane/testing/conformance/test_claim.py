"""What a claim gives: leases, fenced, started or prefetched; the same again when its reply was lost."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from fairlane.core.ops import Start, Turn
from fairlane.testing.conformance.samples import completed, released, retried, snoozed
from fairlane.testing.conformance.scene import Scene, wanting

pytestmark = pytest.mark.requirement("W5")


def test_a_lease_carries_everything_a_runner_needs(scene: Scene) -> None:
    parent = scene.put(queue="elsewhere")
    options: dict[str, Any] = {
        "payload": '{"to": 7}',
        "payload_version": 3,
        "tenant": "acme",
        "queue": "critical",
        "priority": 2,
        "category": "notifications",
        "idempotency_key": "welcome-7",
        "correlation_id": "order-12",
        "parent_id": parent.id,
        "created_by": "ada",
        "refs": {"user": 7, "order": "o-12"},
        "headers": {"traceparent": "00-ab-cd-01"},
        "max_attempts": 3,
        "timeout_s": 12.5,
    }
    job = scene.put("mail.send", **options)
    scene.later(3)
    [lease] = scene.claim(scene.hire(), lane="fast", queues=("critical",))
    assert {name: getattr(lease, name) for name in options} == options
    assert (lease.seq, lease.id, lease.type, lease.lane) == (job.seq, job.id, "mail.send", "fast")
    assert (lease.attempt, lease.attempts, lease.crashes, lease.suspect) == (1, 0, 0, False)
    assert (lease.due_at, lease.enqueued_at, lease.leased_at) == (scene.at(-3), scene.at(-3), scene.now)


def test_a_lease_of_a_plain_job_has_nothing_it_was_not_given(scene: Scene) -> None:
    scene.put()
    [lease] = scene.claim(scene.hire())
    assert (lease.timeout_s, lease.category, lease.parent_id, lease.created_by, lease.retry) == (None,) * 5
    assert (lease.refs, lease.headers) == ({}, {})


def test_a_retry_policy_given_at_the_call_reaches_the_worker(scene: Scene) -> None:
    policy = '{"delays": [1, 2.5]}'
    scene.put(retry=Raw(policy.encode()))
    [lease] = scene.claim(scene.hire())
    assert lease.retry is not None
    assert bytes(lease.retry).decode() == policy


@pytest.mark.requirement("L1")
def test_a_started_job_is_processing_and_names_its_worker(scene: Scene) -> None:
    scene.put()
    worker = scene.hire()
    scene.later(2)
    [lease] = scene.claim(worker)
    job = scene.see(lease.id)
    assert (job.status, job.worker, job.attempt, job.started_at) == ("processing", worker, 1, scene.now)


def test_a_prefetched_job_is_still_pending(scene: Scene) -> None:
    scene.put()
    worker = scene.hire()
    [lease] = scene.prefetch(worker)
    job = scene.see(lease.id)
    assert (job.status, job.worker, job.attempt, job.started_at) == ("pending", worker, 1, None)
    assert lease.started is False


def test_the_first_ones_claimed_begin_and_the_rest_is_prefetched(scene: Scene) -> None:
    scene.put_many(5)
    leases = scene.claim(scene.hire(), 5, start=2)
    assert [lease.started for lease in leases] == [True, True, False, False, False]
    assert [scene.status(lease.id) for lease in leases] == ["processing"] * 2 + ["pending"] * 3


def test_a_started_lease_ends_after_twice_its_timeout_and_a_prefetched_one_soon(scene: Scene) -> None:
    scene.put(timeout_s=20)
    scene.put()
    scene.put()
    leases = scene.claim(scene.hire(), 3, start=2, timeout_s=100, start_by_s=7)
    assert [lease.deadline_at for lease in leases] == [scene.at(40), scene.at(200), scene.at(7)]


def test_a_prefetched_attempt_that_starts_is_processing_with_a_new_deadline(scene: Scene) -> None:
    worker, lease = scene.leased(start=False)
    scene.later(4)
    assert scene.start(worker, lease, timeout_s=10).refused == ()
    job = scene.see(lease.id)
    assert (job.status, job.started_at) == ("processing", scene.now)
    scene.renew(worker, 600)
    scene.later(19)
    assert scene.reclaim() == ()
    scene.later(2)
    assert [gone.cause for gone in scene.reclaim()] == ["deadline_passed"]


def test_a_start_reported_late_counts_from_when_the_attempt_began(scene: Scene) -> None:
    worker, lease = scene.leased(start=False)
    scene.later(4)
    began = scene.at(-1.5)
    scene.turn(
        worker, starts=(Start(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, timeout_s=10, ran_s=1.5),)
    )
    assert scene.see(lease.id).started_at == began
    scene.renew(worker, 600)
    scene.later(18.499999)
    assert scene.reclaim() == ()
    scene.later(0.000001)
    assert [gone.cause for gone in scene.reclaim()] == ["deadline_passed"]
    assert [attempt.started_at for attempt in scene.attempts(lease.id)] == [began]


def test_a_start_told_again_sets_the_deadline_again_and_keeps_the_instant(scene: Scene) -> None:
    worker, lease = scene.leased(start=False)
    scene.start(worker, lease, timeout_s=10)
    began = scene.now
    scene.later(4)
    assert scene.start(worker, lease, timeout_s=10).refused == ()
    assert scene.see(lease.id).started_at == began
    scene.renew(worker, 600)
    scene.later(17)
    assert scene.reclaim() == ()
    scene.later(3)
    assert len(scene.reclaim()) == 1


def test_a_start_of_an_attempt_whose_lease_is_gone_is_refused(scene: Scene) -> None:
    worker, lease = scene.leased(start=False)
    scene.settle(worker, released(lease))
    [refusal] = scene.start(worker, lease).refused
    assert (refusal.seq, refusal.attempt) == (lease.seq, lease.attempt)
    assert scene.status(lease.id) == "pending"


def test_a_start_by_another_worker_or_of_another_attempt_is_refused(scene: Scene) -> None:
    worker, lease = scene.leased(start=False)
    assert scene.start(scene.hire(), lease).refused
    wrong = Start(seq=lease.seq, attempt=lease.attempt + 1, claim_no=lease.claim_no, timeout_s=10)
    assert scene.turn(worker, starts=(wrong,)).refused
    assert scene.status(lease.id) == "pending"


def test_no_job_is_claimed_twice(scene: Scene) -> None:
    scene.put_many(10)
    leases = [lease for worker in (scene.hire(), scene.hire(), scene.hire()) for lease in scene.claim(worker, 4)]
    assert len(leases) == len({lease.id for lease in leases}) == 10


@pytest.mark.parametrize("back", [released, retried, snoozed])
def test_the_attempt_grows_at_every_claim_started_or_not(scene: Scene, back: Any) -> None:
    scene.put()
    worker = scene.hire(lease_s=10_000)
    seen = []
    for start in (0, 1, 0):
        scene.later(60)
        [lease] = scene.claim(worker, start=start)
        seen.append(lease.attempt)
        scene.settle(worker, back(lease))
    assert seen == [1, 2, 3]
    assert scene.see(lease.id).attempt == 3


def test_only_charged_runs_count_as_attempts(scene: Scene) -> None:
    scene.put()
    worker = scene.hire(lease_s=10_000)
    charged = []
    for back in (released, retried, snoozed, retried, released):
        scene.later(60)
        [lease] = scene.claim(worker)
        charged.append(lease.attempts)
        scene.settle(worker, back(lease))
    assert charged == [0, 0, 1, 1, 2]


def test_a_turn_repeated_after_a_lost_reply_returns_the_same_leases(scene: Scene) -> None:
    scene.put_many(5)
    worker = scene.hire()
    first = scene.turn(worker, wanting(2, start=1), claim_no=7)
    scene.later(1)
    again = scene.turn(worker, wanting(2, start=1), claim_no=7)
    assert again.leases == first.leases
    assert len(scene.turn(worker, wanting(9), claim_no=8).leases) == 3


def test_a_repeated_turn_accepts_again_what_it_settled(scene: Scene) -> None:
    scene.put_many(3)
    worker = scene.hire()
    [lease] = scene.turn(worker, wanting(1), claim_no=1).leases
    first = scene.turn(worker, wanting(1), claim_no=2, outcomes=(completed(lease),))
    again = scene.turn(worker, wanting(1), claim_no=2, outcomes=(completed(lease),))
    assert (again.leases, again.refused) == (first.leases, ())
    assert len(scene.attempts(lease.id)) == 1


def test_another_worker_with_the_same_claim_number_gets_jobs_of_its_own(scene: Scene) -> None:
    scene.put_many(2)
    [mine] = scene.turn(scene.hire(), wanting(1), claim_no=1).leases
    [theirs] = scene.turn(scene.hire(), wanting(1), claim_no=1).leases
    assert mine.id != theirs.id


def test_one_turn_settles_and_claims(scene: Scene) -> None:
    scene.put_many(2)
    worker = scene.hire()
    [lease] = scene.claim(worker)
    result = scene.turn(worker, wanting(1), outcomes=(completed(lease),))
    assert result.refused == ()
    assert [other.id for other in result.leases] != [lease.id]
    assert scene.status(lease.id) == "completed"


def test_what_is_released_in_a_turn_may_be_claimed_in_the_same_one(scene: Scene) -> None:
    worker, lease = scene.leased()
    result = scene.turn(worker, wanting(1), outcomes=(released(lease),))
    assert [(again.id, again.attempt) for again in result.leases] == [(lease.id, 2)]


def test_a_turn_claims_what_has_become_due(scene: Scene) -> None:
    job = scene.put(delay_s=10)
    worker = scene.hire(600)
    scene.later(10)
    assert [lease.id for lease in scene.claim(worker)] == [job.id]


def test_a_turn_says_when_the_next_scheduled_job_is_due(scene: Scene) -> None:
    worker = scene.hire(600)
    assert scene.turn(worker).next_due_at is None
    scene.put(delay_s=50)
    scene.put(delay_s=20)
    assert scene.turn(worker).next_due_at == scene.at(20)
    scene.later(20)
    assert scene.turn(worker).next_due_at == scene.at(30)


def test_a_turn_says_what_time_it_is(scene: Scene) -> None:
    assert scene.turn(scene.hire()).now == scene.now


def test_a_turn_tells_whom_to_stop_until_the_attempt_ends(scene: Scene) -> None:
    worker, lease = scene.leased()
    other, _ = scene.leased()
    scene.cancel(lease.id)
    assert scene.turn(worker).cancels == (lease.seq,)
    assert scene.turn(worker).cancels == (lease.seq,)
    assert scene.turn(other).cancels == ()
    scene.settle(worker, completed(lease))
    assert scene.turn(worker).cancels == ()


def test_without_a_clock_of_its_own_an_operation_takes_the_stores(scene: Scene) -> None:
    scene.store.run(Turn(worker=scene.making.worker_id(), claim_no=1))
    result = scene.store.run(Turn(worker=scene.making.worker_id(), claim_no=1))
    assert result.now.utcoffset() is not None
    assert result.registered is False
