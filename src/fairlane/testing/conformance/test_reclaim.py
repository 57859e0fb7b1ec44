"""Taking back what nobody works on: lapsed workers, crashes, and deadlines."""

from __future__ import annotations

import pytest

from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import ALL_TENANTS, GetDeadLetter
from fairlane.testing.conformance.samples import OUTCOMES, completed, released
from fairlane.testing.conformance.scene import Scene, wanting

pytestmark = pytest.mark.requirement("Q17")


@pytest.mark.parametrize("by", ["reclaim", "turn"])
def test_the_jobs_of_a_lost_worker_run_again(scene: Scene, by: str) -> None:
    worker, lease = scene.leased()
    rescuer = scene.hire(lease_s=600)
    scene.later(15)
    reclaimed = scene.reclaim() if by == "reclaim" else scene.turn(rescuer).reclaimed
    [gone] = reclaimed
    assert (gone.seq, gone.id, gone.attempt, gone.worker) == (lease.seq, lease.id, 1, worker)
    assert (gone.cause, gone.became) == ("worker_gone", "ready")
    job = scene.see(lease.id)
    assert (job.status, job.attempts, job.crashes, job.worker, job.run_at) == ("pending", 0, 0, None, lease.due_at)
    [attempt] = scene.attempts(lease.id)
    assert (attempt.outcome, attempt.worker, attempt.ended_at) == ("lost", worker, scene.now)


def test_a_turn_claims_what_it_has_just_reclaimed(scene: Scene) -> None:
    _, lease = scene.leased()
    rescuer = scene.hire(lease_s=600)
    scene.later(15)
    [again] = scene.turn(rescuer, wanting(1)).leases
    assert (again.id, again.attempt) == (lease.id, 2)


def test_what_a_lapsed_worker_completes_is_not_taken_back_from_it_in_the_same_turn(scene: Scene) -> None:
    worker, lease = scene.leased()
    other = scene.put()
    [running] = scene.claim(worker)
    scene.later(15)
    answer = scene.turn(worker, wanting(1), outcomes=(completed(lease),))
    assert (answer.refused, answer.leases, answer.registered) == ((), (), False)
    assert [(gone.seq, gone.became) for gone in answer.reclaimed] == [(running.seq, "ready")]
    assert (scene.status(lease.id), scene.status(other.id)) == ("completed", "pending")


def test_a_worker_still_inside_its_heartbeat_loses_nothing(scene: Scene) -> None:
    scene.leased()
    scene.later(14.999999)
    assert scene.reclaim() == ()


def test_only_a_started_attempt_makes_its_job_suspect(scene: Scene) -> None:
    scene.put_many(2)
    started, prefetched = scene.claim(scene.hire(), 2, start=1)
    scene.later(60)
    scene.reclaim()
    suspects = {lease.id: lease.suspect for lease in scene.claim(scene.hire(), 2)}
    assert suspects == {started.id: True, prefetched.id: False}


@pytest.mark.parametrize(("outcome", "stays"), [("released", True), ("snoozed", False), ("retried", False)])
def test_a_suspect_is_cleared_by_an_attempt_that_ran_to_its_end(scene: Scene, outcome: str, stays: bool) -> None:
    scene.leased()
    scene.later(60)
    scene.reclaim()
    worker = scene.hire(lease_s=600)
    [lease] = scene.claim(worker)
    scene.settle(worker, OUTCOMES[outcome](lease))
    scene.later(60)
    [again] = scene.claim(worker)
    assert again.suspect is stays


def crash(scene: Scene, *, alone: bool) -> tuple[WorkerId, Lease]:
    """Let a worker die in the middle of the one job there is."""
    worker = scene.hire()
    [lease] = scene.prefetch(worker)
    scene.start(worker, lease, alone=alone)
    scene.later(60)
    return worker, lease


def test_only_crashes_while_alone_are_counted(scene: Scene) -> None:
    job = scene.put()
    for alone in (False, True, False):
        crash(scene, alone=alone)
        scene.reclaim()
    assert scene.see(job.id).crashes == 1
    [lease] = scene.claim(scene.hire())
    assert (lease.crashes, lease.suspect, lease.attempt, lease.attempts) == (1, True, 4, 0)


