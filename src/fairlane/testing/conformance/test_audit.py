"""The audit trail: every act of a person, with who, when, what and why, in the same commit."""

from __future__ import annotations

from fairlane.core.ops import ALL_TENANTS, PageAudit
from fairlane.testing.conformance.samples import retried
from fairlane.testing.conformance.scene import Scene


def test_every_act_on_a_job_is_written_down(scene: Scene) -> None:
    jobs = [scene.put(tenant="acme") for _ in range(3)]
    scene.later(7)
    scene.cancel(jobs[0].id, by="ada", notes="asked by the customer")
    scene.fail(jobs[1].id, by="grace")
    scene.bury(jobs[2].id, notes="broken")
    buried, failed, cancelled = scene.audit()
    assert (cancelled.action, failed.action, buried.action) == ("job_cancel", "job_fail", "job_bury")
    assert [record.target for record in (cancelled, failed, buried)] == [f"job:{job.id}" for job in jobs]
    assert (cancelled.by, failed.by, buried.by) == ("ada", "grace", "ada")
    assert (cancelled.notes, failed.notes, buried.notes) == ("asked by the customer", None, "broken")
    assert {record.tenant for record in (cancelled, failed, buried)} == {"acme"}
    assert {record.at for record in (cancelled, failed, buried)} == {scene.now}
    assert cancelled.id < failed.id < buried.id


def test_a_record_shows_the_job_before_and_after(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, retried(lease, 60))
    scene.fail(lease.id)
    [record] = scene.audit()
    assert record.before == {"status": "failed", "attempts": 1}
    assert record.after == {"status": "dead", "attempts": 2}


def test_a_cancel_of_a_running_job_is_written_down_while_it_still_runs(scene: Scene) -> None:
    _, lease = scene.leased()
    scene.cancel(lease.id)
    [record] = scene.audit()
    assert (record.before, record.after) == ({"status": "processing", "attempts": 0},) * 2


def test_every_act_on_a_dead_letter_is_written_down(scene: Scene) -> None:
    kept, dropped, settled = (scene.dead(tenant="acme").seq for _ in range(3))
    scene.later(7)
    scene.acknowledge(kept, by="grace", notes="mine")
    act = scene.reprocess(kept, by="ada", notes="again")
    scene.discard(dropped, notes="spam")
    scene.resolve(settled)
    resolve, discard, success, requested, acknowledge = scene.audit()
    assert act.new_job is not None
    assert [record.action for record in (acknowledge, requested, success, discard, resolve)] == [
        "job_dlq_acknowledge",
        "job_dlq_reprocess_requested",
        "job_dlq_reprocess_success",
        "job_dlq_discard",
        "job_dlq_resolve",
    ]
    assert [record.target for record in (acknowledge, requested, success)] == [f"dead_letter:{kept}"] * 3
    assert (discard.target, resolve.target) == (f"dead_letter:{dropped}", f"dead_letter:{settled}")
    assert {(record.tenant, record.at) for record in scene.audit()} == {("acme", scene.now)}
    assert (acknowledge.by, acknowledge.notes, requested.by, success.notes) == ("grace", "mine", "ada", "again")
    assert acknowledge.before == {"status": "pending_review", "acknowledged_by": None}
    assert acknowledge.after == {"status": "pending_review", "acknowledged_by": "grace"}
    assert discard.before == {"status": "pending_review", "acknowledged_by": None}
    assert discard.after == {"status": "discarded", "acknowledged_by": None}
    assert success.after == {"status": "retried", "acknowledged_by": "grace", "new_job_id": str(act.new_job.id)}


def test_what_workers_and_clients_do_is_not_an_act(scene: Scene) -> None:
    scene.finished()
    scene.dead()
    assert scene.audit() == ()


def test_records_are_found_by_action_and_target(scene: Scene) -> None:
    jobs = [scene.put() for _ in range(3)]
    for job in jobs:
        scene.cancel(job.id)
    buried = scene.put()
    scene.bury(buried.id)
    scene.acknowledge(buried.seq)
    assert len(scene.audit(action="job_cancel")) == 3
    assert [record.action for record in scene.audit(target=f"job:{jobs[1].id}")] == ["job_cancel"]
    assert [record.action for record in scene.audit(target=f"dead_letter:{buried.seq}")] == ["job_dlq_acknowledge"]
    assert scene.audit(action="job_cancel", target=f"job:{buried.id}") == ()


def test_records_are_paged_newest_first(scene: Scene) -> None:
    jobs = [scene.put() for _ in range(5)]
    for job in jobs:
        scene.cancel(job.id)
    targets, before = [], None
    while True:
        page = scene.run(PageAudit(scope=ALL_TENANTS, before=before, limit=2))
        targets += [record.target for record in page.records]
        before = page.next
        if before is None:
            break
    assert targets == [f"job:{job.id}" for job in reversed(jobs)]


def test_retention_leaves_the_audit_trail(scene: Scene) -> None:
    job = scene.put()
    scene.cancel(job.id)
    assert scene.retain(finished_before=scene.at(1)) == 1
    assert [record.target for record in scene.audit()] == [f"job:{job.id}"]
