"""Schedules as values: when they fire, the job they enqueue, and the rules for missed and overlapping firings.

`firing_of` says which nominal times of a due schedule fire, with which jobs, and when it is due again.

cronsim reads a cron line and steps through wall-clock time; what a change of the clocks means is decided here:

    fixed times   `0 9 * * *`: once for each wall-clock time. A time that the clocks skip fires when the gap ends; a
                  time that they repeat fires the first time.
    intervals     minute or hour begins with `*`, as in `*/15 * * * *`: whenever the clock shows a time that matches.
                  A skipped hour has none, a repeated hour has them twice: the rhythm in elapsed time continues.

`Every` has no clock: its times are the multiples of a span since 1970 in UTC, so that no firing depends on another.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import islice
from typing import Literal
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError
from msgspec import Raw, Struct

from fairlane.core.ids import SYSTEM_TENANT, JobId
from fairlane.core.job import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    PRIORITY_HEADER,
    JobSpec,
    PriorityScope,
)
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
MOST_EVERY_S = 31 * 86_400
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = (("d", 86_400, "d"), ("h", 3_600, "h"), ("m", 60, "min"), ("s", 1, "s"))
_EVERY = re.compile(r"@every ([1-9]\d{0,6})([dhms])", re.ASCII)


class Timetable(ABC):
    """Nominal times, one after the other, those from `starts_at` to `ends_at`, both included."""

    expression: str
    timezone: str
    zone: ZoneInfo
    starts_at: datetime | None = None
    ends_at: datetime | None = None

    def next_after(self, instant: datetime) -> datetime | None:
        """The first nominal time later than `instant`, in UTC; None: never again."""
        if self.starts_at is not None and instant < self.starts_at:
            instant = self.starts_at - _INSTANT
        at = self._following(instant)
        return None if at is None or (self.ends_at is not None and at > self.ends_at) else at

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
        """The newest `count` nominal times from `since` to `until`, both included, oldest first."""
        return self._newest(count, max(since, self.starts_at or since), min(until, self.ends_at or until))

    def explain(self) -> str:
        """The times in words: `At 09:00 on Monday through Friday (Europe/Prague)`, `every 10 s`."""
        bounds = (("from", self.starts_at), ("until", self.ends_at))
        return ", ".join([self._words(), *(f"{word} {at:%Y-%m-%d %H:%M:%S} UTC" for word, at in bounds if at)])

    @abstractmethod
    def _following(self, instant: datetime) -> datetime | None: ...

    @abstractmethod
    def _newest(self, count: int, since: datetime, until: datetime) -> tuple[datetime, ...]: ...

    @abstractmethod
    def _words(self) -> str: ...


class Every(Timetable):
    """An interval of whole seconds, counted from 1970 in UTC: 10 s fires at :00, :10, :20, whoever looks and when."""

    def __init__(self, span_s: float) -> None:
        if not 1 <= span_s <= MOST_EVERY_S or span_s != int(span_s):
            raise InvalidOption("every", span_s, f"whole seconds from 1 to {MOST_EVERY_S}: a number, or a timedelta")
        self.timezone, self.zone = "UTC", ZoneInfo("UTC")
        self.span = timedelta(seconds=span_s)
        letter, size, self._unit = next(unit for unit in _UNITS if span_s % unit[1] == 0)
        self._number = int(span_s) // size
        self.expression = f"@every {self._number}{letter}"

    def _following(self, instant: datetime) -> datetime:
        return _EPOCH + ((instant - _EPOCH) // self.span + 1) * self.span

    def _newest(self, count: int, since: datetime, until: datetime) -> tuple[datetime, ...]:
        first, last = -((_EPOCH - since) // self.span), (until - _EPOCH) // self.span
        return tuple(_EPOCH + number * self.span for number in range(max(first, last - count + 1), last + 1))

    def _words(self) -> str:
        return f"every {self._number} {self._unit}"


class Cron(Timetable):
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

    def _following(self, instant: datetime) -> datetime | None:
        wall = instant.astimezone(self.zone).replace(tzinfo=None, fold=0)
        for shown in self._walls(wall):
            found = [at for at in self._instants(shown) if at > instant]
            if found:
                return min(found[0], self._repeated(instant, wall) or found[0])
        return None

    def _newest(self, count: int, since: datetime, until: datetime) -> tuple[datetime, ...]:
        """Looks back in growing steps: a year of missed minutes costs no more than the few that are asked for."""
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

    def _words(self) -> str:
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


def timetable_named(line: str, timezone: str = "UTC") -> Timetable:
    """A cron line, or an interval as it is stored: `@every 10s`."""
    found = _EVERY.fullmatch(line)
    if found is None:
        return Cron(line, timezone)
    return Every(int(found[1]) * next(size for letter, size, _ in _UNITS if letter == found[2]))


def timetable_of(spec: ScheduleSpec) -> Timetable:
    """When a schedule fires."""
    found = timetable_named(spec.cron, spec.timezone)
    found.starts_at, found.ends_at = spec.starts_at, spec.ends_at
    return found


def _checked(expression: object) -> str:
    if not isinstance(expression, str) or len(expression) > MAX_LENGTH or not expression.isascii():
        raise InvalidOption("cron", expression, EXPECTED)
    line = " ".join(expression.split())
    if line.startswith("@"):
        if line.lower().startswith("@every"):
            raise InvalidOption("cron", expression, f"{EXPECTED}. An interval is given as every=, in seconds")
        if line.lower() not in ALIASES:
            raise InvalidOption("cron", expression, f"{EXPECTED}.{nearest(line, ALIASES)}")
        return line.lower()
    if len(line.split()) != 5:
        seconds = " There is no field for seconds: see every=." if len(line.split()) == 6 else ""
        raise InvalidOption("cron", expression, f"{EXPECTED}.{seconds}")
    return line


_ORDINAL = re.compile(r"\b([2-5])([123])th\b")
_ENDINGS = {"1": "1st", "2": "2nd", "3": "3rd"}


CatchUp = Literal["none", "latest", "all"]
"""Of several firings that came due unseen (no worker ran): none is made up for, the latest, or all up to a limit.
A single firing that is late by less than its own interval is made in any case: it was not missed, only late."""

Overlap = Literal["allow", "skip", "queue"]
"""When the job of the last firing is unfinished: fire all the same, skip this firing, or fire once that job has ended.
"""

ScheduleSource = Literal["code", "person"]


class ScheduleSpec(Struct, frozen=True, kw_only=True):
    """What a schedule says. The same words declared again change nothing."""

    name: str
    type: str
    cron: str
    """A cron line, or an interval: `@every 10s`."""
    timezone: str = "UTC"
    payload: str = "{}"
    """JSON text, one object."""
    payload_version: int = 1
    tenant: str = SYSTEM_TENANT
    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    priority_label: str | None = None
    """The label that `priority` was given by."""
    category: str | None = None
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout_s: float | None = None
    catch_up: CatchUp = "latest"
    catch_up_limit: int = 10
    overlap: Overlap = "allow"
    jitter_s: float | None = None
    """Its jobs begin later than their nominal times, by up to this."""
    starts_at: datetime | None = None
    ends_at: datetime | None = None


class Schedule(Struct, frozen=True, kw_only=True):
    """A schedule and where it stands."""

    spec: ScheduleSpec
    source: ScheduleSource
    next_at: datetime | None
    """The next nominal time; None: it never fires again."""
    last_at: datetime | None = None
    """The newest nominal time fired or skipped."""
    last_job_id: JobId | None = None
    paused_at: datetime | None = None
    declared_at: datetime

    @property
    def state(self) -> Literal["active", "paused", "ended"]:
        if self.paused_at is not None:
            return "paused"
        return "ended" if self.next_at is None else "active"

    @property
    def timetable(self) -> Timetable | None:
        """Its nominal times; None if they cannot be read, which only direct SQL or a newer Fairlane can cause."""
        try:
            return timetable_of(self.spec)
        except InvalidOption:
            return None

    @property
    def words(self) -> str:
        timetable, jitter_s = self.timetable, self.spec.jitter_s
        if timetable is None:
            return f"cannot be read: {self.spec.cron}"
        return timetable.explain() + (f", up to {jitter_s:g} s later" if jitter_s else "")


SCHEDULE_HEADER = "fairlane-schedule"
NOMINAL_HEADER = "fairlane-nominal-time"
"""Headers of a fired job: the schedule's name, and the time it stands for, which is not when it ran."""


