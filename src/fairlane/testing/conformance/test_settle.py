"""How an attempt ends: every outcome, and the guard that only the holder of the lease can pass."""

from __future__ import annotations

import msgspec
import pytest

from fairlane.core.ops import ALL_TENANTS, GetDeadLetter, Start
from fairlane.testing.conformance.samples import (
    NO_SUCH_SEQ,
    OUTCOMES,
    cancelled,
    completed,
    died,
    failure,
    released,
    retried,
    snoozed,
)
from fairlane.testing.conformance.scene import Scene

every_outcome = pytest.mark.parametrize("outcome", OUTCOMES)
BECOMES = {
    "completed": "completed",
    "retried": "failed",
    "died": "dead",
    "cancelled": "cancelled",
    "snoozed": "pending",
    "released": "pending",
}
RECORDED = {
    "completed": "completed",
    "retried": "failed",
    "died": "dead",
    "cancelled": "cancelled",
    "snoozed": "snoozed",
    "released": "released",
}


@pytest.mark.requirement("L1", "W5")
@every_outcome
def test_each_outcome_puts_the_job_where_it_belongs_and_records_the_attempt(scene: Scene, outcome: str) -> None:
    worker, lease = scene.leased()
    scene.later(10)
    result = scene.settle(worker, OUTCOMES[outcome](lease))
    assert result.refused == ()
    assert scene.status(lease.id) == BECOMES[outcome]
    [attempt] = scene.attempts(lease.id)
    assert (attempt.attempt, attempt.outcome, attempt.worker) == (1, RECORDED[outcome], worker)
    assert (attempt.leased_at, attempt.started_at, attempt.ended_at) == (scene.at(-10), scene.at(-10), scene.now)


@pytest.mark.requirement("W5")
def test_jobs_completed_together_keep_what_each_has_of_its_own(scene: Scene) -> None:
    worker, again = scene.leased()
    scene.settle(worker, retried(again, delay_s=0.0))
    for at, options in enumerate(({}, {}, {"timeout_s": 7.0}, {"tenant": "globex"}, {"type": "mail.read"}, {})):
        scene.put(run_at=scene.at(-at), **options)
    scene.promote()
    first, others = scene.claim(worker, 4), scene.prefetch(worker, 3, lane="fast")
    leases = {lease.seq: lease for lease in (*first, *others)}
    assert (len(leases), leases[again.seq].attempt) == (7, 2)
    scene.later(10)
    given = [completed(lease, ran_s=1.0 + at, ended_ago_s=at) for at, lease in enumerate(leases.values())]
    assert scene.settle(worker, *given).refused == ()
    for at, lease in enumerate(leases.values()):
        job, attempt = scene.see(lease.id), scene.attempts(lease.id)[-1]
        assert (job.status, job.tenant, job.type, job.run_at) == ("completed", lease.tenant, lease.type, lease.due_at)
        assert (attempt.attempt, attempt.worker, attempt.outcome) == (lease.attempt, worker, "completed")
        assert (attempt.leased_at, attempt.expires_at) == (lease.leased_at, lease.deadline_at)
        assert attempt.started_at == (scene.at(-10) if lease.started else scene.at(-1 - 2 * at))
        assert attempt.ended_at == scene.at(-at)
    assert not scene.stats().queues


