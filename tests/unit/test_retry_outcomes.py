"""How an attempt that ended becomes an outcome."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec import Raw

from fairlane.core.error_classes import Classifier
from fairlane.core.job import ErrorClass, Lease
from fairlane.core.outcome import Cancelled, Completed, Died, Outcome, Released, Retried, Snoozed
from fairlane.core.retry import LONGEST_DELAY_S, Policy, Retry, completed, decide
from fairlane.errors import (
    AttemptCancelled,
    Cancel,
    LeaseLost,
    MissingData,
    NonRetryable,
    RateLimited,
    Snooze,
)
from fairlane.testing.conformance.samples import NOON
from tests.unit.leases import a_lease

SPREAD_MIDDLE = 0.5


def decided(
    exc: BaseException, policy: Policy | None = None, *, fraction: float = SPREAD_MIDDLE, **facts: Any
) -> Outcome:
    return decide(a_lease(**facts), exc, policy or Policy(), Classifier(), now=NOON, fraction=fraction, ran_s=1.5)


def delay_of(
    exc: BaseException, policy: Policy | None = None, *, fraction: float = SPREAD_MIDDLE, **facts: Any
) -> float:
    outcome = decided(exc, policy, fraction=fraction, **facts)
    assert isinstance(outcome, Retried)
    return outcome.delay_s


@pytest.mark.requirement("W7")
def test_completing_keeps_the_result() -> None:
    outcome = completed(a_lease(), {"fetched": 10}, 0.25)
    assert outcome == Completed(seq=a_lease().seq, attempt=3, claim_no=7, ran_s=0.25, result=Raw(b'{"fetched":10}'))
    assert completed(a_lease(), None, 0.25) == Completed(seq=a_lease().seq, attempt=3, claim_no=7, ran_s=0.25)


@pytest.mark.requirement("W7")
def test_failing_says_what_of_which_class_and_how_long_to_wait() -> None:
    outcome = decided(ConnectionResetError("peer hung up"))
    assert isinstance(outcome, Retried)
    assert (outcome.seq, outcome.attempt, outcome.ran_s) == (41, 3, 1.5)
    assert outcome.failure.error_class == "transient"
    assert outcome.failure.error_type == "ConnectionResetError"
    assert outcome.failure.message == "peer hung up"
    assert outcome.delay_s == pytest.approx(2)


@pytest.mark.requirement("W8")
def test_a_non_retryable_failure_dies_at_once() -> None:
    outcome = decided(NonRetryable("the address does not exist"))
    assert isinstance(outcome, Died)
    assert outcome.charged
    assert outcome.failure.error_class == "non_retryable"


@pytest.mark.requirement("W8", "I6")
def test_the_last_attempt_dies_and_the_ones_before_are_retried() -> None:
    kinds = [type(decided(ValueError("odd"), attempts=attempts)) for attempts in range(5)]
    assert kinds == [Retried, Retried, Retried, Retried, Died]


@pytest.mark.requirement("W9")
def test_the_default_delays_of_the_four_retries() -> None:
    assert [delay_of(ValueError(), attempts=n) for n in range(4)] == pytest.approx([2, 4, 8, 16])


@pytest.mark.requirement("I6")
def test_policies_rank_enqueue_call_then_task_then_queue_then_error_class_then_application() -> None:
    by_class: dict[ErrorClass, Retry] = {"retryable": Retry(delays=(40.0,))}
    queue, task = Retry(delays=(30.0,)), Retry(delays=(20.0,))
    call = Raw(Retry(delays=(10.0,)).to_json())
    assert delay_of(ValueError(), Policy(app=Retry(delays=(50.0,)))) == 50
    assert delay_of(ValueError(), Policy(by_class=by_class)) == 40
    assert delay_of(ValueError(), Policy(by_class=by_class, queue=queue)) == 30
    assert delay_of(ValueError(), Policy(by_class=by_class, queue=queue, task=task)) == 20
    assert delay_of(ValueError(), Policy(by_class=by_class, queue=queue, task=task), retry=call) == 10


@pytest.mark.requirement("W9")
def test_rate_limited_always_takes_its_slow_list() -> None:
    policy = Policy(task=Retry(delays=(1.0,)), queue=Retry(delays=(1.0,)))
    call = Raw(Retry(delays=(1.0,)).to_json())
    assert [delay_of(RateLimited(), policy, retry=call, attempts=n) for n in range(3)] == pytest.approx([60, 120, 240])
    assert delay_of(RateLimited(), Policy(by_class={"rate_limited": Retry(delays=(7.0,))}), retry=call) == 7


@pytest.mark.requirement("W9")
def test_the_servers_retry_after_wins_over_everything_and_is_never_undercut() -> None:
    call = Raw(Retry(delays=(1.0,)).to_json())
    assert delay_of(RateLimited(retry_after=500), retry=call, fraction=0.0) == 500
    spread = [delay_of(RateLimited(retry_after=500), fraction=at / 10) for at in range(10)]
    assert min(spread) == 500
    assert 500 < max(spread) <= 550


def test_an_absurd_retry_after_is_bounded() -> None:
    assert delay_of(RateLimited(retry_after=1e12), fraction=0.0) == 86_400


@pytest.mark.requirement("Q12")
def test_a_job_that_misses_data_runs_again_at_its_time_or_in_half_an_hour() -> None:
    assert delay_of(MissingData("no rates yet")) == 1800
    assert delay_of(MissingData(), Policy(missing_data_s=60.0)) == 60
    assert delay_of(MissingData(retry_at=NOON + timedelta(hours=2))) == 7200
    assert delay_of(MissingData(retry_at=NOON - timedelta(hours=2))) == 0
    naive = datetime(2026, 3, 1, 12, 1)  # noqa: DTZ001 - given without a zone, it means UTC
    assert delay_of(MissingData(retry_at=naive)) == 60
    assert isinstance(decided(MissingData(), attempts=4), Died)


def test_snoozing_runs_again_uncharged_however_many_attempts_are_left() -> None:
    outcome = decided(Snooze(90), attempts=4)
    assert isinstance(outcome, Snoozed)
    assert outcome.delay_s == 90
    assert decided(Snooze(-5)) == Snoozed(seq=a_lease().seq, attempt=3, claim_no=7, ran_s=1.5, delay_s=0.0)
    assert decided(Snooze(1e300)) == Snoozed(
        seq=a_lease().seq, attempt=3, claim_no=7, ran_s=1.5, delay_s=LONGEST_DELAY_S
    )


def test_a_snooze_without_a_real_number_of_seconds_is_a_failure_that_says_so() -> None:
    outcome = decided(Snooze(float("nan")))
    assert isinstance(outcome, Died)
    assert "Snooze = nan" in outcome.failure.message


def test_code_that_cancels_itself_or_is_asked_to_stop_ends_cancelled() -> None:
    assert decided(Cancel("the order is gone")) == Cancelled(
        seq=a_lease().seq, attempt=3, claim_no=7, ran_s=1.5, reason="the order is gone"
    )
    assert isinstance(decided(AttemptCancelled(), attempts=4), Cancelled)
    assert isinstance(decided(Cancel("bad \x00 text")), Cancelled)


def test_an_attempt_that_lost_its_lease_asks_for_nothing() -> None:
    assert isinstance(decided(LeaseLost()), Released)


def test_a_signal_inside_a_task_group_is_heard() -> None:
    assert isinstance(decided(ExceptionGroup("unhandled errors in a TaskGroup", [Snooze(5)])), Snoozed)
    assert isinstance(decided(BaseExceptionGroup("group", [ExceptionGroup("in", [Cancel()])])), Cancelled)


def test_a_retry_policy_in_the_row_that_cannot_be_read_falls_to_the_next() -> None:
    assert delay_of(ValueError(), Policy(task=Retry(delays=(20.0,))), retry=Raw(b'{"from":"the future"}')) == 20


@pytest.mark.parametrize("result", [float("nan"), {"x": float("inf")}, object(), "x" * 2_000_000, 10**400], ids=type)
def test_a_result_that_cannot_be_stored_dies_as_unstorable(result: object) -> None:
    outcome = completed(a_lease(), result, 0.1)
    assert isinstance(outcome, Died)
    assert outcome.failure.error_type == "unstorable_result"
    assert outcome.failure.error_class == "non_retryable"
    assert len(outcome.failure.message) <= 2000


@pytest.mark.requirement("W8")
def test_how_many_attempts_a_job_gets() -> None:
    queue, task, call = Retry(max_attempts=4), Retry(max_attempts=7), Retry(max_attempts=2)
    assert Policy().max_attempts() == 5
    assert Policy(queue=queue).max_attempts() == 4
    assert Policy(queue=queue, task=task).max_attempts() == 7
    assert Policy(queue=queue, task=task).max_attempts(call) == 2
    assert Policy(queue=queue, task=Retry(base_s=1.0)).max_attempts() == 4, (
        "one that does not say leaves it to the next"
    )


failures = st.sampled_from(
    [
        ValueError("x"),
        ConnectionError(),
        RateLimited(),
        RateLimited(retry_after=3),
        MissingData(),
        NonRetryable(),
        SystemExit(),
    ]
)


@pytest.mark.requirement("W8")
@given(st.integers(1, 12), st.lists(failures, min_size=20, max_size=20), st.floats(0, 1, exclude_max=True))
def test_no_story_of_failures_runs_more_often_than_allowed(
    max_attempts: int, story: list[BaseException], fraction: float
) -> None:
    charged = 0
    for exc in story:
        lease: Lease = a_lease(attempts=charged, max_attempts=max_attempts)
        outcome = decide(lease, exc, Policy(), Classifier(), now=NOON, fraction=fraction, ran_s=None)
        charged += 1
        if isinstance(outcome, Died):
            break
        assert isinstance(outcome, Retried)
        assert 0 <= outcome.delay_s <= LONGEST_DELAY_S
    assert charged <= max_attempts


@pytest.mark.requirement("D17")
def test_a_job_that_leaves_its_attempts_to_the_policy_has_those_of_task_queue_or_application() -> None:
    left = Raw(b'{"by_policy":true}')
    for policy, last in (
        (Policy(), 5),
        (Policy(queue=Retry(max_attempts=3)), 3),
        (Policy(queue=Retry(max_attempts=3), attempts=2), 2),
        (Policy(task=Retry(max_attempts=7), queue=Retry(max_attempts=3)), 7),
    ):
        for failed in range(last):
            lease = a_lease(attempts=failed, max_attempts=5, retry=left)
            outcome = decide(lease, ValueError(), policy, Classifier(), now=NOON, fraction=0.5, ran_s=1.0)
            assert isinstance(outcome, Died if failed == last - 1 else Retried)
    assert delay_of(ValueError(), Policy(queue=Retry(delays=(30.0,))), retry=left) == 30, "and their delays"
