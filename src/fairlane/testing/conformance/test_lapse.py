"""A worker whose foreman saw it die: its jobs come back at once."""

from __future__ import annotations

import pytest

from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import Lapse, ListWorkers, Reclaimed, Start
from fairlane.testing.conformance.samples import completed
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("Q17")


def lapse(scene: Scene, worker: WorkerId, *starts: Start) -> tuple[Reclaimed, ...]:
    return scene.run(Lapse(worker=worker, starts=starts)).reclaimed


def begun(lease: Lease, *, alone: bool = False) -> Start:
    return Start(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, timeout_s=60, alone=alone)


def test_the_jobs_of_a_worker_seen_dying_come_back_at_once(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.later(1)
    [gone] = lapse(scene, worker)
    assert (gone.seq, gone.id, gone.attempt, gone.worker) == (lease.seq, lease.id, 1, worker)
    assert (gone.cause, gone.became) == ("worker_gone", "ready")
    assert (gone.type, gone.tenant) == (lease.type, lease.tenant)
    job = scene.see(lease.id)
    assert (job.status, job.attempts, job.crashes, job.run_at) == ("pending", 0, 0, lease.due_at)
    [attempt] = scene.attempts(lease.id)
    assert (attempt.outcome, attempt.ended_at, attempt.error_type) == ("lost", scene.now, "WorkerLost")
    [again] = scene.claim(scene.hire())
    assert (again.id, again.attempt, again.suspect) == (lease.id, 2, True)


def test_the_row_of_a_worker_seen_dying_goes_and_it_settles_nothing(scene: Scene) -> None:
    worker, lease = scene.leased()
    lapse(scene, worker)
    assert scene.run(ListWorkers()).workers == ()
    assert scene.settle(worker, completed(lease)).refused
    assert scene.renew(worker).fresh is True


def test_all_its_leases_come_back_by_number_however_many(scene: Scene) -> None:
    jobs = scene.put_many(120)
    worker, other = scene.hire(), scene.hire()
    scene.claim(other, 1)
    scene.claim(worker, 200)
    assert [gone.seq for gone in lapse(scene, worker)] == [job.seq for job in jobs[1:]]
    assert scene.see(jobs[0].id).worker == other


def test_only_what_had_started_is_suspect(scene: Scene) -> None:
    scene.put_many(2)
    worker = scene.hire()
    started, prefetched = scene.claim(worker, 2, start=1)
    lapse(scene, worker)
    suspects = {lease.id: lease.suspect for lease in scene.claim(scene.hire(), 2)}
    assert suspects == {started.id: True, prefetched.id: False}
    [attempt] = scene.attempts(prefetched.id)
    assert (attempt.outcome, attempt.error_type, attempt.started_at) == ("lost", None, None)


def test_what_the_foreman_knows_had_begun_counts_as_begun(scene: Scene) -> None:
    scene.put_many(2)
    worker = scene.hire()
    begun_unseen, waiting = scene.prefetch(worker, 2)
    scene.later(2)
    lapse(scene, worker, begun(begun_unseen, alone=True))
    assert (scene.see(begun_unseen.id).crashes, scene.see(waiting.id).crashes) == (1, 0)
    assert scene.attempts(begun_unseen.id)[0].started_at == scene.now
    suspects = {lease.id: lease.suspect for lease in scene.claim(scene.hire(), 2)}
    assert suspects == {begun_unseen.id: True, waiting.id: False}


def test_a_start_the_store_knew_keeps_its_instant(scene: Scene) -> None:
    worker, lease = scene.leased()
    began = scene.now
    scene.later(2)
    lapse(scene, worker, begun(lease))
    assert scene.attempts(lease.id)[0].started_at == began
    assert scene.see(lease.id).crashes == 0


def test_a_job_whose_process_was_seen_dying_three_times_while_alone_is_dead(scene: Scene) -> None:
    job = scene.put()
    fates = []
    for _ in range(3):
        worker = scene.hire()
        [lease] = scene.prefetch(worker)
        [gone] = lapse(scene, worker, begun(lease, alone=True))
        fates.append(gone.became)
    assert fates == ["ready", "ready", "dead"]
    seen = scene.see(job.id)
    assert (seen.status, seen.crashes, seen.error_type, seen.finished_at) == ("dead", 3, "Crashed", scene.now)


def test_a_job_asked_to_stop_ends_cancelled_with_its_worker(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.cancel(lease.id)
    [gone] = lapse(scene, worker)
    assert gone.became == "cancelled"
    assert scene.status(lease.id) == "cancelled"


def test_a_start_whose_lease_is_gone_or_another_workers_is_passed_over(scene: Scene) -> None:
    worker, settled = scene.leased(start=False)
    scene.settle(worker, completed(settled))
    other, held = scene.leased(start=False)
    assert lapse(scene, worker, begun(settled, alone=True), begun(held, alone=True)) == ()
    assert scene.see(held.id).status == "pending"
    assert scene.see(held.id).worker == other
    assert scene.attempts(settled.id)[0].outcome == "completed"


def test_a_worker_nobody_knows_lapses_without_a_trace(scene: Scene) -> None:
    worker, lease = scene.leased()
    stranger = scene.making.worker_id()
    assert lapse(scene, stranger, begun(lease, alone=True)) == ()
    assert lapse(scene, worker)
    assert lapse(scene, worker) == ()


def test_a_worker_without_leases_lapses_too(scene: Scene) -> None:
    worker = scene.hire()
    assert lapse(scene, worker) == ()
    assert scene.run(ListWorkers()).workers == ()
