"""Intervals: aligned, without drift, between a start and an end, and the jitter of the jobs they make."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from fairlane.core.ids import JobId
from fairlane.core.schedules import (
    MOST_EVERY_S,
    Cron,
    Every,
    Schedule,
    ScheduleSpec,
    firing_of,
    job_of,
    run_at_of,
    timetable_named,
    timetable_of,
)
from fairlane.errors import InvalidOption

pytestmark = pytest.mark.requirement("L12")

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TEN = ScheduleSpec(name="poll", type="t", cron="@every 10s")


def later(*seconds: float) -> tuple[datetime, ...]:
    return tuple(NOON + timedelta(seconds=each) for each in seconds)


def due(spec: ScheduleSpec) -> Schedule:
    return Schedule(spec=spec, source="code", next_at=NOON, declared_at=NOON)


@pytest.mark.parametrize("begin_s", [-9.999999, -3.2, -0.000001])
def test_an_interval_fires_at_the_same_instants_whenever_somebody_looks(begin_s: float) -> None:
    assert Every(10).next_runs(3, *later(begin_s)) == later(0, 10, 20)


def test_the_next_time_is_behind_the_instant_and_never_the_instant_itself() -> None:
    assert Every(10).next_after(NOON) == later(10)[0]
    assert Every(10).fires_at(NOON)
    assert not Every(10).fires_at(*later(5))


def test_an_interval_that_divides_no_day_counts_from_1970() -> None:
    seven = Every(7)
    times = seven.next_runs(50, NOON)
    assert {int(at.timestamp()) % 7 for at in times} == {0}
    assert {b - a for a, b in pairwise(times)} == {timedelta(seconds=7)}


@pytest.mark.parametrize(
    ("span_s", "line", "words"),
    [
        (1, "@every 1s", "every 1 s"),
        (90, "@every 90s", "every 90 s"),
        (300.0, "@every 5m", "every 5 min"),
        (5400, "@every 90m", "every 90 min"),
        (7200, "@every 2h", "every 2 h"),
        (MOST_EVERY_S, "@every 31d", "every 31 d"),
    ],
)
def test_an_interval_is_stored_as_a_line_and_read_from_it(span_s: float, line: str, words: str) -> None:
    every = Every(span_s)
    assert (every.expression, every.explain()) == (line, words)
    read = timetable_named(line)
    assert isinstance(read, Every)
    assert (read.span, read.expression) == (timedelta(seconds=span_s), line)


@pytest.mark.parametrize("span_s", [0, 0.5, 1.5, -10, MOST_EVERY_S + 1, float("nan")])
def test_an_interval_is_whole_seconds_up_to_a_month(span_s: float) -> None:
    with pytest.raises(InvalidOption, match="every = "):
        Every(span_s)


@pytest.mark.parametrize("line", ["@every 0s", "@every 10", "@every 10S", "@every 1.5s", "@every 32d", "every 10s"])
def test_a_line_that_is_no_interval_is_refused(line: str) -> None:
    with pytest.raises(InvalidOption):
        timetable_named(line)


def test_a_cron_line_says_how_an_interval_is_given() -> None:
    with pytest.raises(InvalidOption, match="every="):
        Cron("@every 10s")
    with pytest.raises(InvalidOption, match="every="):
        Cron("*/10 * * * * *")


@pytest.mark.parametrize("line", ["@every 10s", "* * * * *"])
def test_the_first_and_the_last_instant_belong_to_a_schedule(line: str) -> None:
    bounded = timetable_of(replace(TEN, cron=line, starts_at=NOON, ends_at=NOON + timedelta(minutes=1)))
    times = tuple(bounded.runs(NOON - timedelta(days=1)))
    assert (times[0], times[-1], len(times)) == (NOON, later(60)[0], 7 if line == "@every 10s" else 2)
    assert bounded.next_after(later(60)[0]) is None
    assert bounded.next_after(later(59.999)[0]) == later(60)[0]
    assert bounded.latest(100, NOON - timedelta(days=1), NOON + timedelta(days=400)) == times
    assert bounded.latest(1, NOON - timedelta(days=1), NOON - timedelta(seconds=1)) == ()


def test_a_bound_between_two_times_makes_none_of_its_own() -> None:
    odd = timetable_of(replace(TEN, starts_at=later(1)[0], ends_at=later(29)[0]))
    assert tuple(odd.runs(NOON - timedelta(days=1))) == later(10, 20)
    assert odd.explain() == "every 10 s, from 2026-03-01 12:00:01 UTC, until 2026-03-01 12:00:29 UTC"


def test_a_gap_is_made_up_for_by_policy_and_the_rhythm_stays() -> None:
    (now,) = later(3600 * 24 * 300 + 4)
    for catch_up, count in (("latest", 1), ("none", 0), ("all", 3)):
        spec = replace(TEN, catch_up=catch_up, catch_up_limit=3)
        firing = firing_of(due(spec), timetable_of(spec), now)
        newest = now - timedelta(seconds=4)
        assert firing.nominal == tuple(newest - timedelta(seconds=10 * back) for back in reversed(range(count)))
        assert (firing.fired_at, firing.next_at) == (newest, newest + timedelta(seconds=10))


def test_a_late_firing_moves_no_later_one() -> None:
    firing = firing_of(due(TEN), timetable_of(TEN), later(9.9)[0])
    assert (firing.nominal, firing.next_at) == ((NOON,), later(10)[0])


def test_what_was_missed_before_the_end_is_made_up_for_and_then_it_has_ended() -> None:
    spec = replace(TEN, ends_at=later(25)[0])
    firing = firing_of(due(spec), timetable_of(spec), NOON + timedelta(days=3))
    assert (firing.nominal, firing.next_at) == (later(20), None)
    assert replace(due(spec), next_at=None).state == "ended"


def test_jitter_is_within_its_bound_spread_and_the_same_for_everybody() -> None:
    spec = replace(TEN, jitter_s=8.0)
    nominal = [NOON + timedelta(seconds=10 * number) for number in range(200)]
    waits = [(run_at_of(spec, at) - at).total_seconds() for at in nominal]  # type: ignore[operator]
    assert all(0 <= wait < 8 for wait in waits)
    assert min(waits) < 1
    assert max(waits) > 7
    assert [run_at_of(replace(spec, tenant="other"), at) for at in nominal] == [run_at_of(spec, at) for at in nominal]
    assert run_at_of(spec, NOON) == datetime(2026, 3, 1, 12, 0, 2, 660477, tzinfo=UTC)  # in every process
    assert run_at_of(replace(spec, name="other"), NOON) != run_at_of(spec, NOON)
    assert due(spec).words == "every 10 s, up to 8 s later"


def test_jitter_delays_the_job_of_a_nominal_time_and_none_by_hand() -> None:
    spec, job = replace(TEN, jitter_s=8.0), JobId(UUID("019bb7a0-0000-7000-8000-000000000001"))
    assert job_of(spec, job, nominal=NOON).run_at == run_at_of(spec, NOON)
    assert job_of(spec, job, nominal=None).run_at is None
    assert job_of(TEN, job, nominal=NOON).run_at is None


def test_a_schedule_stored_by_earlier_code_stays_readable() -> None:
    text = b'{"name":"s","type":"t","cron":"0 9 * * *","timezone":"Europe/Prague","overlap":"skip"}'
    spec = msgspec.json.decode(text, type=ScheduleSpec)
    assert (spec.jitter_s, spec.starts_at, spec.ends_at) == (None, None, None)
    assert timetable_of(spec).next_after(NOON) == datetime(2026, 3, 2, 8, tzinfo=UTC)
