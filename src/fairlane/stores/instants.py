"""Instants as whole microseconds since 1970, UTC, for stores without a type for them, within the calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from fairlane.errors import StoreRefused

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
EARLIEST_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
LATEST_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND


def to_us(instant: datetime) -> int:
    try:
        return (instant - EPOCH) // MICROSECOND
    except TypeError as error:
        raise StoreRefused("job", f"the instant {instant} has no time zone; nothing was changed") from error


def from_us(us: int) -> datetime:
    """Within the calendar: a store that counts in floating point may have made the latest instant a little later."""
    return EPOCH + timedelta(microseconds=max(EARLIEST_US, min(us, LATEST_US)))


def maybe_from_us(us: int | None) -> datetime | None:
    return None if us is None else from_us(us)


def span_us(seconds: float) -> int:
    """Rounded as `timedelta` rounds, so that every store computes the same instants."""
    try:
        return timedelta(seconds=seconds) // MICROSECOND
    except OverflowError:
        return LATEST_US - EARLIEST_US if seconds > 0 else EARLIEST_US - LATEST_US
    except (TypeError, ValueError) as error:
        raise StoreRefused("job", f"{seconds!r} is no number of seconds; nothing was changed") from error


def after(now_us: int, seconds: float) -> int:
    return max(EARLIEST_US, min(now_us + span_us(seconds), LATEST_US))


def before(now_us: int, seconds: float) -> int:
    return max(EARLIEST_US, min(now_us - span_us(seconds), LATEST_US))


def as_text(us: int) -> str:
    """As an audit record shows an instant."""
    return from_us(us).isoformat(timespec="microseconds").replace("+00:00", "Z")
