"""The decisions taken where the documents disagree, each as one small story."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlane import Fairlane, Retry, Snooze
from fairlane.core.clock import FakeClock
from fairlane.core.ids import JobId, WorkerId
from fairlane.core.ops import ALL_TENANTS, Fail, Retain
from fairlane.errors import InvalidPayload
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing import run_due
from fairlane.testing.conformance.samples import NOON, died, failure, retried
from fairlane.testing.conformance.scene import Scene


@pytest.fixture
def app() -> Iterator[Fairlane]:
    clock = FakeClock(NOON)
    with Fairlane(store=MemoryStore(clock), clock=clock, profile="development") as app:
        yield app


@pytest.fixture
def scene() -> Scene:
    return Scene(MemoryStore())


@pytest.mark.requirement("D1")
def test_d1_attempts_count_charged_runs(app: Fairlane) -> None:
    calls = []

    @app.task(name="t.fails", queue="reports", retry=Retry(max_attempts=3, delays=(0.0,)))
    def fails() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise Snooze(0)
        raise ConnectionError("no")

    handle = fails.enqueue()
    run_due(app)
    assert (len(calls), handle.job().attempts, handle.status()) == (4, 3, "dead")


@pytest.mark.requirement("D2", "D3", "D4", "D12")
def test_d2_d3_d4_d12_what_a_job_gets_when_nothing_is_said(app: Fairlane) -> None:
    @app.task(name="t.plain")
    def plain() -> None: ...

    job = plain.enqueue().job()
    assert (job.tenant, job.priority) == ("system", 5)
    assert job.idempotency_key == job.correlation_id == str(job.id)
    assert job.id.version == 7
    assert plain.enqueue().job().seq > job.seq


@pytest.mark.requirement("D2", "D3")
def test_d2_d3_strict_payloads_demand_a_tenant_keys_and_a_uuid() -> None:
    with Fairlane("memory://", strict_payload=True) as app:

        @app.task(name="t.strict", category="sync")
        def strict() -> None: ...

        with pytest.raises(InvalidPayload) as refused:
            strict.using(tenant="acme", correlation_id="not-a-uuid").enqueue()
        assert {"correlation", "idempotency"} <= {
            word for p in refused.value.problems for word in p.replace("_", " ").split()
        }


@pytest.mark.requirement("D5")
def test_d5_priority_then_tenants_in_turn_then_due_time_then_sequence(scene: Scene) -> None:
    first, second = scene.put(tenant="a"), scene.put(tenant="a")
    other, urgent = scene.put(tenant="b"), scene.put(tenant="a", priority=0)
    earlier = scene.put(tenant="b", run_at=scene.at(-60))
    leases = scene.claim(scene.hire(), 5)
    assert [lease.seq for lease in leases] == [urgent.seq, first.seq, earlier.seq, second.seq, other.seq]


@pytest.mark.requirement("D6")
def test_d6_the_fence_grows_at_every_claim_and_only_failures_are_charged(scene: Scene) -> None:
    job, worker = scene.put(), scene.hire()
    [lease] = scene.prefetch(worker)
    scene.retire(worker)
    worker = scene.hire()
    [lease] = scene.claim(worker)
    assert (lease.attempt, lease.attempts) == (2, 0)
    scene.settle(worker, retried(lease, delay_s=0))
    assert (scene.see(job.id).attempt, scene.see(job.id).attempts) == (2, 1)


@pytest.mark.requirement("D7")
def test_d7_a_job_past_twice_its_timeout_is_dead_and_one_whose_worker_is_gone_runs_again(scene: Scene) -> None:
    stuck, worker = scene.put(timeout_s=10), scene.hire(lease_s=1e6)
    scene.claim(worker)
    left, gone = scene.put(), scene.hire(lease_s=5)
    scene.claim(gone)
    scene.later(20)
    scene.reclaim()
    assert (scene.see(stuck.id).status, scene.see(stuck.id).error_type) == ("dead", "JobStuck")
    assert (scene.see(left.id).status, scene.see(left.id).attempts) == ("pending", 0)


@pytest.mark.requirement("D9")
def test_d9_a_pause_stops_claims_and_is_no_status(app: Fairlane) -> None:
    @app.task(name="t.paused")
    def paused() -> None: ...

    app.tasks.pause("t.paused", by="ops")
    handle = paused.enqueue()
    assert run_due(app) == ()
    assert handle.status() == "pending"
    app.tasks.resume("t.paused", by="ops")
    assert len(run_due(app)) == 1


@pytest.mark.requirement("D11")
def test_d11_an_idempotency_key_lasts_as_long_as_its_job_and_a_dedup_key_while_it_is_unfinished(scene: Scene) -> None:
    job, worker = scene.put(idempotency_key="i", dedup_key="d"), scene.hire()
    scene.claim(worker)
    scene.run(Fail(scope=ALL_TENANTS, id=job.id, by="ops", reason="no"))
    assert scene.enqueue(scene.job(dedup_key="d")).receipts[0].disposition == "created"
    assert scene.enqueue(scene.job(idempotency_key="i")).receipts[0].disposition == "duplicate"
    done = scene.put(idempotency_key="j")
    scene.cancel(done.id)
    scene.later(60)
    scene.run(Retain(finished_before=scene.now))
    assert scene.enqueue(scene.job(idempotency_key="j")).receipts[0].disposition == "created"


@pytest.mark.requirement("D13")
def test_d13_every_attempt_keeps_who_held_it_from_when_and_until_when_at_most(scene: Scene) -> None:
    job, worker = scene.put(), scene.hire()
    [lease] = scene.claim(worker)
    scene.settle(worker, retried(lease, delay_s=0))
    [attempt] = scene.attempts(job.id)
    assert (attempt.worker, attempt.leased_at, attempt.expires_at) == (worker, lease.leased_at, lease.deadline_at)


@pytest.mark.requirement("D16")
def test_d16_an_error_text_is_kept_to_two_thousand_characters_and_the_first_due_time_stays(scene: Scene) -> None:
    job, worker = scene.put(), scene.hire()
    [lease] = scene.claim(worker)
    scene.settle(worker, retried(lease, delay_s=30))
    assert (scene.see(job.id).scheduled_at, scene.see(job.id).run_at) == (NOON, scene.at(30))
    scene.later(30)
    [lease] = scene.claim(scene.hire())
    scene.settle(lease_holder(scene, job.id), died(lease, failure("x" * 5000)))
    assert len(scene.letter(lease.seq).reason) == 2000


def lease_holder(scene: Scene, job: JobId) -> WorkerId:
    holder = scene.see(job).worker
    assert holder is not None
    return holder