def test_a_job_whose_process_died_three_times_while_alone_is_dead(scene: Scene) -> None:
    job = scene.put()
    became = []
    for _ in range(3):
        crash(scene, alone=True)
        became += [gone.became for gone in scene.reclaim()]
    assert became == ["ready", "ready", "dead"]
    seen = scene.see(job.id)
    assert (seen.status, seen.crashes, seen.attempts) == ("dead", 3, 0)
    assert (seen.finished_at, seen.error_class, seen.error_type) == (scene.now, "transient", "Crashed")
    assert seen.last_error == "its process died 3 times while it ran alone"
    detail = scene.run(GetDeadLetter(scope=ALL_TENANTS, id=job.seq))
    assert detail is not None
    assert (detail.dead_letter.status, detail.dead_letter.error_type) == ("pending_review", "Crashed")
    assert [attempt.outcome for attempt in detail.attempts] == ["lost"] * 3


def test_crashes_of_prefetched_jobs_never_kill_them(scene: Scene) -> None:
    job = scene.put()
    for _ in range(5):
        scene.prefetch(scene.hire())
        scene.later(60)
        scene.reclaim()
    seen = scene.see(job.id)
    assert (seen.status, seen.crashes, seen.attempt) == ("pending", 0, 5)


def test_a_lost_job_that_was_asked_to_stop_is_cancelled(scene: Scene) -> None:
    _, lease = scene.leased()
    scene.cancel(lease.id)
    scene.later(60)
    assert [gone.became for gone in scene.reclaim()] == ["cancelled"]
    job = scene.see(lease.id)
    assert (job.status, job.finished_at) == ("cancelled", scene.now)
    assert [attempt.outcome for attempt in scene.attempts(lease.id)] == ["lost"]


def test_reclaiming_takes_the_oldest_heartbeat_first_and_no_more_than_its_limit(scene: Scene) -> None:
    scene.put_many(4)
    younger, older = scene.hire(lease_s=30), scene.hire(lease_s=20)
    by_younger, by_older = scene.claim(younger, 2), scene.claim(older, 2)
    scene.later(60)
    assert [gone.seq for gone in scene.reclaim(limit=3)] == [by_older[0].seq, by_older[1].seq, by_younger[0].seq]
    assert [gone.seq for gone in scene.reclaim(limit=3)] == [by_younger[1].seq]


def test_a_worker_row_stays_until_its_last_lease_is_gone(scene: Scene) -> None:
    scene.put_many(2)
    worker = scene.hire()
    scene.claim(worker, 2)
    scene.later(60)
    assert len(scene.reclaim(limit=1)) == 1
    assert scene.renew(worker).fresh is False
    scene.later(60)
    assert len(scene.reclaim(limit=1)) == 1
    assert scene.renew(worker).fresh is True


def test_a_turn_reclaims_no_more_than_it_may(scene: Scene) -> None:
    scene.put_many(3)
    scene.claim(scene.hire(), 3)
    scene.later(60)
    rescuer = scene.hire()
    assert len(scene.turn(rescuer, reclaim_limit=2).reclaimed) == 2
    assert len(scene.turn(rescuer, reclaim_limit=0).reclaimed) == 0
    assert len(scene.turn(rescuer, reclaim_limit=2).reclaimed) == 1


def test_a_prefetched_job_that_never_starts_goes_back_uncharged(scene: Scene) -> None:
    worker, lease = scene.leased(start=False)
    scene.renew(worker, 600)
    scene.later(59)
    assert scene.reclaim() == ()
    scene.later(2)
    [gone] = scene.reclaim()
    assert (gone.seq, gone.cause, gone.became, gone.worker) == (lease.seq, "start_by_passed", "ready", worker)
    job = scene.see(lease.id)
    assert (job.status, job.attempts, job.crashes) == ("pending", 0, 0)
    assert [attempt.outcome for attempt in scene.attempts(lease.id)] == ["released"]
    assert scene.start(worker, lease).refused


@pytest.mark.requirement("I9")
def test_a_job_past_twice_its_timeout_is_dead(scene: Scene) -> None:
    worker, lease = scene.leased(timeout_s=30)
    scene.renew(worker, 600)
    scene.later(59)
    assert scene.reclaim() == ()
    scene.later(2)
    [gone] = scene.reclaim()
    assert (gone.seq, gone.cause, gone.became, gone.worker) == (lease.seq, "deadline_passed", "dead", worker)
    job = scene.see(lease.id)
    assert (job.status, job.attempts, job.crashes, job.finished_at) == ("dead", 1, 0, scene.now)
    assert (job.error_class, job.error_type) == ("transient", "JobStuck")
    assert job.last_error == "Job exceeded timeout threshold"
    assert [attempt.outcome for attempt in scene.attempts(lease.id)] == ["lost"]
    assert scene.letter(lease.seq).reason == "Job exceeded timeout threshold"
    assert scene.settle(worker, completed(lease)).refused


