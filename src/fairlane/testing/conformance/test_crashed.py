"""An attempt whose own process died under it, reported by the worker that watched it."""

from __future__ import annotations

import pytest

from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.testing.conformance.samples import completed, crashed, retried
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("Q17")


def crash(scene: Scene, worker: WorkerId, **timing: float) -> Lease:
    [lease] = scene.claim(worker)
    assert scene.settle(worker, crashed(lease, **timing)).refused == ()
    return lease


def test_a_job_whose_own_process_died_runs_again_at_once_uncharged(scene: Scene) -> None:
    job, worker = scene.put(), scene.hire()
    scene.later(3)
    lease = crash(scene, worker, ran_s=2, ended_ago_s=0.5)
    seen = scene.see(job.id)
    assert (seen.status, seen.attempts, seen.crashes, seen.run_at) == ("pending", 0, 1, lease.due_at)
    assert (seen.error_type, seen.error_class, seen.last_error_at) == ("WorkerLost", "transient", scene.at(-0.5))
    [attempt] = scene.attempts(job.id)
    assert (attempt.outcome, attempt.worker, attempt.ended_at) == ("lost", worker, scene.at(-0.5))
    assert (attempt.error_type, attempt.error_class) == ("WorkerLost", "transient")
    [again] = scene.claim(worker)
    assert (again.id, again.attempt, again.suspect, again.crashes) == (job.id, 2, True, 1)


def test_a_job_whose_own_process_died_three_times_is_dead(scene: Scene) -> None:
    job, worker = scene.put(), scene.hire()
    for _ in range(3):
        crash(scene, worker, ended_ago_s=1)
    seen = scene.see(job.id)
    assert (seen.status, seen.attempts, seen.crashes, seen.finished_at) == ("dead", 0, 3, scene.at(-1))
    assert scene.letter(job.seq).error_type == "Crashed"
    assert [attempt.error_type for attempt in scene.attempts(job.id)] == ["WorkerLost", "WorkerLost", "Crashed"]


def test_a_crash_counts_even_where_the_start_was_never_reported(scene: Scene) -> None:
    worker, lease = scene.leased(start=False)
    scene.later(3)
    assert scene.settle(worker, crashed(lease, ran_s=2)).refused == ()
    assert scene.see(lease.id).crashes == 1
    assert scene.attempts(lease.id)[0].started_at == scene.at(-2)


def test_a_job_asked_to_stop_whose_process_died_is_cancelled(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.cancel(lease.id)
    scene.settle(worker, crashed(lease))
    seen = scene.see(lease.id)
    assert (seen.status, seen.crashes) == ("cancelled", 1)


def test_a_crash_told_twice_counts_once(scene: Scene) -> None:
    worker, lease = scene.leased()
    for _ in range(2):
        assert scene.settle(worker, crashed(lease)).refused == ()
    assert scene.see(lease.id).crashes == 1
    assert len(scene.attempts(lease.id)) == 1


def test_a_crash_of_an_attempt_that_ended_otherwise_or_belongs_to_another_is_refused(scene: Scene) -> None:
    worker, lease = scene.leased()
    assert scene.settle(scene.hire(), crashed(lease)).refused
    scene.settle(worker, completed(lease))
    before = scene.find(lease.id)
    assert scene.settle(worker, crashed(lease)).refused
    assert scene.find(lease.id) == before


def test_an_attempt_that_runs_to_its_end_clears_the_suspicion_but_not_the_count(scene: Scene) -> None:
    job, worker = scene.put(), scene.hire()
    crash(scene, worker)
    [lease] = scene.claim(worker)
    scene.settle(worker, retried(lease, 0))
    [again] = scene.claim(worker)
    assert (again.id, again.suspect, again.crashes) == (job.id, False, 1)


def test_crashes_seen_by_the_worker_and_by_others_add_up(scene: Scene) -> None:
    job = scene.put()
    for _ in range(2):
        crash(scene, scene.hire())
    watcher = scene.hire()
    [lease] = scene.prefetch(watcher)
    scene.start(watcher, lease, alone=True)
    scene.later(60)
    [gone] = scene.reclaim()
    assert (gone.id, gone.became) == (job.id, "dead")


def test_a_crash_whose_run_was_never_timed_counts_all_the_same(scene: Scene) -> None:
    worker, lease = scene.leased(start=False)
    scene.later(3)
    assert scene.settle(worker, crashed(lease)).refused == ()
    assert (scene.see(lease.id).crashes, scene.attempts(lease.id)[0].started_at) == (1, None)
    assert [again.suspect for again in scene.claim(worker)] == [True]
