"""Failing and burying a job by hand, wherever it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import ALL_TENANTS, DeadLetterFilter, PageDeadLetters
from fairlane.testing.conformance.samples import completed, retried, snoozed
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("L5")


def ready(scene: Scene) -> Lease | None:
    scene.put(idempotency_key="it")
    return None


def scheduled(scene: Scene) -> Lease | None:
    scene.put(idempotency_key="it", delay_s=60)
    return None


def awaiting_retry(scene: Scene) -> Lease | None:
    worker, lease = scene.leased(idempotency_key="it")
    scene.settle(worker, retried(lease, 60))
    return lease


def snoozing(scene: Scene) -> Lease | None:
    worker, lease = scene.leased(idempotency_key="it")
    scene.settle(worker, snoozed(lease, 60))
    return lease


def prefetched(scene: Scene) -> Lease | None:
    return scene.leased(idempotency_key="it", start=False)[1]


def started(scene: Scene) -> Lease | None:
    return scene.leased(idempotency_key="it")[1]


PLACES: dict[str, Callable[[Scene], Lease | None]] = {
    place.__name__: place for place in (ready, scheduled, awaiting_retry, snoozing, prefetched, started)
}
everywhere = pytest.mark.parametrize("place", PLACES)


@everywhere
def test_a_job_failed_by_hand_without_retry_is_dead_and_charged(scene: Scene, place: str) -> None:
    PLACES[place](scene)
    [job] = scene.list_jobs()
    before = scene.see(job)
    scene.later(5)
    act = scene.fail(job, "wrong address")
    assert act.refused is None
    assert act.job == scene.see(job)
    assert (act.job.status, act.job.finished_at, act.job.attempts) == ("dead", scene.now, before.attempts + 1)
    assert (act.job.error_class, act.job.error_type) == ("non_retryable", "FailedByHand")
    assert (act.job.last_error, act.job.last_error_at) == ("wrong address", scene.now)
    letter = scene.letter(act.job.seq)
    assert (letter.status, letter.reason, letter.died_at) == ("pending_review", "wrong address", scene.now)
    assert (letter.error_class, letter.error_type) == ("non_retryable", "FailedByHand")
    scene.later(600)
    assert scene.claim(scene.hire(), 9) == ()


@everywhere
def test_a_job_failed_by_hand_with_retry_runs_again_after_the_delay(scene: Scene, place: str) -> None:
    PLACES[place](scene)
    [job] = scene.list_jobs()
    before = scene.see(job)
    scene.later(5)
    act = scene.fail(job, "try later", retry_delay_s=90)
    assert act.refused is None
    assert act.job == scene.see(job)
    assert (act.job.status, act.job.run_at) == ("failed", scene.at(90))
    assert (act.job.attempts, act.job.finished_at) == (before.attempts + 1, None)
    assert (act.job.error_class, act.job.error_type, act.job.last_error) == ("retryable", "FailedByHand", "try later")
    scene.later(90)
    [lease] = scene.claim(scene.hire(), 9)
    assert (lease.id, lease.attempts, lease.suspect) == (job, before.attempts + 1, False)


@everywhere
def test_a_job_failed_by_hand_has_a_record_of_it(scene: Scene, place: str) -> None:
    lease = PLACES[place](scene)
    [job] = scene.list_jobs()
    held = place in ("prefetched", "started")
    last_attempt, worker = scene.see(job).attempt, scene.see(job).worker
    scene.later(5)
    scene.fail(job, "wrong address")
    record = scene.attempts(job)[-1]
    assert (record.outcome, record.ended_at, record.error_message) == ("failed_by_hand", scene.now, "wrong address")
    assert (record.error_type, record.error_class) == ("FailedByHand", "non_retryable")
    if held:
        assert lease is not None
        assert (record.attempt, record.worker, record.leased_at) == (last_attempt, worker, lease.leased_at)
    else:
        assert (record.attempt, record.worker, record.started_at) == (last_attempt + 1, None, None)
        assert record.leased_at == scene.now
        assert scene.see(job).attempt == last_attempt + 1


@pytest.mark.parametrize("place", ["ready", "prefetched", "started"])
def test_a_job_failed_by_hand_is_no_longer_suspect(scene: Scene, place: str) -> None:
    _, lease = scene.leased()
    scene.later(60)
    scene.reclaim()
    if place != "ready":
        assert scene.claim(scene.hire(), start=int(place == "started"))[0].suspect
    scene.fail(lease.id, retry_delay_s=0)
    assert [again.suspect for again in scene.claim(scene.hire())] == [False]


def test_the_last_attempt_failed_by_hand_is_dead_whatever_was_asked(scene: Scene) -> None:
    job = scene.put(max_attempts=2)
    assert scene.fail(job.id, retry_delay_s=1).job == scene.see(job.id)
    assert scene.status(job.id) == "failed"
    act = scene.fail(job.id, retry_delay_s=1)
    assert act.job is not None
    assert (act.job.status, act.job.attempts, act.job.error_class) == ("dead", 2, "non_retryable")


def test_a_running_job_failed_by_hand_loses_its_lease(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.fail(lease.id, retry_delay_s=0)
    assert scene.settle(worker, completed(lease)).refused
    assert scene.turn(worker).cancels == ()


def test_a_job_asked_to_stop_and_then_failed_by_hand_does_not_run_again(scene: Scene) -> None:
    _, lease = scene.leased()
    scene.cancel(lease.id)
    act = scene.fail(lease.id, retry_delay_s=5)
    assert act.job is not None
    assert act.job.status == "cancelled"


def test_a_job_asked_to_stop_and_then_failed_for_good_is_dead(scene: Scene) -> None:
    _, lease = scene.leased()
    scene.cancel(lease.id)
    act = scene.fail(lease.id)
    assert act.job is not None
    assert act.job.status == "dead"


@everywhere
def test_a_buried_job_is_a_dead_letter_at_once_and_uncharged(scene: Scene, place: str) -> None:
    PLACES[place](scene)
    [job] = scene.list_jobs()
    before = scene.see(job)
    scene.later(5)
    act = scene.bury(job, "never mind")
    assert act.refused is None
    assert act.job == scene.see(job)
    assert (act.job.status, act.job.finished_at, act.job.attempts) == ("dead", scene.now, before.attempts)
    assert (act.job.error_class, act.job.error_type, act.job.last_error) == ("non_retryable", "Buried", "never mind")
    letter = scene.letter(act.job.seq)
    assert (letter.status, letter.reason, letter.error_type) == ("pending_review", "never mind", "Buried")
    assert scene.attempts(job)[-1].outcome == "failed_by_hand"


def test_a_buried_running_job_loses_its_lease(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.bury(lease.id)
    assert scene.settle(worker, completed(lease)).refused
    assert scene.status(lease.id) == "dead"


ACTS: dict[str, Callable[[Scene, Lease], object]] = {
    "fail": lambda scene, lease: scene.fail(lease.id).refused,
    "fail with retry": lambda scene, lease: scene.fail(lease.id, retry_delay_s=5).refused,
    "bury": lambda scene, lease: scene.bury(lease.id).refused,
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("end", ["completed", "dead", "cancelled"])
def test_what_has_ended_can_be_neither_failed_nor_buried(scene: Scene, act: str, end: str) -> None:
    worker, lease = scene.leased()
    if end == "completed":
        scene.settle(worker, completed(lease))
    elif end == "dead":
        scene.bury(lease.id)
    else:
        scene.cancel(lease.id)
        scene.retire(worker)
    before, audited = scene.find(lease.id), scene.audit()
    assert ACTS[act](scene, lease) == "not_allowed"
    assert scene.find(lease.id) == before
    assert scene.audit() == audited


def test_failures_by_hand_that_are_alike_share_a_fingerprint(scene: Scene) -> None:
    for name, reason in (("mail.send", "a"), ("mail.send", "b"), ("report.make", "a")):
        scene.fail(scene.put(name).id, reason)
    scene.bury(scene.put("mail.send").id)
    letters = scene.run(PageDeadLetters(scope=ALL_TENANTS, where=DeadLetterFilter())).dead_letters
    buried, report, second, first = (letter.fingerprint for letter in letters)
    assert first == second
    assert len({first, report, buried}) == 3
    assert len(first) == 16


def test_acts_on_a_job_nobody_knows_find_nothing(scene: Scene) -> None:
    nobody = scene.making.job_id()
    for act in (scene.fail(nobody), scene.bury(nobody)):
        assert (act.refused, act.job) == ("not_found", None)
    assert scene.audit() == ()


def test_a_workers_row_outlives_a_job_taken_from_it(scene: Scene) -> None:
    worker: WorkerId
    worker, lease = scene.leased()
    scene.fail(lease.id)
    assert scene.renew(worker).fresh is False
