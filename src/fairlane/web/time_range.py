"""The span of time that charts show: one of a few up to now, or any that was chosen, in steps of a round length."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, get_args

from fastapi import Depends, Query
from msgspec import Struct

from fairlane.api.problems import Problem
from fairlane.web.page import CurrentPage

RangeName = Literal["15m", "1h", "6h", "24h", "7d"]
RANGES: tuple[RangeName, ...] = get_args(RangeName)
_SPANS: dict[RangeName, timedelta] = {
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
}
_STEPS_S = (60, 300, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)
MOST_STEPS = 84
LONGEST = timedelta(days=366)


class TimeRange(Struct, frozen=True, kw_only=True):
    name: RangeName | None
    """None: it was chosen by its ends."""
    since: datetime
    until: datetime
    step_s: int

    @property
    def span_s(self) -> int:
        return int((self.until - self.since).total_seconds()) + 60


def time_range(
    now: datetime, name: RangeName, since: datetime | None = None, until: datetime | None = None
) -> TimeRange:
    """The range of that name up to now, or the one between these ends."""
    is_chosen = since is not None
    end = min(until or now, now) if is_chosen else now
    begin = since if since is not None else end - _SPANS[name]
    if not timedelta() < end - begin <= LONGEST:
        raise Problem(422, "invalid_range", "since, until: expected a span of at most a year before now")
    step_s = next(
        (step for step in _STEPS_S if (end - begin) / timedelta(seconds=step) <= MOST_STEPS), _STEPS_S[-1] * 7
    )
    # Steps begin at round times: a chart that moves along keeps its bars.
    begin -= timedelta(seconds=begin.timestamp() % step_s)
    return TimeRange(name=None if is_chosen else name, since=begin, until=end, step_s=step_s)


async def _range(
    page: CurrentPage,
    range: RangeName = "1h",
    since: Annotated[str | None, Query(max_length=40)] = None,
    until: Annotated[str | None, Query(max_length=40)] = None,
) -> TimeRange:
    return time_range(page.now, range, _instant("since", since), _instant("until", until))


def _instant(name: str, text: str | None) -> datetime | None:
    """An instant as a field of a form has it, in UTC unless it says otherwise."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Problem(422, "invalid_range", f"{name}: expected an instant such as 2026-01-31T12:00") from None


ChosenRange = Annotated[TimeRange, Depends(_range)]
