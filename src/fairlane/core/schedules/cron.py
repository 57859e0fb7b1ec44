"""Cron lines: when they fire, in any time zone, whatever its clocks do.

cronsim reads the line and steps through wall-clock time; what a change of the clocks means is decided here:

    fixed times       `0 9 * * *`: once for each wall-clock time. One that the clocks skip fires when the gap ends, one
    that
                      they repeat fires the first time.
    intervals         minute or hour begins with `*`, as in `*/15 * * * *`: whenever the clock shows a time that
    matches. A
                      skipped hour has none, a repeated hour has them twice: the rhythm in elapsed time goes on.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from fairlane.errors import InvalidOption, nearest

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * SUN",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
EXPECTED = 'five fields: minute hour day month weekday, as in "0 9 * * MON-FRI", or one of ' + " ".join(ALIASES)
MAX_LENGTH = 200
_FIRST_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - wall-clock time
_MINUTE = timedelta(minutes=1)
_INSTANT = timedelta(microseconds=1)


class Cron:
    """A cron line in a time zone. Refused where it cannot be read, or names a day that never comes."""

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        self.expression, self.timezone = _checked(expression), timezone
        self.zone = zone_named(timezone)
        self._line = ALIASES.get(self.expression.lower(), self.expression)
        minute, hour, *_ = self._line.split()
        self.is_interval = minute.startswith("*") or hour.startswith("*")
        try:
            next(CronSim(self._line, _FIRST_DAY))
        except CronSimError as error:
            raise InvalidOption("cron", expression, f"{EXPECTED}. {error}") from None
        except StopIteration:
            raise InvalidOption("cron", expression, "a day that comes at least once in fifty years") from None

    def next_after(self, instant: datetime) -> datetime | None:
        """The first nominal time later than `instant`, in UTC; None: never again."""
        wall = instant.astimezone(self.zone).replace(tzinfo=None, fold=0)
        for shown in self._walls(wall):
            found = [at for at in self._instants(shown) if at > instant]
            if found:
                return min(found[0], self._repeated(instant, wall) or found[0])
        return None

    def runs(self, after: datetime) -> Iterator[datetime]:
        """Nominal times later than `after`, one after the other."""
        at = self.next_after(after)
        while at is not None:
            yield at
            at = self.next_after(at)

    def next_runs(self, count: int, after: datetime) -> tuple[datetime, ...]:
        return tuple(islice(self.runs(after), count))

    def fires_at(self, instant: datetime) -> bool:
        return self.next_after(instant - _INSTANT) == instant

    def latest(self, count: int, since: datetime, until: datetime) -> tuple[datetime, ...]:
        """The newest `count` nominal times from `since` to `until`, both included, oldest first.

        Looks back in growing steps: a year of missed minutes costs no more than the few that are asked for.
        """
        look = timedelta(hours=1)
        while True:
            begin = since if look >= until - since else until - look
            found: deque[datetime] = deque(maxlen=count)
            for at in self.runs(begin - _INSTANT):
                if at > until:
                    break
                found.append(at)
            if len(found) == count or begin == since:
                return tuple(found)
            look *= 4

    def explain(self) -> str:
        """The line in words: `At 09:00 on Monday through Friday (Europe/Prague)`."""
        words = _ORDINAL.sub(lambda found: found[1] + _ENDINGS[found[2]], CronSim(self._line, _FIRST_DAY).explain())
        return f"{words} ({self.timezone})"

    def _walls(self, wall: datetime) -> Iterator[datetime]:
        """Wall-clock times later than `wall` that match, whether any clock ever shows them or not."""
        yield from CronSim(self._line, wall)

    def _instants(self, wall: datetime) -> tuple[datetime, ...]:
        """When it fires for a wall-clock time: for none, one, or both of the instants that show it."""
        first = wall.replace(tzinfo=self.zone).astimezone(UTC)
        if first.astimezone(self.zone).replace(tzinfo=None, fold=0) != wall:
            return () if self.is_interval else (self._gap_end(wall),)
        if not self.is_interval:
            return (first,)
        second = wall.replace(tzinfo=self.zone, fold=1).astimezone(UTC)
        return (first,) if second == first else (first, second)

    def _repeated(self, instant: datetime, wall: datetime) -> datetime | None:
        """For an interval in the first of two passes: the first match that the second pass brings back."""
        if not self.is_interval:
            return None
        again = wall.replace(tzinfo=self.zone, fold=1).astimezone(UTC)
        overlap = again - wall.replace(tzinfo=self.zone).astimezone(UTC)
        if again <= instant or overlap <= timedelta(0):
            return None
        for shown in self._walls(wall - overlap - _MINUTE):
            if shown > wall:
                return None
            found = self._instants(shown)
            if found and found[-1] > instant:
                return found[-1]
        return None

    def _gap_end(self, wall: datetime) -> datetime:
        """The first instant behind a gap that holds `wall`."""
        before = int(wall.replace(tzinfo=self.zone, fold=1).timestamp())
        behind = int(wall.replace(tzinfo=self.zone, fold=0).timestamp())
        old = datetime.fromtimestamp(before, self.zone).utcoffset()
        while behind - before > 1:
            middle = (before + behind) // 2
            if datetime.fromtimestamp(middle, self.zone).utcoffset() == old:
                before = middle
            else:
                behind = middle
        return datetime.fromtimestamp(behind, UTC)


def zone_named(name: object) -> ZoneInfo:
    """A zone of the IANA database."""
    expected = 'the name of a time zone, as in "Europe/Prague" or "UTC"'
    if not isinstance(name, str) or not 0 < len(name) <= 100:
        raise InvalidOption("tz", name, expected)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidOption("tz", name, f"{expected}.{nearest(name, available_timezones())}") from None


def _checked(expression: object) -> str:
    if not isinstance(expression, str) or len(expression) > MAX_LENGTH or not expression.isascii():
        raise InvalidOption("cron", expression, EXPECTED)
    line = " ".join(expression.split())
    if line.startswith("@"):
        if line.lower() not in ALIASES:
            raise InvalidOption("cron", expression, f"{EXPECTED}.{nearest(line, ALIASES)}")
        return line.lower()
    if len(line.split()) != 5:
        seconds = " There is no field for seconds." if len(line.split()) == 6 else ""
        raise InvalidOption("cron", expression, f"{EXPECTED}.{seconds}")
    return line


_ORDINAL = re.compile(r"\b([2-5])([123])th\b")
_ENDINGS = {"1": "1st", "2": "2nd", "3": "3rd"}
