"""Spans and instants as people type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest
from hypothesis import given, strategies as st

from fairlane.cli import output
from fairlane.cli.options import instant_ahead, instant_back, read_span


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("90s", timedelta(seconds=90)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("2d", timedelta(days=2)),
        ("1w", timedelta(weeks=1)),
        ("250ms", timedelta(milliseconds=250)),
        ("1.5h", timedelta(minutes=90)),
        ("45", timedelta(seconds=45)),
        (" 5M ", timedelta(minutes=5)),
    ],
)
def test_a_span_is_read(typed: str, meant: timedelta) -> None:
    assert read_span(typed) == meant


@pytest.mark.parametrize(
    "typed", ["", "m", "5 minutes", "-5m", "5x", "5m3", "1e9", "٣m", "99999999999s", "0x5", "999999999w"]
)
def test_what_is_no_span_is_refused_with_examples(typed: str) -> None:
    with pytest.raises(click.BadParameter, match="1h30m"):
        read_span(typed)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=9_000)))
def test_a_span_as_it_is_shown_can_be_typed_again(length: timedelta) -> None:
    again = read_span(output.span(length))
    off = abs(again - length)
    assert off <= timedelta(seconds=1) or off < length / 24


@given(st.text(max_size=12))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    for reader in (read_span, instant_ahead, instant_back):
        try:
            reader(text)
        except click.BadParameter:
            continue


def test_an_instant_is_absolute_or_counted_from_now() -> None:
    assert instant_ahead("2030-01-01T09:00Z") == datetime(2030, 1, 1, 9, tzinfo=UTC)
    assert instant_ahead("2030-01-01 09:00+02:00") == datetime(2030, 1, 1, 7, tzinfo=UTC)
    for typed in ("in 5m", "+5m", "5m"):
        assert instant_ahead(typed) == timedelta(minutes=5)
    for typed in ("5m ago", "-5m", "5m"):
        assert instant_back(typed) == -timedelta(minutes=5)
    assert instant_back("now") == timedelta(0)


@pytest.mark.parametrize("typed", ["2030-01-01", "2030-01-01T09:00"])
def test_an_instant_without_a_zone_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter, match="time zone"):
        instant_ahead(typed)
