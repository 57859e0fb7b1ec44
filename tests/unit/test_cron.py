"""Cron lines: read, refused, told in words, and fired through every change of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fairlane.core.schedules import ALIASES, Cron
from fairlane.errors import InvalidOption

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def told(line: str, timezone: str, after: datetime, count: int) -> list[str]:
    """The next runs as the clocks of the zone show them, with their distance from UTC."""
    cron = Cron(line, timezone)
    return [f"{at.astimezone(cron.zone):%d %H:%M %z}" for at in cron.next_runs(count, after)]


@pytest.mark.requirement("L12")
def test_the_next_runs_are_those_of_the_zone() -> None:
    assert told("0 9 * * MON-FRI", "Europe/Prague", NEW_YEAR, 3) == [
        "01 09:00 +0100",
        "02 09:00 +0100",
        "05 09:00 +0100",
    ]
    assert Cron("0 9 * * *", "Europe/Prague").next_after(NEW_YEAR) == datetime(2026, 1, 1, 8, tzinfo=UTC)


def test_a_time_that_is_skipped_fires_once_when_the_gap_ends() -> None:
    spring = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert told("30 2 * * *", "Europe/Prague", spring, 2) == ["29 03:00 +0200", "30 02:30 +0200"]
    assert told("10,20,30 2 * * *", "Europe/Prague", spring, 2) == ["29 03:00 +0200", "30 02:10 +0200"]
    assert told("0 2,3 * * *", "Europe/Prague", spring, 2) == ["29 03:00 +0200", "30 02:00 +0200"]


def test_a_time_that_is_repeated_fires_the_first_time_only() -> None:
    autumn = datetime(2026, 10, 24, 12, tzinfo=UTC)
    assert told("30 2 * * *", "Europe/Prague", autumn, 2) == ["25 02:30 +0200", "26 02:30 +0100"]


def test_an_interval_goes_on_in_elapsed_time_through_both_changes() -> None:
    spring, autumn = datetime(2026, 3, 29, 0, 20, tzinfo=UTC), datetime(2026, 10, 25, 0, 20, tzinfo=UTC)
    assert told("*/30 * * * *", "Europe/Prague", spring, 3) == ["29 01:30 +0100", "29 03:00 +0200", "29 03:30 +0200"]
    assert told("*/30 * * * *", "Europe/Prague", autumn, 4) == [
        "25 02:30 +0200",
        "25 02:00 +0100",
        "25 02:30 +0100",
        "25 03:00 +0100",
    ]


def test_half_hour_changes_and_skipped_days_are_no_exception() -> None:
    assert told("15 2 * * *", "Australia/Lord_Howe", datetime(2026, 10, 3, tzinfo=UTC), 2) == [
        "04 02:30 +1100",
        "05 02:15 +1100",
    ]
    assert told("0 12 * * *", "Pacific/Apia", datetime(2011, 12, 29, 12, tzinfo=UTC), 3) == [
        "29 12:00 -1000",
        "31 00:00 +1400",
        "31 12:00 +1400",
    ]


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_mean_their_line(alias: str) -> None:
    assert Cron(alias.upper()).next_runs(3, NEW_YEAR) == Cron(ALIASES[alias]).next_runs(3, NEW_YEAR)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0 9 * * MON-FRI", "At 09:00 on Monday through Friday (Europe/Prague)"),
        ("*/15 * * * *", "Every 15th minute of every hour (Europe/Prague)"),
        ("@daily", "At 00:00 every day (Europe/Prague)"),
        ("0 6 31 * *", "At 06:00 on the 31st day of every month (Europe/Prague)"),
    ],
)
def test_a_line_is_told_in_words(line: str, words: str) -> None:
    assert Cron(line, "Europe/Prague").explain() == words


@pytest.mark.parametrize(
    "line",
    [
        "",
        "* * * *",
        "0 0 9 * * *",
        "60 * * * *",
        "* 24 * * *",
        "*/0 * * * *",
        "5-1 * * * *",
        "1,,2 * * * *",
        "0 0 30 2 *",
        "0 0 31 4,6 *",
        "@reboot",
        "@dayly",
        "0 9 * * ¹",
        "x" * 10_000,
        ",".join(["1"] * 5_000) + " * * * *",
        None,
        7,
    ],
)
def test_what_is_no_line_or_never_comes_is_refused_with_what_was_expected(line: str) -> None:
    with pytest.raises(InvalidOption, match=r"cron = .*: expected"):
        Cron(line)


def test_a_line_with_seconds_is_told_that_there_are_none() -> None:
    with pytest.raises(InvalidOption, match="no field for seconds"):
        Cron("*/5 * * * * *")


@pytest.mark.parametrize(
    "zone", ["", "Europe", "Europe/Prag", "../etc/passwd", "/etc/passwd", "a\0b", "x" * 1000, None, 7]
)
def test_a_zone_nobody_knows_is_refused(zone: str) -> None:
    with pytest.raises(InvalidOption, match=r"tz = .*: expected the name of a time zone"):
        Cron("@daily", zone)


def test_a_mistyped_zone_is_answered_with_the_nearest() -> None:
    with pytest.raises(InvalidOption, match='Nearest: "Europe/Prague"'):
        Cron("@daily", "Europe/Prag")


def test_the_latest_of_a_year_of_missed_minutes_are_found_without_counting_them_all() -> None:
    minutes = Cron("* * * * *")
    until = datetime(2027, 1, 1, 0, 0, 30, tzinfo=UTC)
    newest = minutes.latest(3, NEW_YEAR, until)
    assert newest == tuple(datetime(2026, 12, 31, 23, 58, tzinfo=UTC) + timedelta(minutes=n) for n in range(3))
    assert minutes.latest(3, NEW_YEAR, NEW_YEAR) == (NEW_YEAR,)
    assert minutes.latest(3, until, NEW_YEAR) == ()
    assert Cron("@yearly").latest(5, NEW_YEAR, until) == (NEW_YEAR, datetime(2027, 1, 1, tzinfo=UTC))


def test_rare_days_are_found_in_no_time() -> None:
    assert Cron("0 0 * 2 MON#5").next_after(NEW_YEAR) == datetime(2044, 2, 29, tzinfo=UTC)
    assert Cron("0 0 29 2 *").next_after(NEW_YEAR) == datetime(2028, 2, 29, tzinfo=UTC)
