"""Delays between attempts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from fairlane.core.retry import LONGEST_DELAY_S, Policy, Retry
from fairlane.errors import InvalidOption

fractions = st.floats(0.0, 1.0, exclude_max=True)
failures = st.integers(1, 10**6)
policies = st.builds(
    Retry,
    base_s=st.floats(0.0, 1e5),
    factor=st.floats(1.0, 100.0),
    cap_s=st.floats(0.0, 1e6),
    jitter=st.floats(0.0, 1.0),
)


@pytest.mark.requirement("W9")
def test_the_default_delays_double_from_two_seconds() -> None:
    assert [Retry().delay_s(failed, 0.5) for failed in range(1, 6)] == pytest.approx([2, 4, 8, 16, 32])


@pytest.mark.requirement("W9")
def test_rate_limited_delays_double_from_a_minute_up_to_the_cap_of_the_application() -> None:
    for cap_s, expected in ((300.0, [60, 120, 240, 300, 300]), (60.0, [60, 60, 60, 60, 60])):
        slow = Policy(app=Retry(cap_s=cap_s, jitter=0.0)).retry_for(Retry(delays=(1.0,)), "rate_limited")
        assert [slow.delay_s(failed, 0.5) for failed in range(1, 6)] == expected


@pytest.mark.requirement("L7")
def test_the_doubling_preset_starts_at_one_second_with_a_tenth_of_jitter() -> None:
    doubling = Retry.doubling()
    assert [doubling.delay_s(failed, 0.5) for failed in range(1, 5)] == pytest.approx([1, 2, 4, 8])
    assert doubling.delay_s(3, 0.0) == pytest.approx(3.6)
    assert doubling.delay_s(3, 0.999999) == pytest.approx(4.4, abs=1e-3)
    assert 270 <= doubling.delay_s(50, 0.0) <= doubling.delay_s(50, 0.999) <= 300


@pytest.mark.requirement("W9")
@given(failures, fractions)
def test_jitter_stays_within_a_fifth_and_under_the_cap(failed: int, fraction: float) -> None:
    full = min(2.0 * 2.0 ** min(failed - 1, 60), 300.0)
    delay = Retry().delay_s(failed, fraction)
    assert full * 0.8 * (1 - 1e-9) <= delay <= min(full * 1.2 * (1 + 1e-9), 300.0)


@pytest.mark.requirement("W9")
def test_jobs_that_fail_together_do_not_come_back_together() -> None:
    for failed in (1, 8, 9, 40):
        delays = [Retry().delay_s(failed, at / 1000) for at in range(1000)]
        width = (max(delays) - min(delays)) / 10
        fullest = max(sum(low <= delay < low + width for delay in delays) for low in delays)
        assert fullest <= 3 * len(delays) / 10


@given(policies, failures, fractions)
@example(Retry(factor=1.0), 10**6, 0.5)
@example(Retry(base_s=1e-300, factor=1.0000001, cap_s=1e6), 10**6, 0.9)
@example(Retry(base_s=1e-300, factor=100.0, cap_s=1e6), 10**6, 0.9)
def test_no_policy_overflows_or_exceeds_its_cap_after_a_million_failures(
    policy: Retry, failed: int, fraction: float
) -> None:
    assert 0.0 <= policy.delay_s(failed, fraction) <= policy.cap_s


@given(policies, st.integers(1, 10**6 - 1), fractions)
def test_a_later_failure_never_waits_less(policy: Retry, failed: int, fraction: float) -> None:
    assert policy.delay_s(failed, fraction) <= policy.delay_s(failed + 1, fraction) * (1 + 1e-9) + 1e-9


@pytest.mark.requirement("I6")
def test_an_explicit_list_is_exact_and_its_last_entry_repeats() -> None:
    retry = Retry(delays=(60, 300, 900))
    assert [retry.delay_s(failed, 0.9) for failed in (1, 2, 3, 4, 10**6)] == [60, 300, 900, 900, 900]


def test_a_list_is_taken_as_well_as_a_tuple_and_policies_stay_hashable() -> None:
    retry = Retry(delays=[1, 2])  # type: ignore[arg-type]
    assert retry.delays == (1.0, 2.0)
    assert hash(retry) == hash(Retry(delays=(1.0, 2.0)))


@given(policies, st.none() | st.integers(1, 32767), st.none() | st.lists(st.floats(0, 1e6), min_size=1, max_size=5))
def test_a_policy_comes_back_from_json_as_it_was(
    policy: Retry, max_attempts: int | None, delays: list[float] | None
) -> None:
    given_ = Retry(
        max_attempts=max_attempts,
        delays=tuple(delays) if delays else None,
        base_s=policy.base_s,
        factor=policy.factor,
        cap_s=policy.cap_s,
        jitter=policy.jitter,
    )
    assert Retry.parse(given_.to_json()) == given_
    assert Retry.parse(given_.to_json().decode()) == given_


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0},
        {"max_attempts": -1},
        {"max_attempts": True},
        {"max_attempts": 2.5},
        {"max_attempts": 40_000},
        {"delays": ()},
        {"delays": (1.0, -1.0)},
        {"delays": (float("nan"),)},
        {"delays": (float("inf"),)},
        {"delays": "60"},
        {"delays": (LONGEST_DELAY_S * 2,)},
        {"base_s": -1.0},
        {"base_s": float("nan")},
        {"base_s": "2"},
        {"factor": 0.5},
        {"cap_s": float("inf")},
        {"jitter": 1.5},
        {"jitter": -0.1},
    ],
    ids=str,
)
def test_a_policy_out_of_range_is_refused_with_its_option_and_value(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption) as refused:
        Retry(**options)
    assert refused.value.option == next(iter(options))


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'{"max_attempts":0}', b'{"attempts":3}', b'{"base_s":"x"}', "\ud800"]
)
def test_a_policy_text_that_cannot_be_read_is_an_invalid_option(raw: bytes | str) -> None:
    with pytest.raises(InvalidOption):
        Retry.parse(raw)
