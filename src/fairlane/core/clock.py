"""Time as a dependency: the only module that reads the machine's clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The instant, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for measuring spans."""
        ...


def is_within(hours: str, at: datetime) -> bool:
    """Whether an instant is in hours of the day in UTC, such as `22:00-04:30`: from the first, to before the second.

    The same time twice is the whole day.
    """
    begin, _, end = hours.partition("-")
    time = at.astimezone(UTC).strftime("%H:%M")
    return begin <= time < end if begin < end else time >= begin or time < end


class SystemClock:
    now = staticmethod(partial(datetime.now, UTC))
    monotonic = staticmethod(time.monotonic)


class FakeClock:
    """Stands still until a test moves it."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now, self._monotonic = start, 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic += max(seconds, 0.0)
