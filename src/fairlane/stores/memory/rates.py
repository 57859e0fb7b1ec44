"""What rates have counted: for each key the instants of its claims, or of the tokens taken, no more than its rate asks for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from datetime import datetime
from operator import itemgetter

from fairlane.core.limits import LimitKey, Rate
from fairlane.stores.memory.moments import earlier, later

Counted = tuple[datetime, int, int]
"""When, and for a claim the job's seq and the attempt: what is found again when it is given back."""

_instant_of = itemgetter(0)
_MANY = 64


class Log:
    """What was counted under one key, oldest first.

    Under a rate of n no more than n can lie within its period, so the newest n decide everything and older ones may go.
    """

    __slots__ = ("_counted", "_most", "spent_at")

    def __init__(self) -> None:
        self._counted: list[Counted] = []
        self._most = 0
        self.spent_at: datetime | None = None
        """From then on nothing here counts any more."""

    def used(self, rate: Rate, now: datetime) -> int:
        """How many lie within the last period: what is a whole period old does not."""
        return len(self._counted) - self._begin(rate, now)

    def free_at(self, rate: Rate, now: datetime, count: int = 1) -> datetime | None:
        """When there is room for `count` more; None: now, or never, where the rate is less than that."""
        begin = self._begin(rate, now)
        too_many = len(self._counted) - begin + count - rate.count
        if too_many <= 0 or count > rate.count:
            return None
        return later(self._counted[begin + too_many - 1][0], rate.period_s)

    def add(self, rate: Rate, *counted: Counted) -> None:
        """Count these, all of one instant."""
        self._most = max(self._most, rate.count)
        if len(self._counted) > 2 * self._most + _MANY:
            del self._counted[: -self._most]
        for one in counted:
            insort(self._counted, one)
        until = later(counted[0][0], rate.period_s)
        if self.spent_at is None or until > self.spent_at:
            self.spent_at = until

    def give_back(self, counted: Counted) -> None:
        at = bisect_left(self._counted, counted)
        if at < len(self._counted) and self._counted[at] == counted:
            del self._counted[at]

    def _begin(self, rate: Rate, now: datetime) -> int:
        return bisect_right(self._counted, earlier(now, rate.period_s), key=_instant_of)


class Logs:
    """A log for each key that something was counted under; those of tenants long gone are swept away in time."""

    def __init__(self) -> None:
        self._logs: dict[LimitKey, Log] = {}
        self._sweep_at = _MANY

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, key: LimitKey) -> Log:
        """To read from; what is added to it may be lost."""
        return self._logs.get(key) or Log()

    def open(self, key: LimitKey, now: datetime) -> Log:
        """To add to."""
        log = self._logs.get(key)
        if log is None:
            if len(self._logs) >= self._sweep_at:
                self._sweep(now)
            log = self._logs[key] = Log()
        return log

    def named(self) -> list[LimitKey]:
        return [key for key in self._logs if key.kind == "named"]

    def give_back(self, key: LimitKey, counted: Counted) -> None:
        log = self._logs.get(key)
        if log is not None:
            log.give_back(counted)

    def _sweep(self, now: datetime) -> None:
        self._logs = {key: log for key, log in self._logs.items() if log.spent_at is not None and log.spent_at > now}
        self._sweep_at = 2 * len(self._logs) + _MANY
