"""Jobs that a worker puts off before anything ran: no attempt is kept of it, however often it happens."""

from __future__ import annotations

import pytest

from fairlane.core.ids import JobId, WorkerId
from fairlane.core.job import Lease
from fairlane.core.limits import Limit
from fairlane.core.outcome import Snoozed
from tests.support.limits import queue, rate, task, tenant
from tests.support.samples import NO_SUCH_SEQ, completed, crashed, retried, snoozed
from tests.support.scene import Scene

pytestmark = pytest.mark.requirement("Q10", "L8")


def put_off(lease: Lease, delay_s: float = 60.0) -> Snoozed:
    return snoozed(lease, delay_s, recorded=False)


def history(scene: Scene, job: JobId) -> list[tuple[int, str]]:
    detail = scene.find(job)
    assert detail is not None
    return [(attempt.attempt, attempt.outcome) for attempt in detail.attempts]


def leased(scene: Scene) -> tuple[WorkerId, Lease]:
    worker, lease = scene.leased()
    scene.renew(worker, 10_000)
    return worker, lease


def wait(scene: Scene, worker: WorkerId, lease: Lease, times: int) -> Lease:
    """Put it off so often; the lease it has in the end."""
    for _ in range(times):
        assert scene.settle(worker, put_off(lease)).refused == ()
        scene.later(60)
        [lease] = scene.claim(worker)
    return lease


def test_a_job_that_waited_an_hour_has_no_history_of_it(scene: Scene) -> None:
    worker = scene.hire(10_000)
    first = scene.put()
    [lease] = scene.claim(worker)
    scene.settle(worker, retried(lease, 1.0))
    scene.later(1)
    [lease] = scene.claim(worker)
    lease = wait(scene, worker, lease, 60)
    assert (lease.attempts, history(scene, first.id)) == (1, [(1, "failed")])
    scene.settle(worker, completed(lease))
    assert history(scene, first.id) == [(1, "failed"), (lease.attempt, "completed")]


def test_a_job_put_off_is_pending_uncharged_and_due_later(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, put_off(lease, 1800))
    job = scene.see(lease.id)
    assert (job.status, job.attempts, job.run_at, job.worker) == ("pending", 0, scene.at(1800), None)
    assert (job.started_at, job.last_error) == (None, None)
    assert (scene.claim(worker), scene.queue().scheduled) == ((), 1)


def test_every_lease_keeps_a_number_of_its_own(scene: Scene) -> None:
    worker, lease = leased(scene)
    again = wait(scene, worker, lease, 2)
    assert again.attempt == lease.attempt + 2
    assert scene.settle(worker, completed(lease)).refused != ()
    assert scene.settle(worker, completed(again)).refused == ()


def test_told_again_or_too_late_it_is_not_refused_for_nothing_ran(scene: Scene) -> None:
    worker, lease = leased(scene)
    for _ in range(2):
        assert scene.settle(worker, put_off(lease)).refused == ()
    other = scene.hire()
    assert scene.settle(other, put_off(lease)).refused == ()
    assert scene.see(lease.id).run_at == scene.at(60)
    scene.later(60)
    [again] = scene.claim(worker)
    assert scene.settle(worker, put_off(lease)).refused == ()
    assert scene.see(lease.id).status == "processing"
    gone = Snoozed(seq=NO_SUCH_SEQ, attempt=1, delay_s=1.0, recorded=False)
    assert scene.settle(worker, gone, completed(again)).refused == ()


def test_asked_to_cancel_it_ends_cancelled(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.cancel(lease.id)
    scene.settle(worker, put_off(lease))
    assert scene.see(lease.id).status == "cancelled"
    assert history(scene, lease.id) == [(1, "snoozed")]


def test_a_suspect_job_stays_suspect(scene: Scene) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, crashed(lease))
    [lease] = scene.claim(worker)
    assert lease.suspect
    assert wait(scene, worker, lease, 1).suspect


@pytest.mark.parametrize(
    "limit", [queue(rate=rate(1, 600.0)), task(rate=rate(1, 600.0)), tenant("system", rate=rate(1, 600.0))]
)
def test_a_put_off_gives_its_token_back_to_jobs_that_can_run(scene: Scene, limit: Limit) -> None:
    scene.put_many(2)
    worker = scene.hire(10_000)
    [lease] = scene.claim(worker, limits=(limit,))
    assert scene.claim(worker, limits=(limit,)) == ()
    scene.settle(worker, put_off(lease))
    [other] = scene.claim(worker, limits=(limit,))
    assert other.seq != lease.seq
    scene.settle(worker, snoozed(other, 60.0))
    assert scene.claim(worker, limits=(limit,)) == ()