class Firing(Struct, frozen=True):
    nominal: tuple[datetime, ...]
    """A job for each of these."""
    fired_at: datetime
    """The newest nominal time that is dealt with."""
    next_at: datetime | None


def firing_of(schedule: Schedule, timetable: Timetable, now: datetime) -> Firing:
    """How a due schedule moves on at `now`, by its catch-up policy.

    A worker whose clock is behind the store's still fires what the store says is due.
    """
    spec, expected = schedule.spec, schedule.next_at
    assert expected is not None
    now = max(now, expected)
    limit = spec.catch_up_limit if spec.catch_up == "all" else 1
    due = timetable.latest(max(limit, 2), _since(schedule, timetable, expected), now)
    next_at = timetable.next_after(now)
    if not due:
        return Firing((), expected, next_at)
    if len(due) == 1:
        return Firing(due, due[-1], next_at)
    if spec.overlap == "queue":
        # One at a time: the next is due at once, and waits in the store until the job of this one has ended.
        made = due[-limit:]
        return Firing(made[:1], made[0], made[1] if len(made) > 1 else next_at)
    if spec.catch_up == "none":
        return Firing((), due[-1], next_at)
    # All at once they would overlap each other, which `skip` rules out.
    return Firing(due[-1:] if spec.overlap == "skip" else due[-limit:], due[-1], next_at)


