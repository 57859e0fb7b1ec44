"""What people do with dead letters: reprocess, discard, resolve, acknowledge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fairlane.core.ids import Seq
from fairlane.core.ops import ALL_TENANTS, DeadLetterAct, Discard, Reprocess
from fairlane.testing.conformance.samples import NO_SUCH_SEQ, completed, died
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("L10", "I7")


def test_a_reprocessed_dead_letter_runs_again_as_a_new_job(scene: Scene) -> None:
    parent = scene.put(queue="elsewhere")
    options = {
        "payload": '{"to": [7]}',
        "payload_version": 3,
        "tenant": "acme",
        "queue": "critical",
        "priority": 2,
        "category": "notifications",
        "correlation_id": "order-12",
        "parent_id": parent.id,
        "refs": {"user": 7},
        "headers": {"traceparent": "00-ab-cd-01"},
        "max_attempts": 3,
        "timeout_s": 12.5,
    }
    lease = scene.dead(idempotency_key="welcome-7", dedup_key="d", created_by="client", **options)
    old = scene.see(lease.id)
    scene.later(10)
    act = scene.reprocess(lease.seq, by="ada", notes="server is back")
    new = act.new_job
    assert new is not None
    assert (act.refused, act.repeated) == (None, False)
    assert new == scene.see(new.id)
    assert {name: getattr(new, name) for name in options} == options
    assert (new.type, new.status, new.run_at, new.enqueued_at) == (old.type, "pending", scene.now, scene.now)
    assert (new.idempotency_key, new.dedup_key, new.created_by) == ("welcome-7_retry_1", None, "ada")
    assert (new.attempt, new.attempts, new.last_error) == (0, 0, None)
    assert scene.see(lease.id) == old
    letter = act.dead_letter
    assert letter == scene.letter(lease.seq)
    assert (letter.status, letter.closed_by, letter.closed_at) == ("retried", "ada", scene.now)
    assert (letter.resolution_notes, letter.reprocess_count, letter.reprocessed_as) == ("server is back", 1, new.id)
    [again] = scene.claim(scene.hire(), 9, queues=("critical",))
    assert (again.id, again.attempt, again.payload) == (new.id, 1, '{"to": [7]}')


def test_a_reprocessed_job_without_keys_is_named_after_the_old_ones_id(scene: Scene) -> None:
    lease = scene.dead()
    new = scene.reprocess(lease.seq).new_job
    assert new is not None
    assert (new.idempotency_key, new.correlation_id) == (f"{lease.id}_retry_1", str(lease.id))


def test_a_priority_within_its_tenant_stays_one(scene: Scene) -> None:
    lease = scene.dead(priority=7, priority_scope="tenant")
    scene.reprocess(lease.seq)
    [again] = scene.claim(scene.hire())
    assert (again.band, again.rank, again.priority) == (0, 7, 7)


def test_a_retry_policy_of_the_call_is_carried_over(scene: Scene) -> None:
    policy = msgspec.Raw(b'{"delays":[1]}')
    lease = scene.dead(retry=policy)
    scene.reprocess(lease.seq)
    [again] = scene.claim(scene.hire())
    assert again.retry is not None
    assert bytes(again.retry) == b'{"delays":[1]}'


def edited(scene: Scene, letter: Seq, **how: Any) -> DeadLetterAct:
    return scene.run(Reprocess(scope=ALL_TENANTS, id=letter, by="ada", new_job_id=scene.making.job_id(), **how))


@pytest.mark.requirement("W10")
@pytest.mark.parametrize("text", ['{ "to" : "ada@example.org", "é": 1.0 }', r'{"a":"\u0000","b":["\ud800"]}'])
def test_a_payload_edited_for_another_try_is_the_new_jobs_alone(scene: Scene, text: str) -> None:
    lease = scene.dead(payload='{"to": "ada@exampel.org"}', payload_version=3)
    old = scene.see(lease.id)
    new = edited(scene, lease.seq, payload=msgspec.Raw(text.encode())).new_job
    assert new is not None
    assert (new.payload, new.payload_version) == (text, 3)
    assert scene.see(new.id) == new
    assert scene.see(lease.id) == old
    [again] = scene.claim(scene.hire())
    assert (again.id, again.payload) == (new.id, text)


@pytest.mark.requirement("W10", "W12")
def test_a_refused_reprocess_leaves_its_request_in_the_audit_and_a_repeated_one_nothing(scene: Scene) -> None:
    lease = scene.dead(tenant="acme")
    scene.run(Discard(scope=ALL_TENANTS, id=lease.seq, by="grace"))
    act = scene.run(
        Reprocess(scope=ALL_TENANTS, id=lease.seq, by="ada", notes="safe now", new_job_id=scene.making.job_id())
    )
    assert (act.refused, act.new_job) == ("not_allowed", None)
    requested, _discard = scene.audit()
    assert (requested.action, requested.by, requested.notes) == ("job_dlq_reprocess_requested", "ada", "safe now")
    assert (requested.target, requested.tenant, requested.at) == (f"dead_letter:{lease.seq}", "acme", scene.now)
    assert (requested.before, requested.after) == ({"status": "discarded", "acknowledged_by": None}, None)
    another = scene.dead()
    taken = scene.run(Reprocess(scope=ALL_TENANTS, id=another.seq, by="ada", new_job_id=lease.id))
    assert taken.refused == "not_allowed"
    assert [record.action for record in scene.audit()][:2] == [requested.action, requested.action]
    first = edited(scene, another.seq).new_job
    before = len(scene.audit())
    assert edited(scene, another.seq).new_job == first
    assert len(scene.audit()) == before


@pytest.mark.requirement("W10", "W12")
def test_the_audit_says_that_a_payload_was_edited_and_not_what_it_holds(scene: Scene) -> None:
    lease = scene.dead(payload='{"token":"t0p"}')
    new = edited(scene, lease.seq, payload=msgspec.Raw(b'{"token":"s3cret"}')).new_job
    assert new is not None
    success, requested = scene.audit()
    assert (requested.action, requested.after) == ("job_dlq_reprocess_requested", None)
    assert success.after == {
        "status": "retried",
        "acknowledged_by": None,
        "new_job_id": str(new.id),
        "payload_edited": True,
    }


@pytest.mark.requirement("W10", "W12")
def test_a_payload_sent_back_unchanged_was_not_edited(scene: Scene) -> None:
    lease = scene.dead(payload='{"user_id":7}')
    edited(scene, lease.seq, payload=msgspec.Raw(b'{"user_id":7}'))
    assert scene.audit()[0].after is not None
    assert "payload_edited" not in scene.audit()[0].after


@pytest.mark.requirement("W10")
def test_an_edited_payload_is_what_the_next_try_starts_from(scene: Scene) -> None:
    lease = scene.dead()
    edited(scene, lease.seq, payload=msgspec.Raw(b'{"n":1}'))
    worker = scene.hire()
    [again] = scene.claim(worker)
    scene.settle(worker, died(again))
    of_the_new_letter, of_the_old = scene.reprocess(again.seq).new_job, scene.reprocess(lease.seq).new_job
    assert of_the_new_letter is not None
    assert of_the_old is not None
    assert (of_the_new_letter.payload, of_the_old.payload) == ('{"n":1}', '{"user_id":7}')


@pytest.mark.requirement("W10")
def test_a_job_with_an_edited_payload_is_told_apart_from_the_dead_one_by_it(scene: Scene) -> None:
    lease = scene.dead()
    new = edited(scene, lease.seq, payload=msgspec.Raw(b'{"n":1}')).new_job
    assert new is not None
    for payload, disposition in (('{"n":1}', "replayed"), ('{"user_id":7}', "conflict")):
        alike = scene.job(id=new.id, payload=payload, idempotency_key=new.idempotency_key)
        assert scene.enqueue(alike).receipts[0].disposition == disposition


@pytest.mark.requirement("W10")
def test_an_edited_payload_sent_twice_makes_one_job(scene: Scene) -> None:
    lease = scene.dead()
    first = edited(scene, lease.seq, payload=msgspec.Raw(b'{"n":1}')).new_job
    again = edited(scene, lease.seq, payload=msgspec.Raw(b'{"n":2}'), delay_s=5.0)
    assert (again.repeated, again.new_job) == (True, first)


@pytest.mark.requirement("W10")
def test_a_whole_group_is_spread_over_time_by_delays(scene: Scene) -> None:
    leases = [scene.dead() for _ in range(3)]
    scene.later(10)
    for nth, lease in enumerate(leases):
        act = edited(scene, lease.seq, delay_s=nth * 0.5)
        assert act.new_job is not None
        due = scene.at(nth * 0.5)
        assert (act.new_job.run_at, act.new_job.scheduled_at, act.new_job.enqueued_at) == (due, due, scene.now)
        assert act.new_job.status == "pending"
    worker = scene.hire()
    assert [len(scene.claim(worker, 9)), scene.promote().count] == [1, 0]
    scene.later(0.5)
    assert scene.promote().count == 1
    [second] = scene.claim(worker, 9)
    assert second.due_at == scene.now
    scene.later(0.5)
    assert scene.promote().count == 1


def test_reprocessing_twice_makes_one_job(scene: Scene) -> None:
    lease = scene.dead()
    first = scene.reprocess(lease.seq)
    audited = scene.audit()
    scene.later(1)
    again = scene.reprocess(lease.seq, by="grace")
    assert (again.refused, again.repeated) == (None, True)
    assert again.new_job == first.new_job
    assert again.dead_letter == first.dead_letter
    assert scene.audit() == audited
    assert len(scene.list_jobs()) == 2


def test_the_same_request_repeated_after_a_lost_reply_makes_one_job(scene: Scene) -> None:
    lease = scene.dead()
    request = Reprocess(scope=ALL_TENANTS, id=lease.seq, by="ada", new_job_id=scene.making.job_id())
    first, again = scene.run(request), scene.run(request)
    assert (first.repeated, again.repeated) == (False, True)
    assert again.new_job == first.new_job


def test_a_reprocessed_job_that_is_done_is_not_made_again(scene: Scene) -> None:
    lease = scene.dead()
    scene.reprocess(lease.seq)
    worker = scene.hire()
    [again] = scene.claim(worker)
    scene.settle(worker, completed(again))
    act = scene.reprocess(lease.seq)
    assert act.repeated
    assert act.new_job is not None
    assert (act.new_job.id, act.new_job.status) == (again.id, "completed")


@pytest.mark.parametrize("end", ["dead", "cancelled", "gone"])
def test_a_letter_may_be_reprocessed_again_once_its_new_job_has_come_to_nothing(scene: Scene, end: str) -> None:
    lease = scene.dead(idempotency_key="k")
    first = scene.reprocess(lease.seq).new_job
    assert first is not None
    worker = scene.hire()
    [again] = scene.claim(worker)
    if end == "dead":
        scene.settle(worker, died(again))
    elif end == "cancelled":
        scene.cancel(again.id)
        scene.retire(worker)
    else:
        scene.settle(worker, completed(again))
        assert scene.retain(finished_before=scene.at(1)) == 1
    scene.later(5)
    act = scene.reprocess(lease.seq, by="grace")
    assert act.new_job is not None
    assert act.dead_letter is not None
    assert (act.repeated, act.new_job.idempotency_key) == (False, "k_retry_2")
    assert (act.dead_letter.reprocess_count, act.dead_letter.reprocessed_as) == (2, act.new_job.id)
    assert (act.dead_letter.closed_by, act.dead_letter.closed_at) == ("grace", scene.now)


def test_the_letter_of_a_reprocessed_job_is_its_own(scene: Scene) -> None:
    lease = scene.dead(idempotency_key="k")
    scene.reprocess(lease.seq)
    worker = scene.hire()
    [again] = scene.claim(worker)
    scene.settle(worker, died(again))
    new = scene.reprocess(again.seq).new_job
    assert new is not None
    assert new.idempotency_key == "k_retry_1_retry_1"


def test_a_key_taken_by_a_stranger_is_stepped_over(scene: Scene) -> None:
    lease = scene.dead(idempotency_key="k", tenant="acme")
    scene.put(idempotency_key="k_retry_1", tenant="acme")
    scene.put(idempotency_key="k_retry_2", tenant="bolt")
    new = scene.reprocess(lease.seq).new_job
    assert new is not None
    assert new.idempotency_key == "k_retry_2"


Closes = Callable[[Scene, Seq], DeadLetterAct]
CLOSES: dict[str, Closes] = {
    "discarded": lambda scene, seq: scene.discard(seq, notes="spam"),
    "resolved": lambda scene, seq: scene.resolve(seq, notes="spam"),
}


@pytest.mark.parametrize("status", CLOSES)
@pytest.mark.parametrize("after", ["pending_review", "retried"])
def test_a_letter_is_closed_with_who_when_and_why(scene: Scene, status: str, after: str) -> None:
    lease = scene.dead()
    if after == "retried":
        scene.reprocess(lease.seq)
    scene.later(3)
    act = CLOSES[status](scene, lease.seq)
    assert act.refused is None
    assert act.dead_letter == scene.letter(lease.seq)
    letter = act.dead_letter
    assert (letter.status, letter.closed_by, letter.closed_at) == (status, "ada", scene.now)
    assert letter.resolution_notes == "spam"
    assert scene.status(lease.id) == "dead"


@pytest.mark.parametrize("status", CLOSES)
def test_a_closed_letter_stays_closed(scene: Scene, status: str) -> None:
    lease = scene.dead()
    CLOSES[status](scene, lease.seq)
    before, audited, jobs = scene.letter(lease.seq), scene.audit(), scene.list_jobs()
    scene.later(3)
    for act in (scene.reprocess(lease.seq), scene.discard(lease.seq), scene.resolve(lease.seq)):
        assert (act.refused, act.dead_letter, act.new_job) == ("not_allowed", before, None)
    requested, *known = scene.audit()
    assert requested.action == "job_dlq_reprocess_requested"
    assert (scene.letter(lease.seq), tuple(known), scene.list_jobs()) == (before, audited, jobs)


def test_the_first_to_acknowledge_a_letter_looks_after_it(scene: Scene) -> None:
    lease = scene.dead()
    scene.later(2)
    first = scene.acknowledge(lease.seq, by="ada")
    letter = first.dead_letter
    assert letter is not None
    assert (letter.status, letter.acknowledged_by, letter.acknowledged_at) == ("pending_review", "ada", scene.now)
    scene.later(2)
    assert scene.acknowledge(lease.seq, by="grace") == first
    assert [record.by for record in scene.audit(action="job_dlq_acknowledge")] == ["ada"]


def test_an_acknowledged_letter_keeps_its_name_when_it_is_reprocessed(scene: Scene) -> None:
    lease = scene.dead()
    scene.acknowledge(lease.seq, by="ada")
    scene.reprocess(lease.seq, by="grace")
    letter = scene.letter(lease.seq)
    assert (letter.acknowledged_by, letter.closed_by) == ("ada", "grace")


ACTS: dict[str, Callable[[Scene, Seq], DeadLetterAct]] = {
    "reprocess": lambda scene, seq: scene.reprocess(seq),
    "discard": lambda scene, seq: scene.discard(seq),
    "resolve": lambda scene, seq: scene.resolve(seq),
    "acknowledge": lambda scene, seq: scene.acknowledge(seq),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_job_that_has_not_died_has_no_letter(scene: Scene, act: str) -> None:
    for seq in (scene.put(queue="elsewhere").seq, scene.finished().seq, NO_SUCH_SEQ):
        refused = ACTS[act](scene, seq)
        assert (refused.refused, refused.dead_letter, refused.new_job) == ("not_found", None, None)
    assert scene.audit() == ()
