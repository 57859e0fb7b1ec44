"""Instants and spans, kept within what a datetime can hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fairlane.errors import StoreRefused

_BEGINNING_OF_TIME, _END_OF_TIME = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def later(now: datetime, seconds: float) -> datetime:
    try:
        return now + timedelta(seconds=seconds)
    except OverflowError:
        return _END_OF_TIME if seconds > 0 else _BEGINNING_OF_TIME
    except (TypeError, ValueError) as error:
        raise StoreRefused("memory", f"{seconds!r} is no number of seconds; nothing was changed") from error


def earlier(now: datetime, seconds: float) -> datetime:
    return now if seconds == 0.0 else later(now, -seconds)


def as_utc(what: str, at: datetime) -> datetime:
    if at.tzinfo is None:
        raise StoreRefused("memory", f"{what} {at} has no time zone; nothing was changed")
    return at if at.tzinfo is UTC else at.astimezone(UTC)