@pytest.mark.requirement("W7")
def test_a_completed_job_keeps_its_result(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.later(10)
    scene.settle(worker, completed(lease, '{"sent": [1, 2.50]}', ran_s=4.0, ended_ago_s=1.5))
    job = scene.see(lease.id)
    assert (job.status, job.result) == ("completed", '{"sent": [1, 2.50]}')
    assert (job.started_at, job.finished_at, job.worker) == (scene.at(-10), scene.at(-1.5), worker)
    assert (job.attempt, job.attempts, job.last_error) == (1, 0, None)


def test_a_result_may_be_missing_or_null(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, completed(lease))
    assert scene.see(lease.id).result is None
    worker, lease = scene.leased()
    scene.settle(worker, completed(lease, "null"))
    assert scene.see(lease.id).result == "null"


@pytest.mark.requirement("W7", "W9")
def test_a_retried_job_is_charged_and_waits_for_its_delay(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.later(10)
    because = failure("slow down", error_type="TooMany", error_class="rate_limited", traceback="Traceback …")
    scene.settle(worker, retried(lease, 60, because, ended_ago_s=0.5))
    job = scene.see(lease.id)
    assert (job.status, job.attempts, job.attempt, job.run_at) == ("failed", 1, 1, scene.at(60))
    assert (job.error_class, job.error_type, job.last_error) == ("rate_limited", "TooMany", "slow down")
    assert (job.last_error_at, job.started_at, job.finished_at, job.worker) == (scene.at(-0.5), None, None, None)
    [attempt] = scene.attempts(job.id)
    assert (attempt.error_class, attempt.error_type) == ("rate_limited", "TooMany")
    assert (attempt.error_message, attempt.traceback) == ("slow down", "Traceback …")
    assert (scene.queue().scheduled, scene.queue().failed, scene.queue().pending) == (1, 1, 0)


def test_a_retried_job_that_is_due_again_is_pending(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, retried(lease, 60))
    scene.later(60)
    scene.promote()
    assert scene.status(lease.id) == "pending"


def test_a_later_success_keeps_the_memory_of_the_last_failure(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, retried(lease, 1, failure("first try")))
    scene.later(1)
    [lease] = scene.claim(worker)
    scene.settle(worker, completed(lease, "1"))
    job = scene.see(lease.id)
    assert (job.status, job.attempts, job.attempt, job.last_error) == ("completed", 1, 2, "first try")
    assert [attempt.outcome for attempt in scene.attempts(job.id)] == ["failed", "completed"]
    assert [attempt.error_message for attempt in scene.attempts(job.id)] == ["first try", None]


@pytest.mark.requirement("W8", "I7")
def test_a_job_that_died_is_a_dead_letter_with_everything_it_had(scene: Scene) -> None:
    worker, lease = scene.leased(payload='{"to": 7}', tenant="acme", correlation_id="order-12", queue="critical")
    scene.settle(worker, retried(lease, 5, failure("first")))
    scene.later(5)
    [lease] = scene.claim(worker, queues=("critical",))
    scene.later(2)
    because = failure("last", error_type="Broken", error_class="non_retryable", fingerprint="abc123")
    scene.settle(worker, died(lease, because, ended_ago_s=0.25))
    detail = scene.run(GetDeadLetter(scope=ALL_TENANTS, id=lease.seq))
    assert detail is not None
    letter = detail.dead_letter
    assert (letter.id, letter.status, letter.reason) == (lease.seq, "pending_review", "last")
    assert (letter.error_class, letter.error_type, letter.fingerprint) == ("non_retryable", "Broken", "abc123")
    assert (letter.died_at, letter.reprocess_count, letter.reprocessed_as) == (scene.at(-0.25), 0, None)
    assert (letter.acknowledged_by, letter.closed_by, letter.closed_at) == (None, None, None)
    assert letter.job == scene.see(lease.id)
    assert (letter.job.status, letter.job.payload, letter.job.attempts) == ("dead", '{"to": 7}', 2)
    assert (letter.job.correlation_id, letter.job.enqueued_at) == ("order-12", scene.at(-7))
    assert (letter.job.started_at, letter.job.finished_at) == (scene.at(-2), scene.at(-0.25))
    assert [(attempt.outcome, attempt.error_message) for attempt in detail.attempts] == [
        ("failed", "first"),
        ("dead", "last"),
    ]


def test_a_death_without_a_run_is_not_charged(scene: Scene) -> None:
    worker, lease = scene.leased(start=False)
    scene.settle(worker, died(lease, failure("unreadable payload"), charged=False))
    job = scene.see(lease.id)
    assert (job.status, job.attempts, job.started_at) == ("dead", 0, None)


@pytest.mark.requirement("I7")
def test_the_reason_of_a_dead_letter_is_cut_to_two_thousand_characters(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, died(lease, failure("é" * 2500)))
    assert scene.letter(lease.seq).reason == "é" * 2000


def test_a_cancelled_attempt_ends_its_job(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.later(3)
    scene.settle(worker, cancelled(lease, "no longer needed"))
    job = scene.see(lease.id)
    assert (job.status, job.finished_at, job.attempts) == ("cancelled", scene.now, 0)


@pytest.mark.requirement("Q12")
def test_a_snoozed_job_runs_again_later_by_itself_and_uncharged(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, snoozed(lease, 1800))
    job = scene.see(lease.id)
    assert (job.status, job.attempts, job.run_at) == ("pending", 0, scene.at(1800))
    assert scene.claim(worker) == ()
    scene.renew(worker, 3600)
    scene.later(1800)
    [again] = scene.claim(worker)
    assert (again.id, again.attempt, again.attempts, again.due_at) == (lease.id, 2, 0, scene.now)


@pytest.mark.requirement("Q12")
def test_a_job_that_failed_for_missing_data_comes_back_by_itself(scene: Scene) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, retried(lease, 1800, failure("the invoice is not there yet", error_type="MissingData")))
    scene.renew(worker, 3600)
    scene.later(1799)
    assert scene.claim(worker) == ()
    scene.later(1)
    assert [again.id for again in scene.claim(worker)] == [lease.id]


def test_a_released_job_is_ready_again_with_the_due_time_it_had(scene: Scene) -> None:
    job = scene.put(run_at=scene.at(-100))
    worker = scene.hire()
    [lease] = scene.prefetch(worker)
    scene.later(5)
    scene.settle(worker, released(lease))
    assert scene.see(job.id).run_at == scene.at(-105)
    [attempt] = scene.attempts(job.id)
    assert (attempt.outcome, attempt.started_at) == ("released", None)
    [again] = scene.claim(worker)
    assert (again.due_at, again.attempt, again.attempts) == (scene.at(-105), 2, 0)


def test_scheduled_at_stays_the_first_due_time(scene: Scene) -> None:
    worker, lease = scene.leased()
    first_due = scene.now
    scene.settle(worker, retried(lease, 60))
    job = scene.see(lease.id)
    assert (job.scheduled_at, job.run_at) == (first_due, scene.at(60))


def test_how_long_it_ran_tells_when_a_prefetched_attempt_started(scene: Scene) -> None:
    worker, lease = scene.leased(start=False)
    scene.later(10)
    scene.settle(worker, completed(lease, ran_s=3.0, ended_ago_s=2.0))
    [attempt] = scene.attempts(lease.id)
    assert (attempt.started_at, attempt.ended_at) == (scene.at(-5), scene.at(-2))


@pytest.mark.requirement("Q17")
@every_outcome
def test_a_worker_that_lost_its_lease_settles_nothing(scene: Scene, outcome: str) -> None:
    worker, lease = scene.leased()
    scene.later(60)
    scene.reclaim()
    before = scene.find(lease.id)
    [refusal] = scene.settle(worker, OUTCOMES[outcome](lease)).refused
    assert (refusal.seq, refusal.attempt) == (lease.seq, lease.attempt)
    assert scene.find(lease.id) == before


@pytest.mark.requirement("Q17")
@every_outcome
def test_an_older_attempt_settles_nothing_while_a_newer_one_runs(scene: Scene, outcome: str) -> None:
    worker, old = scene.leased()
    scene.later(60)
    scene.reclaim()
    newer = scene.hire()
    [lease] = scene.claim(newer)
    before = scene.find(lease.id)
    assert scene.settle(worker, OUTCOMES[outcome](old)).refused
    assert scene.find(lease.id) == before
    assert scene.settle(newer, completed(lease)).refused == ()


@every_outcome
def test_another_workers_outcome_is_refused(scene: Scene, outcome: str) -> None:
    _, lease = scene.leased()
    before = scene.find(lease.id)
    assert scene.settle(scene.hire(), OUTCOMES[outcome](lease)).refused
    assert scene.find(lease.id) == before


def test_a_newer_attempt_than_there_is_settles_nothing(scene: Scene) -> None:
    worker, lease = scene.leased()
    assert scene.settle(worker, completed(msgspec.structs.replace(lease, attempt=2))).refused
    assert scene.status(lease.id) == "processing"


def test_an_outcome_of_a_job_nobody_knows_is_refused(scene: Scene) -> None:
    worker, lease = scene.leased()
    [refusal] = scene.settle(worker, completed(msgspec.structs.replace(lease, seq=NO_SUCH_SEQ))).refused
    assert refusal.seq == NO_SUCH_SEQ


@every_outcome
def test_the_same_outcome_twice_under_one_attempt_is_fine_and_counts_once(scene: Scene, outcome: str) -> None:
    worker, lease = scene.leased()
    ended = OUTCOMES[outcome](lease)
    assert scene.settle(worker, ended).refused == ()
    before = scene.find(lease.id)
    scene.later(1)
    assert scene.settle(worker, ended).refused == ()
    assert scene.find(lease.id) == before


@every_outcome
def test_the_same_outcome_repeated_by_another_worker_is_refused(scene: Scene, outcome: str) -> None:
    worker, lease = scene.leased()
    ended = OUTCOMES[outcome](lease)
    scene.settle(worker, ended)
    before = scene.find(lease.id)
    assert scene.settle(scene.hire(), ended).refused
    assert scene.settle(scene.making.worker_id(), ended).refused
    assert scene.find(lease.id) == before


@every_outcome
def test_another_outcome_under_an_attempt_that_ended_is_refused(scene: Scene, outcome: str) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, OUTCOMES[outcome](lease))
    before = scene.find(lease.id)
    others = [make(lease) for name, make in OUTCOMES.items() if name != outcome]
    assert len(scene.settle(worker, *others).refused) == len(others)
    assert scene.find(lease.id) == before


def test_a_refused_outcome_spares_the_others_of_its_batch(scene: Scene) -> None:
    scene.put_many(3)
    worker = scene.hire()
    a, b, c = scene.claim(worker, 3)
    scene.fail(b.id)
    result = scene.settle(worker, completed(a), retried(b), died(c))
    assert [(refusal.seq, refusal.attempt) for refusal in result.refused] == [(b.seq, b.attempt)]
    assert [scene.status(lease.id) for lease in (a, b, c)] == ["completed", "dead", "dead"]


def test_a_batch_of_every_outcome_settles_each(scene: Scene) -> None:
    scene.put_many(len(OUTCOMES))
    worker = scene.hire()
    leases = scene.claim(worker, len(OUTCOMES))
    ended = [make(lease) for make, lease in zip(OUTCOMES.values(), leases, strict=True)]
    assert scene.settle(worker, *ended).refused == ()
    assert [scene.status(lease.id) for lease in leases] == list(BECOMES.values())


def test_refusals_come_in_the_order_given_outcomes_first(scene: Scene) -> None:
    scene.put_many(len(OUTCOMES) + 2)
    worker = scene.hire()
    leases = scene.claim(worker, len(OUTCOMES) + 2)
    scene.later(60)
    scene.reclaim()
    lost = [make(lease) for make, lease in zip(OUTCOMES.values(), reversed(leases), strict=False)]
    starts = tuple(
        Start(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, timeout_s=5)
        for lease in (leases[1], leases[0])
    )
    for outcomes in (lost, lost[::-1], lost[:2], lost[3:1:-1]):
        result = scene.turn(worker, outcomes=tuple(outcomes), starts=starts)
        assert [refusal.seq for refusal in result.refused] == [each.seq for each in (*outcomes, *starts)]


@pytest.mark.requirement("D13")
@pytest.mark.parametrize("kind", ["completed", "retried", "died", "cancelled", "snoozed", "released"])
def test_an_attempt_keeps_when_its_lease_would_have_ended(scene: Scene, kind: str) -> None:
    worker, lease = scene.leased()
    scene.settle(worker, OUTCOMES[kind](lease))
    [attempt] = scene.attempts(lease.id)
    assert attempt.expires_at == lease.deadline_at > attempt.leased_at


@pytest.mark.requirement("D13")
def test_an_attempt_that_starts_late_keeps_the_lease_it_had_in_the_end(scene: Scene) -> None:
    worker, lease = scene.leased(start=False)
    scene.later(5)
    scene.start(worker, lease, timeout_s=30.0)
    scene.settle(worker, completed(lease))
    [attempt] = scene.attempts(lease.id)
    assert attempt.expires_at == scene.at(60)


@pytest.mark.requirement("D13")
def test_attempts_ended_by_hand_or_by_a_lost_worker_keep_it_too(scene: Scene) -> None:
    _, lease = scene.leased()
    scene.later(60)
    scene.reclaim()
    [lost] = scene.attempts(lease.id)
    assert (lost.outcome, lost.expires_at) == ("lost", lease.deadline_at)
    [again] = scene.claim(scene.hire())
    scene.fail(again.id, retry_delay_s=60.0)
    scene.fail(again.id)
    _, taken, waiting = scene.attempts(lease.id)
    assert (taken.outcome, taken.expires_at) == ("failed_by_hand", again.deadline_at)
    assert (waiting.outcome, waiting.expires_at) == ("failed_by_hand", None), "it had no lease"
