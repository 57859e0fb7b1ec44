"""Instants as SQLite keeps them: whole microseconds since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fairlane.errors import InvalidOption

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
LATEST_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND


def to_us(instant: datetime) -> int:
    return (instant - EPOCH) // _MICROSECOND


def from_us(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


def maybe_from_us(us: int | None) -> datetime | None:
    return None if us is None else EPOCH + timedelta(microseconds=us)


def span_us(seconds: float) -> int:
    """Rounded as `timedelta` rounds, so that every store computes the same instants."""
    return timedelta(seconds=seconds) // _MICROSECOND


def after(now_us: int, seconds: float, option: str) -> int:
    try:
        at = now_us + span_us(seconds)
    except (OverflowError, ValueError):
        at = LATEST_US + 1
    if at > LATEST_US:
        raise InvalidOption(option, seconds, "seconds that end before the year 10000")
    return at