@pytest.mark.parametrize("start", [True, False], ids=["started", "prefetched"])
def test_a_deadline_has_passed_at_its_very_instant(scene: Scene, start: bool) -> None:
    worker, lease = scene.leased(start=start, timeout_s=30)
    scene.renew(worker, 600)
    scene.later(59.999999)
    assert scene.reclaim() == ()
    scene.later(0.000001)
    assert scene.now == lease.deadline_at
    assert len(scene.reclaim()) == 1


def test_an_overrun_job_that_was_asked_to_stop_is_cancelled(scene: Scene) -> None:
    worker, lease = scene.leased(timeout_s=30)
    scene.cancel(lease.id)
    scene.renew(worker, 600)
    scene.later(61)
    assert [(gone.cause, gone.became) for gone in scene.reclaim()] == [("deadline_passed", "cancelled")]


@pytest.mark.requirement("I9")
def test_deadlines_are_enforced_by_number_and_within_the_limit(scene: Scene) -> None:
    jobs = scene.put_many(4, timeout_s=10)
    scene.claim(scene.hire(lease_s=600), 4)
    scene.later(100)
    assert [gone.seq for gone in scene.reclaim(limit=3)] == [job.seq for job in jobs[:3]]
    assert [gone.seq for gone in scene.reclaim(limit=3)] == [jobs[3].seq]


def test_lapsed_workers_come_before_deadlines(scene: Scene) -> None:
    overrun, lapsed = scene.put(timeout_s=10), scene.put()
    scene.claim(scene.hire(lease_s=600), 1)
    scene.claim(scene.hire(lease_s=15), 1)
    scene.later(100)
    assert [(gone.seq, gone.cause) for gone in scene.reclaim()] == [
        (lapsed.seq, "worker_gone"),
        (overrun.seq, "deadline_passed"),
    ]


def test_a_lease_of_a_lapsed_worker_past_its_deadline_too_runs_again(scene: Scene) -> None:
    _, lease = scene.leased(timeout_s=1)
    scene.later(100)
    assert [(gone.cause, gone.became) for gone in scene.reclaim()] == [("worker_gone", "ready")]
    assert scene.status(lease.id) == "pending"


def test_reclaiming_twice_takes_nothing_more(scene: Scene) -> None:
    scene.leased()
    scene.later(60)
    assert len(scene.reclaim()) == 1
    assert scene.reclaim() == ()


def test_a_deadline_of_a_job_given_back_is_forgotten(scene: Scene) -> None:
    worker, lease = scene.leased(timeout_s=10)
    scene.settle(worker, released(lease))
    scene.later(600)
    assert scene.reclaim() == ()
    assert scene.status(lease.id) == "pending"


def test_promotion_goes_by_due_time_then_number_and_stops_at_its_limit(scene: Scene) -> None:
    late, early, same = (scene.put(delay_s=delay) for delay in (30, 10, 10))
    future = scene.put(delay_s=500)
    scene.later(100)
    promoted = scene.promote(limit=1)
    assert (promoted.count, promoted.next_due_at) == (1, scene.at(-90))
    assert [lease.id for lease in scene.turn(scene.hire(), wanting(9), promote_limit=0).leases] == [early.id]
    assert scene.promote(limit=1).count == 1
    assert [lease.id for lease in scene.turn(scene.hire(), wanting(9), promote_limit=0).leases] == [same.id]
    promoted = scene.promote()
    assert (promoted.count, promoted.next_due_at) == (1, scene.see(future.id).run_at)
    assert [lease.id for lease in scene.claim(scene.hire(), 9)] == [late.id]
    assert scene.promote().count == 0


def test_promotion_with_nothing_scheduled_says_so(scene: Scene) -> None:
    promoted = scene.promote()
    assert (promoted.count, promoted.next_due_at) == (0, None)


def test_a_turn_promotes_no_more_than_it_may(scene: Scene) -> None:
    for _ in range(3):
        scene.put(delay_s=1)
    scene.later(1)
    scene.turn(scene.hire(), promote_limit=2)
    assert (scene.queue().ready, scene.queue().scheduled) == (2, 1)