def nominal_key(name: str, nominal: datetime) -> str:
    """The idempotency key of a firing: one job for each nominal time, whoever fires it and however often."""
    return f"schedule:{name}:{nominal_text(nominal)}"


def run_at_of(spec: ScheduleSpec, nominal: datetime) -> datetime | None:
    """When the job of a nominal time may begin, with jitter; whoever works it out comes to the same instant."""
    if not spec.jitter_s:
        return None
    drawn = int.from_bytes(sha256(nominal_key(spec.name, nominal).encode()).digest()[:4], "big")
    return nominal + timedelta(seconds=spec.jitter_s * drawn / 2**32)


def nominal_text(nominal: datetime) -> str:
    return nominal.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def job_of(
    spec: ScheduleSpec,
    id: JobId,
    *,
    nominal: datetime | None,
    priority_scope: PriorityScope = "queue",
    refs: Mapping[str, int | str] | None = None,
) -> JobSpec:
    """The job a schedule enqueues; without a nominal time, one beside its timetable."""
    headers = {SCHEDULE_HEADER: spec.name}
    if spec.priority_label is not None:
        headers[PRIORITY_HEADER] = spec.priority_label
    if nominal is not None:
        headers[NOMINAL_HEADER] = nominal_text(nominal)
    return JobSpec(
        id=id,
        type=spec.type,
        payload=Raw(spec.payload.encode()),
        payload_version=spec.payload_version,
        tenant=spec.tenant,
        queue=spec.queue,
        priority=spec.priority,
        priority_scope=priority_scope,
        category=spec.category,
        idempotency_key=None if nominal is None else nominal_key(spec.name, nominal),
        created_by=f"schedule:{spec.name}",
        refs=dict(refs or {}),
        headers=headers,
        run_at=None if nominal is None else run_at_of(spec, nominal),
        max_attempts=spec.max_attempts,
        timeout_s=spec.timeout_s,
    )


def _since(schedule: Schedule, timetable: Timetable, expected: datetime) -> datetime:
    """Where to begin: at `next_at`, or, if the zone's rules have changed and it is no nominal time any more, behind the
    last one."""
    if schedule.last_at is None or timetable.fires_at(expected):
        return expected
    return schedule.last_at + timedelta(microseconds=1)
