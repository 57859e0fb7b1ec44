"""Jobs that differ in id and payload alone, given as columns: what is true of them one by one is true of them together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import Raw

from fairlane.core.alike import AlikeJobs, as_alike
from fairlane.core.job import JobSpec
from fairlane.core.limits import Limit
from fairlane.core.ops import Enqueue, EnqueueResult, PauseClaims, Scope
from fairlane.testing.conformance.scene import Scene

WAITING = Limit(kind="tenant", name="acme", waiting=3, when_full="reject")


def alike(scene: Scene, count: int, **options: object) -> AlikeJobs:
    first = scene.job(**options)
    ids = [first.id, *(scene.job().id for _ in range(count - 1))]
    return AlikeJobs(first, ids, [Raw(b'{"user_id":%d}' % n) for n in range(count)])


def enqueue(scene: Scene, jobs: Sequence[JobSpec], *limits: Limit) -> EnqueueResult:
    return scene.run(Enqueue(jobs=jobs, limits=limits))


def test_jobs_given_as_columns_are_the_jobs_that_their_sequence_says(scene: Scene) -> None:
    parent = scene.put()
    jobs = alike(
        scene,
        3,
        tenant="acme",
        queue="critical",
        priority=2,
        category="notifications",
        correlation_id="order-12",
        parent_id=parent.id,
        created_by="ada",
        refs={"order": "o-12"},
        headers={"traceparent": "00-ab-cd-01"},
        max_attempts=3,
        timeout_s=12.5,
        retry=Raw(b'{"max_attempts":3}'),
    )
    receipts = enqueue(scene, jobs).receipts
    assert [receipt.id for receipt in receipts] == list(jobs.ids)
    assert [receipt.seq for receipt in receipts] == sorted({receipt.seq for receipt in receipts})
    for n, job in enumerate(jobs):
        seen = scene.see(job.id)
        assert seen.payload == f'{{"user_id":{n}}}'
        assert (seen.tenant, seen.queue, seen.priority, seen.category) == ("acme", "critical", 2, "notifications")
        assert (seen.parent_id, seen.created_by, seen.correlation_id) == (parent.id, "ada", "order-12")
        assert (seen.refs, seen.headers) == ({"order": "o-12"}, {"traceparent": "00-ab-cd-01"})
        assert (seen.max_attempts, seen.timeout_s, seen.status) == (3, 12.5, "pending")
    newest_first = list(jobs.ids)[::-1]
    for where in ({"correlation_id": "order-12"}, {"parent_id": parent.id}, {"queue": "critical"}):
        assert scene.list_jobs(Scope("acme"), **where) == newest_first


def test_of_very_many_each_is_found_and_claimed_in_order(scene: Scene) -> None:
    jobs = alike(scene, 2_300)
    seqs = [receipt.seq for receipt in enqueue(scene, jobs).receipts]
    assert seqs == sorted(set(seqs))
    assert scene.queue().ready == 2_300
    assert [scene.see(jobs.ids[at]).payload for at in (0, 999, 1_000, 2_299)] == [
        f'{{"user_id":{at}}}' for at in (0, 999, 1_000, 2_299)
    ]
    worker = scene.hire()
    assert [lease.seq for _ in range(3) for lease in scene.claim(worker, 800)] == seqs


def test_they_wait_for_their_delay_together(scene: Scene) -> None:
    jobs = alike(scene, 2, delay_s=60)
    enqueue(scene, jobs)
    assert [scene.see(job.id).run_at for job in jobs] == [scene.at(60)] * 2
    assert scene.claim(scene.hire(), 2) == ()


@pytest.mark.requirement("W6")
def test_repeated_after_a_lost_reply_they_are_there_once(scene: Scene) -> None:
    jobs = alike(scene, 3)
    first = enqueue(scene, jobs).receipts
    again = enqueue(scene, jobs).receipts
    assert [(receipt.disposition, receipt.id, receipt.seq) for receipt in again] == [
        ("replayed", receipt.id, receipt.seq) for receipt in first
    ]
    assert len(scene.list_jobs()) == 3


def test_a_known_id_among_them_keeps_none_of_the_others_out(scene: Scene) -> None:
    jobs = alike(scene, 4)
    scene.enqueue(jobs[1], scene.job(id=jobs[2].id, payload='{"user_id":99}'))
    receipts = enqueue(scene, jobs).receipts
    assert [receipt.disposition for receipt in receipts] == ["created", "replayed", "conflict", "created"]
    assert scene.see(jobs[2].id).payload == '{"user_id":99}'
    assert len(scene.list_jobs()) == 4


def test_the_same_id_twice_is_one_job(scene: Scene) -> None:
    first, second = alike(scene, 2)
    jobs = AlikeJobs(first, [first.id, first.id], [first.payload, second.payload])
    assert [receipt.disposition for receipt in enqueue(scene, jobs).receipts] == ["created", "conflict"]


def test_a_tenants_limit_holds_for_them(scene: Scene) -> None:
    assert len(enqueue(scene, alike(scene, 3, tenant="acme"), WAITING).receipts) == 3
    refused = enqueue(scene, alike(scene, 2, tenant="acme"), WAITING).refused
    assert refused is not None
    assert (refused.tenant, refused.limit, refused.found) == ("acme", 3, 3)
    assert len(scene.list_jobs()) == 3


def test_a_payload_beyond_the_limit_refuses_them_all(scene: Scene) -> None:
    jobs, short = alike(scene, 12, tenant="acme"), Limit(kind="tenant", name="acme", payload_bytes=13)
    refused = enqueue(scene, jobs, short).refused
    assert refused is not None
    assert (refused.cause, refused.found) == ("payload_bytes", 14)
    assert scene.list_jobs() == []


def test_a_pause_that_refuses_refuses_them_all(scene: Scene) -> None:
    scene.run(PauseClaims(kind="tenant", name="acme", refuse=True, by="ada", notes=None))
    assert enqueue(scene, alike(scene, 2, tenant="acme")).paused is not None
    assert scene.list_jobs() == []


def test_jobs_are_alike_where_nothing_but_id_and_payload_differs(scene: Scene) -> None:
    jobs = alike(scene, 2, tenant="acme")
    found = as_alike(tuple(jobs))
    assert found == jobs
    assert as_alike([*jobs, scene.job(tenant="zeta")]) is None
    assert as_alike([scene.job(dedup_key="d"), scene.job(dedup_key="d")]) is None
    assert as_alike([jobs[0], scene.job(tenant="acme", idempotency_key="k")]) is None
    assert as_alike([]) is None
