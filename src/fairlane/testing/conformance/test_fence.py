"""A store that lost a job gives its number to another: what the lost one's attempt still says changes nothing.

The lost lease and the other one have the number, the attempt and the worker in common, and differ in the claim.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import (
    Lapse,
    Note,
    Noted,
    ReadSteps,
    RecordedSteps,
    RecordStep,
    Refusal,
    SignalAnswer,
    Start,
    StepAnswer,
    TakeSignal,
)
from fairlane.testing.conformance.samples import OUTCOMES, completed, released, retried, snoozed
from fairlane.testing.conformance.scene import Scene
from fairlane.testing.conformance.workflows import Flow

pytestmark = pytest.mark.requirement("Q17", "D25")


def with_its_number_lost(scene: Scene, **options: Any) -> tuple[WorkerId, Lease, Lease]:
    """A worker, its lease, and that of a lost job which had the same number."""
    worker, lease = scene.leased(**options)
    return worker, lease, replace(lease, id=scene.making.job_id(), claim_no=lease.claim_no + 1)


def refusal(lease: Lease) -> Refusal:
    return Refusal(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no)


@pytest.mark.parametrize("outcome", list(OUTCOMES))
def test_a_lease_of_another_job_with_the_same_number_settles_nothing(scene: Scene, outcome: str) -> None:
    worker, lease, lost = with_its_number_lost(scene)
    before = scene.find(lease.id)
    assert scene.settle(worker, OUTCOMES[outcome](lost)).refused == (refusal(lost),)
    assert scene.find(lease.id) == before
    assert scene.settle(worker, OUTCOMES[outcome](lease)).refused == ()


def test_a_snooze_that_leaves_no_record_is_not_refused_and_moves_no_other_job(scene: Scene) -> None:
    worker, lease, lost = with_its_number_lost(scene)
    assert scene.settle(worker, snoozed(lost, 60.0, recorded=False)).refused == ()
    assert scene.status(lease.id) == "processing"


@pytest.mark.parametrize("lost_first", [True, False])
@pytest.mark.parametrize("ends", [completed, retried])
def test_both_told_in_one_turn_end_only_the_one_that_is_leased(scene: Scene, ends: Any, lost_first: bool) -> None:
    worker, lease, lost = with_its_number_lost(scene)
    told = (released(lost), ends(lease))
    assert scene.settle(worker, *(told if lost_first else told[::-1])).refused == (refusal(lost),)
    assert scene.status(lease.id) == ("completed" if ends is completed else "failed")


@pytest.mark.parametrize("lost_first", [True, False])
@pytest.mark.parametrize("ends", [completed, retried])
def test_an_outcome_that_its_own_turn_records_is_a_repeat_in_either_order(
    scene: Scene, ends: Any, lost_first: bool
) -> None:
    worker, lease, lost = with_its_number_lost(scene)
    told = (ends(lost), ends(lease))
    assert scene.settle(worker, *(told if lost_first else told[::-1])).refused == ()
    assert len(scene.attempts(lease.id)) == 1


def test_a_lease_of_another_job_with_the_same_number_starts_nothing(scene: Scene) -> None:
    worker, lease, lost = with_its_number_lost(scene, start=False)
    started = Start(seq=lost.seq, attempt=lost.attempt, claim_no=lost.claim_no, timeout_s=5.0, alone=True)
    assert scene.turn(worker, starts=(started,)).refused == (refusal(lost),)
    assert scene.status(lease.id) == "pending"
    [gone] = scene.run(Lapse(worker=worker, starts=(started,))).reclaimed
    assert (gone.id, scene.see(lease.id).crashes, scene.claim(scene.hire())[0].suspect) == (lease.id, 0, False)


def test_a_lease_of_another_job_with_the_same_number_notes_and_records_nothing(scene: Scene) -> None:
    worker, lease, lost = with_its_number_lost(scene)
    named: dict[str, Any] = {"worker": worker, "seq": lost.seq, "attempt": lost.attempt, "claim_no": lost.claim_no}
    before = scene.find(lease.id)
    assert scene.run(Note(**named, progress=0.5, log=("of the lost one",))) == Noted(accepted=False)
    assert scene.run(RecordStep(**named, n=1, name="charge", result=Raw(b"1"))) == StepAnswer(accepted=False)
    assert scene.run(TakeSignal(**named, n=1, name="paid")) == SignalAnswer(accepted=False)
    assert scene.run(ReadSteps(**named)) == RecordedSteps(accepted=False)
    assert scene.find(lease.id) == before


@pytest.mark.parametrize("by", ["another claim", "another worker"])
def test_a_lease_of_another_job_with_the_same_number_adds_no_node(scene: Scene, by: str) -> None:
    flow = Flow(scene, {"a": []}).put()
    flow.claim()
    lease = flow.leases["a"]
    claim_no = lease.claim_no + (by == "another claim")
    worker = scene.hire() if by == "another worker" else flow.worker
    named: dict[str, Any] = {"seq": lease.seq, "attempt": lease.attempt, "claim_no": claim_no, "worker": worker}
    assert flow.add({"b": ["a"]}, **named).refused == "lease_lost"
    assert flow.statuses() == {"a": "processing"}
