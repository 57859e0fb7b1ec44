"""Durable steps: recorded once, under the lease of the attempt that runs, and kept as long as the job."""

from __future__ import annotations

import pytest
from msgspec import Raw

from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease, StepRecord
from fairlane.core.ops import ReadSteps, RecordStep, StepAnswer
from fairlane.core.outcome import Snoozed, Suspension
from fairlane.testing.conformance.samples import NO_SUCH_SEQ, cancelled, completed, died, retried, snoozed
from fairlane.testing.conformance.scene import Scene
from fairlane.testing.conformance.workflows import Flow

pytestmark = pytest.mark.requirement("L18")


def record(scene: Scene, worker: WorkerId, lease: Lease, n: int, name: str, result: str | None = None) -> StepAnswer:
    raw = None if result is None else Raw(result.encode())
    return scene.run(
        RecordStep(
            worker=worker,
            seq=lease.seq,
            attempt=lease.attempt,
            claim_no=lease.claim_no,
            n=n,
            name=name,
            result=raw,
            ran_s=0.5,
        )
    )


def steps(scene: Scene, lease: Lease) -> tuple[StepRecord, ...]:
    found = scene.find(lease.id)
    assert found is not None
    return found.steps


def sleeping(lease: Lease, n: int, delay_s: float) -> Snoozed:
    return snoozed(lease, delay_s, suspension=Suspension(n=n, name="sleep"))


def test_a_recorded_step_is_read_by_the_next_attempt_and_with_the_job(scene: Scene) -> None:
    worker, lease = scene.leased()
    at = scene.later(1)
    answer = record(scene, worker, lease, 1, "charge", '{"id":"ch_1"}')
    kept = StepRecord(n=1, kind="call", name="charge", key="", attempt=1, at=at, ran_s=0.5, result='{"id":"ch_1"}')
    assert answer == StepAnswer(accepted=True, step=kept)
    scene.settle(worker, retried(lease, 0.0))
    [again] = scene.claim(worker)
    found = scene.run(ReadSteps(worker=worker, seq=again.seq, attempt=again.attempt, claim_no=again.claim_no))
    assert (found.accepted, found.steps) == (True, (kept,))
    assert steps(scene, lease) == (kept,)


@pytest.mark.parametrize("result", [None, '"text"', '"\\u0000 \\ud800"', "[]", "1.0", '{"a": [1,  2]}'])
def test_a_result_is_kept_as_its_exact_text(scene: Scene, result: str | None) -> None:
    worker, lease = scene.leased()
    record(scene, worker, lease, 1, "read", result)
    [kept] = steps(scene, lease)
    assert kept.result == result


def test_a_step_that_is_recorded_stays_as_it_is(scene: Scene) -> None:
    worker, lease = scene.leased()
    first = record(scene, worker, lease, 1, "charge", "1")
    scene.later(1)
    assert record(scene, worker, lease, 1, "charge", "2") == first
    assert record(scene, worker, lease, 1, "refund", "3") == first
    assert steps(scene, lease) == (first.step,)


def test_steps_are_read_in_the_order_of_their_numbers(scene: Scene) -> None:
    worker, lease = scene.leased()
    for n in (3, 1, 12, 2):
        record(scene, worker, lease, n, f"step {n}")
    assert [step.n for step in steps(scene, lease)] == [1, 2, 3, 12]


def test_a_worker_that_lost_its_lease_records_and_reads_nothing_and_is_told(scene: Scene) -> None:
    worker, lease = scene.leased()
    record(scene, worker, lease, 1, "charge", "1")
    scene.later(60)
    scene.reclaim()
    other = scene.hire()
    [again] = scene.claim(other)
    assert record(scene, worker, lease, 2, "ship") == StepAnswer(accepted=False)
    assert record(scene, other, lease, 2, "ship") == StepAnswer(accepted=False)
    assert record(scene, worker, again, 2, "ship") == StepAnswer(accepted=False)
    assert not scene.run(
        ReadSteps(worker=worker, seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no)
    ).accepted
    assert not scene.run(ReadSteps(worker=other, seq=NO_SUCH_SEQ, attempt=1, claim_no=1)).accepted
    assert [step.name for step in steps(scene, lease)] == ["charge"]


