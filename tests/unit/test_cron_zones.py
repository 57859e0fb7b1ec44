"""Cron through every change of every clock on earth, against a scan that looks at each minute.

The scan knows nothing of cron libraries or of time zone arithmetic: it looks at what the clocks of a zone show, minute after
minute, and asks of each wall-clock time whether the fields hold it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings, strategies as st

from fairlane.core.schedules import Cron

MINUTE = timedelta(minutes=1)
FIRST, LAST = datetime(2020, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)
AROUND = timedelta(hours=30)
ZONES = sorted(available_timezones() - {"localtime"})


def offset(zone: ZoneInfo, at: datetime) -> timedelta:
    found = at.astimezone(zone).utcoffset()
    assert found is not None
    return found


@cache
def changes(name: str) -> tuple[datetime, ...]:
    """When the clocks of a zone are changed in this decade, to the minute."""
    zone, found, day = ZoneInfo(name), [], FIRST
    while day < LAST:
        begin, end = day, day + timedelta(days=1)
        if offset(zone, begin) != offset(zone, end):
            while end - begin > MINUTE:
                middle = begin + (end - begin) // 2 // MINUTE * MINUTE
                begin, end = (middle, end) if offset(zone, middle) == offset(zone, begin) else (begin, middle)
            found.append(end)
        day += timedelta(days=1)
    return tuple(found)


def held(field: str, value: int, low: int, high: int) -> bool:
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        end = int(last) if last else high if step else int(first)
        if int(first) <= value <= end and (value - int(first)) % int(step or 1) == 0:
            return True
    return False


def matches(line: str, wall: datetime) -> bool:
    minute, hour, day, month, weekday = line.split()
    of_month, of_week = held(day, wall.day, 1, 31), held(weekday, wall.isoweekday() % 7, 0, 6)
    both = day.startswith("*") or weekday.startswith("*")
    return (
        held(minute, wall.minute, 0, 59)
        and held(hour, wall.hour, 0, 23)
        and held(month, wall.month, 1, 12)
        and (of_month and of_week if both else of_month or of_week)
    )


def scanned(line: str, zone: ZoneInfo, begin: datetime, end: datetime) -> Iterator[datetime]:
    """Every firing from `begin` to before `end`, minute by minute, by what the clocks show."""
    is_interval = any(field.startswith("*") for field in line.split()[:2])
    at = begin - timedelta(hours=26)
    newest = at.astimezone(zone).replace(tzinfo=None)  # the latest wall-clock time any minute so far has shown
    while at < end:
        wall = at.astimezone(zone).replace(tzinfo=None, fold=0)
        if is_interval:
            fires = matches(line, wall)
        else:
            # Not shown before: this minute, and all that were jumped over to get here.
            fires, jumped = False, newest + MINUTE
            while jumped <= wall:
                fires, jumped = fires or matches(line, jumped), jumped + MINUTE
        if fires and at >= begin:
            yield at
        newest, at = max(newest, wall), at + MINUTE


def numbers(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    stepped = st.tuples(span, st.integers(1, 12)).filter(lambda pair: len(set(pair[0].split("-"))) == 2)
    return st.one_of(
        number.map(str),
        st.lists(number, min_size=2, max_size=4).map(lambda some: ",".join(map(str, some))),
        span,
        stepped.map(lambda pair: f"{pair[0]}/{pair[1]}"),
    )


def stars(low: int, high: int) -> st.SearchStrategy[str]:
    return st.one_of(st.just("*"), st.sampled_from([2, 3, 5, 7, 15, 20]).map(lambda step: f"*/{step}"))


ANY = st.just("*")
LINES = st.tuples(
    st.one_of(numbers(0, 59), st.just("0"), st.just("30"), stars(0, 59)),
    st.one_of(numbers(0, 3), numbers(0, 23), numbers(22, 23), stars(0, 23)),
    st.one_of(ANY, ANY, ANY, numbers(1, 28), stars(1, 31)),
    st.one_of(ANY, ANY, ANY, numbers(1, 12)),
    st.one_of(ANY, ANY, ANY, numbers(0, 6)),
).map(" ".join)
"""Half of them around the hours at which clocks are changed."""


def check(line: str, name: str, change: datetime) -> None:
    cron, begin, end = Cron(line, name), change - AROUND, change + AROUND
    expected = list(scanned(line, cron.zone, begin, end))
    found = []
    for at in cron.runs(begin - MINUTE):
        if at >= end:
            break
        found.append(at)
    assert found == expected, (line, name, change)
    for at in expected:  # from between firings the next one is the same
        assert cron.next_after(at - timedelta(seconds=1)) == at
        assert cron.fires_at(at)


@pytest.mark.requirement("L12")
@settings(max_examples=2_000 if os.environ.get("FAIRLANE_LONG") else 60)
@given(line=LINES, name=st.sampled_from(ZONES), pick=st.integers(0, 10**6))
def test_firings_around_a_change_of_clocks_are_those_a_scan_of_every_minute_finds(
    line: str, name: str, pick: int
) -> None:
    moments = changes(name) or (FIRST + timedelta(days=pick % 3000),)
    check(line, name, moments[pick % len(moments)])


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", ZONES)
def test_every_change_of_every_zone_in_a_decade(name: str) -> None:
    lines = ("30 2 * * *", "0 0 * * *", "*/20 * * * *", "15 */2 * * *", "5,35 0-3 * * 0", "0 1-3/2 1,15,25-31 * 0,6")
    for at, change in enumerate(changes(name)):
        check(lines[(at + len(name)) % len(lines)], name, change)
        check(lines[0], name, change)


def test_the_scan_looks_at_all_zones_there_are() -> None:
    assert len(ZONES) > 400
    assert len(changes("Europe/Prague")) == 22
    assert len(changes("Africa/Casablanca")) >= 20
