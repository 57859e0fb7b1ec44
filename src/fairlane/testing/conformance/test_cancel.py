"""Cancelling: at once where a job waits, by asking where it runs."""

from __future__ import annotations

import pytest

from fairlane.testing.conformance.samples import OUTCOMES, completed, died, retried
from fairlane.testing.conformance.scene import Scene

ENDS = {
    "completed": "completed",
    "retried": "cancelled",
    "died": "dead",
    "cancelled": "cancelled",
    "snoozed": "cancelled",
    "released": "cancelled",
}


@pytest.mark.parametrize("delay_s", [0, 60], ids=["ready", "scheduled"])
def test_a_waiting_job_is_cancelled_at_once(scene: Scene, delay_s: float) -> None:
    job = scene.put(delay_s=delay_s)
    scene.later(5)
    act = scene.cancel(job.id)
    assert act.refused is None
    assert act.job == scene.see(job.id)
    assert (act.job.status, act.job.finished_at, act.job.worker) == ("cancelled", scene.now, None)
    scene.later(600)
    assert scene.claim(scene.hire(), 9) == ()


def test_a_job_waiting_for_its_retry_is_cancelled_at_once(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, retried(lease, 60))
    assert scene.cancel(lease.id).refused is None
    assert scene.status(lease.id) == "cancelled"
    scene.later(60)
    scene.promote()
    assert scene.status(lease.id) == "cancelled"


@pytest.mark.parametrize("start", [True, False], ids=["started", "prefetched"])
def test_a_leased_job_is_asked_to_stop_and_goes_on_until_then(scene: Scene, start: bool) -> None:
    worker, lease = scene.leased(start=start)
    before = scene.status(lease.id)
    act = scene.cancel(lease.id)
    assert act.job is not None
    assert (act.refused, act.job.status, act.job.cancel_requested) == (None, before, True)
    assert scene.turn(worker).cancels == (lease.seq,)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_job_asked_to_stop_ends_as_its_attempt_allows(scene: Scene, outcome: str) -> None:
    worker, lease = scene.leased()
    scene.cancel(lease.id)
    scene.later(2)
    assert scene.settle(worker, OUTCOMES[outcome](lease)).refused == ()
    job = scene.see(lease.id)
    assert (job.status, job.finished_at) == (ENDS[outcome], scene.now)
    assert len(scene.attempts(lease.id)) == 1


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_outcome_repeated_after_a_cancelled_end_is_accepted_again(scene: Scene, outcome: str) -> None:
    worker, lease = scene.leased()
    scene.cancel(lease.id)
    ended = OUTCOMES[outcome](lease)
    scene.settle(worker, ended)
    before = scene.find(lease.id)
    assert scene.settle(worker, ended).refused == ()
    assert scene.find(lease.id) == before


def test_the_attempt_is_recorded_by_what_was_reported(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.cancel(lease.id)
    scene.settle(worker, retried(lease, 60))
    assert [attempt.outcome for attempt in scene.attempts(lease.id)] == ["failed"]
    assert scene.see(lease.id).attempts == 1


def test_a_cancel_that_comes_after_the_attempt_ended_does_nothing_to_it(scene: Scene) -> None:
    lease = scene.finished()
    act = scene.cancel(lease.id)
    assert act.job is not None
    assert (act.refused, act.job.status) == ("not_allowed", "completed")
    assert scene.audit() == ()


def test_a_dead_job_cannot_be_cancelled(scene: Scene) -> None:
    lease = scene.dead()
    assert scene.cancel(lease.id).refused == "not_allowed"
    assert scene.status(lease.id) == "dead"


def test_cancelling_twice_is_fine_and_written_down_once(scene: Scene) -> None:
    waiting = scene.put(queue="elsewhere")
    _, running = scene.leased()
    for job in (waiting.id, running.id):
        first = scene.cancel(job)
        scene.later(1)
        again = scene.cancel(job, by="grace")
        assert again == first
    assert [record.by for record in scene.audit(action="job_cancel")] == ["ada", "ada"]


def test_a_cancel_of_a_job_nobody_knows_finds_nothing(scene: Scene) -> None:
    act = scene.cancel(scene.making.job_id())
    assert (act.refused, act.job) == ("not_found", None)


def test_a_cancelled_job_stays_cancelled_whatever_its_worker_says(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.cancel(lease.id)
    scene.settle(worker, OUTCOMES["cancelled"](lease))
    assert scene.settle(worker, completed(lease)).refused
    assert scene.settle(worker, died(lease)).refused
    assert scene.status(lease.id) == "cancelled"