def test_a_sleep_gives_the_slot_back_uncharged_and_is_behind_the_job_when_it_wakes(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.renew(worker, 1_000_000)
    at, until = scene.now, scene.at(86_400)
    assert scene.settle(worker, sleeping(lease, 1, 86_400)).refused == ()
    kept = StepRecord(n=1, kind="sleep", name="sleep", key="", attempt=1, at=at, until=until)
    assert steps(scene, lease) == (kept,)
    assert scene.see(lease.id).run_at == until
    assert scene.claim(worker) == ()
    scene.later(86_400)
    [again] = scene.claim(worker)
    assert (again.attempt, again.attempts) == (2, 0)
    assert [(attempt.attempt, attempt.outcome) for attempt in scene.attempts(lease.id)] == [(1, "snoozed")]


def test_a_sleep_reported_again_after_a_lost_reply_is_there_once(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, sleeping(lease, 1, 60))
    before = steps(scene, lease)
    scene.later(1)
    assert scene.settle(worker, sleeping(lease, 1, 60)).refused == ()
    assert steps(scene, lease) == before


def test_a_sleep_of_an_attempt_that_lost_its_lease_is_refused(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.later(60)
    scene.reclaim()
    assert len(scene.settle(worker, sleeping(lease, 1, 60)).refused) == 1
    assert steps(scene, lease) == ()


def test_a_job_that_was_to_be_cancelled_does_not_go_to_sleep(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.cancel(lease.id)
    scene.settle(worker, sleeping(lease, 1, 60))
    assert (scene.status(lease.id), steps(scene, lease)) == ("cancelled", ())


def test_a_job_made_from_a_dead_letter_takes_the_steps_along(scene: Scene) -> None:
    worker, lease = scene.leased()
    record(scene, worker, lease, 1, "charge", "1")
    scene.settle(worker, sleeping(lease, 2, 0.0))
    [lease] = scene.claim(worker)
    scene.settle(worker, died(lease))
    before = steps(scene, lease)
    made = scene.reprocess(lease.seq).new_job
    assert made is not None
    assert made.attempt == 1
    [again] = scene.claim(worker)
    assert again.id == made.id
    assert (
        scene.run(ReadSteps(worker=worker, seq=again.seq, attempt=again.attempt, claim_no=again.claim_no)).steps
        == before
    )
    assert record(scene, worker, again, 3, "ship").accepted
    assert (len(steps(scene, again)), steps(scene, lease)) == (3, before)
    scene.settle(worker, completed(again))
    assert scene.see(again.id).attempt == 2


def test_a_job_without_steps_made_from_a_dead_letter_begins_with_its_first_attempt(scene: Scene) -> None:
    lease = scene.dead()
    made = scene.reprocess(lease.seq).new_job
    assert made is not None
    assert made.attempt == 0


@pytest.mark.parametrize("end", ["dead", "cancelled"])
def test_a_node_that_is_retried_takes_its_steps_along(scene: Scene, end: str) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"]}).put()
    flow.claim()
    first = flow.leases["a"]
    assert flow.worker is not None
    record(scene, flow.worker, first, 1, "charge", "1")
    {"dead": flow.die, "cancelled": flow.stop}[end]("a")
    flow.run()
    before = steps(scene, first)
    flow.retry("a")
    assert flow.claim() == ["a"]
    again = flow.leases["a"]
    assert (again.id != first.id, again.attempt, again.attempts) == (True, 2, first.attempts)
    assert (
        scene.run(ReadSteps(worker=flow.worker, seq=again.seq, attempt=again.attempt, claim_no=again.claim_no)).steps
        == before
    )
    assert record(scene, flow.worker, again, 2, "ship").accepted
    assert (len(steps(scene, again)), steps(scene, first)) == (2, before)
    flow.complete("a")
    assert flow.claim() == ["b"]
    assert flow.leases["b"].attempt == 1


def test_a_completed_node_that_is_retried_runs_all_of_its_steps_again(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"]}).put()
    flow.claim()
    first = flow.leases["a"]
    assert flow.worker is not None
    record(scene, flow.worker, first, 1, "charge", "1")
    flow.complete("a")
    flow.run()
    flow.retry("a")
    assert flow.claim() == ["a"]
    again = flow.leases["a"]
    assert (again.id != first.id, again.attempt) == (True, 1)
    assert (
        scene.run(ReadSteps(worker=flow.worker, seq=again.seq, attempt=again.attempt, claim_no=again.claim_no)).steps
        == ()
    )


def test_a_node_that_is_retried_behind_another_takes_its_steps_along(scene: Scene) -> None:
    flow = Flow(scene, {"a": [], "b": ["a"]}).put()
    flow.claim()
    flow.complete("a")
    flow.claim()
    first = flow.leases["b"]
    assert flow.worker is not None
    record(scene, flow.worker, first, 2, "charge", "1")
    flow.die("b")
    before = steps(scene, first)
    flow.retry("a")
    waiting = scene.see(flow.job("b"))
    assert (waiting.status, waiting.attempt) == ("pending", 0)
    flow.claim()
    flow.complete("a")
    assert flow.claim() == ["b"]
    again = flow.leases["b"]
    assert again.attempt == 2
    assert (
        scene.run(ReadSteps(worker=flow.worker, seq=again.seq, attempt=again.attempt, claim_no=again.claim_no)).steps
        == before
    )


def test_steps_are_kept_with_the_finished_job_and_removed_with_it(scene: Scene) -> None:
    worker, lease = scene.leased()
    record(scene, worker, lease, 1, "charge", "1")
    scene.settle(worker, cancelled(lease))
    assert len(steps(scene, lease)) == 1
    assert scene.retain(finished_before=scene.at(1)) == 1
    assert scene.find(lease.id) is None
