"""Taking a stuck job from its worker by hand."""

from __future__ import annotations

import pytest

from fairlane.core.ids import JobId
from fairlane.core.ops import ALL_TENANTS, JobAct, Reset, Scope, only
from fairlane.testing.conformance.samples import OUTCOMES, completed, retried
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("L15")


def reset(scene: Scene, job: JobId, scope: Scope = ALL_TENANTS, notes: str | None = None) -> JobAct:
    return scene.run(Reset(scope=scope, id=job, by="ada", notes=notes))


@pytest.mark.parametrize("start", [True, False], ids=["started", "prefetched"])
def test_a_job_reset_by_hand_is_ready_again_uncharged_with_the_due_time_it_had(scene: Scene, start: bool) -> None:
    worker, lease = scene.leased(start=start)
    scene.later(5)
    act = reset(scene, lease.id)
    assert act.refused is None
    assert act.job == scene.see(lease.id)
    assert (act.job.status, act.job.attempts, act.job.crashes, act.job.worker) == ("pending", 0, 0, None)
    assert (act.job.run_at, act.job.finished_at, act.job.error_type) == (lease.due_at, None, None)
    [attempt] = scene.attempts(lease.id)
    assert (attempt.outcome, attempt.worker, attempt.ended_at) == ("released", worker, scene.now)
    assert (attempt.started_at is not None) is start
    [again] = scene.claim(scene.hire())
    assert (again.id, again.attempt, again.suspect) == (lease.id, 2, False)


@pytest.mark.parametrize("outcome", [name for name in OUTCOMES if name != "released"])
def test_the_worker_that_held_a_job_reset_by_hand_settles_nothing(scene: Scene, outcome: str) -> None:
    worker, lease = scene.leased()
    reset(scene, lease.id)
    before = scene.find(lease.id)
    [refusal] = scene.settle(worker, OUTCOMES[outcome](lease)).refused
    assert (refusal.seq, refusal.attempt) == (lease.seq, lease.attempt)
    assert scene.find(lease.id) == before
    assert scene.renew(worker).fresh is False


def test_a_job_reset_by_hand_stays_suspect(scene: Scene) -> None:
    _, lease = scene.leased()
    scene.later(60)
    scene.reclaim()
    scene.claim(scene.hire())
    reset(scene, lease.id)
    assert [again.suspect for again in scene.claim(scene.hire())] == [True]


def test_a_job_asked_to_stop_ends_cancelled_when_it_is_reset(scene: Scene) -> None:
    worker, lease = scene.leased(dedup_key="d")
    scene.cancel(lease.id)
    scene.later(5)
    act = reset(scene, lease.id)
    assert act.job is not None
    assert (act.job.status, act.job.finished_at) == ("cancelled", scene.now)
    assert scene.turn(worker).cancels == ()
    assert scene.put(dedup_key="d").id != lease.id


@pytest.mark.parametrize("place", ["ready", "scheduled", "awaiting retry", "completed", "dead", "cancelled"])
def test_only_a_leased_job_can_be_reset(scene: Scene, place: str) -> None:
    if place in ("ready", "scheduled"):
        job = scene.put(delay_s=60 if place == "scheduled" else None).id
    else:
        worker, lease = scene.leased()
        job = lease.id
        if place == "awaiting retry":
            scene.settle(worker, retried(lease, 60))
        elif place == "completed":
            scene.settle(worker, completed(lease))
        elif place == "dead":
            scene.bury(job)
        else:
            scene.cancel(job)
            scene.retire(worker)
    before, audited = scene.find(job), scene.audit()
    act = reset(scene, job)
    assert (act.refused, act.job) == ("not_allowed", scene.see(job))
    assert scene.find(job) == before
    assert scene.audit() == audited


def test_another_tenants_job_cannot_be_reset(scene: Scene) -> None:
    worker, lease = scene.leased(tenant="acme")
    assert reset(scene, lease.id, only("bolt")) == JobAct(refused="not_found")
    assert reset(scene, scene.making.job_id()) == JobAct(refused="not_found")
    assert scene.audit() == ()
    assert scene.settle(worker, completed(lease)).refused == ()


@pytest.mark.requirement("W12")
def test_a_reset_is_written_down(scene: Scene) -> None:
    _, lease = scene.leased(tenant="acme")
    scene.later(5)
    reset(scene, lease.id, only("acme"), notes="the worker hangs")
    [record] = scene.audit()
    assert (record.action, record.by, record.at, record.tenant) == ("job_reset", "ada", scene.now, "acme")
    assert (record.target, record.notes) == (f"job:{lease.id}", "the worker hangs")
    assert record.before == {"status": "processing", "attempts": 0}
    assert record.after == {"status": "pending", "attempts": 0}
