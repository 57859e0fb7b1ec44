"""Runs duties: one step at a time, each when it is due, whether or not the others succeed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from fairlane.client.logs import GuardedLogger, OutageLog
from fairlane.core.chance import Chance
from fairlane.core.clock import Clock
from fairlane.errors import StoreUnavailable

log = GuardedLogger("fairlane.worker")

STEP_S = 30.0
"""A step that takes longer is cancelled and tried again."""
PAUSE_S = 0.05
"""Between two steps of a duty that has more to do."""
TOGETHER_S = 0.25
"""Duties that are due within this span run together: waking up is most of what an idle worker costs."""
SPREAD_S = 3.0
"""A worker spreads the first steps of its duties over this span: a hundred workers that start together must not call
the store at once, and jobs that waited for a worker come before maintenance."""
BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
JITTER = 0.1


class StepReport(Struct, frozen=True, kw_only=True):
    """What one step did, and when the next is due."""

    done: int = 0
    """Jobs moved, schedules fired, rows written: whatever the duty counts."""
    next_s: float | None
    """Seconds until the next step; 0: there is more to do now. None: never again."""


class Duty(Protocol):
    name: str

    async def run_once(self, now: datetime) -> StepReport:
        """One bounded step. May be repeated, and may run in any number of workers at once."""
        ...


class DutyTimer:
    """A duty and when its next step is due, by the monotonic clock; None: never again."""

    def __init__(self, duty: Duty, due_s: float) -> None:
        self.duty = duty
        self.due_s: float | None = due_s
        self.failures = 0
        self.has_more = False
        """Its last step left more to do."""
        self.succeeded_s = due_s


class DutyLoop:
    """Runs duties until cancelled. An error of a duty is logged and its step tried again, for ever."""

    def __init__(self, duties: Iterable[Duty], clock: Clock, chance: Chance, outage: OutageLog | None = None) -> None:
        self._clock, self._chance, self._outage = clock, chance, outage
        now_s = self._made_s = clock.monotonic()
        self._timers = [DutyTimer(duty, now_s + SPREAD_S * chance.fraction()) for duty in duties]

    async def run(self) -> None:
        # Spread from now on: a worker is constructed some time before it is registered, and would start all of them
        # at once.
        late_s = self._clock.monotonic() - self._made_s
        for timer in self._timers:
            timer.due_s = None if timer.due_s is None else timer.due_s + late_s
        while True:
            pause_s = await self.run_due()
            least_s = 0.0 if any(timer.has_more for timer in self._timers) else TOGETHER_S
            await asyncio.sleep(min(max(pause_s, least_s), 1.0))

    async def run_due(self) -> float:
        """Run what is due, the longest overdue first, one step each; how many seconds until something is due again."""
        now_s = self._clock.monotonic()
        due = [timer for timer in self._timers if timer.due_s is not None and timer.due_s <= now_s]
        for timer in sorted(due, key=lambda timer: timer.due_s or 0.0):
            await self._step(timer)
        now_s = self._clock.monotonic()
        return max(min((p.due_s - now_s for p in self._timers if p.due_s is not None), default=1.0), 0.0)

    def ages_s(self) -> dict[str, float]:
        """How long ago each duty last succeeded."""
        now_s = self._clock.monotonic()
        return {timer.duty.name: now_s - timer.succeeded_s for timer in self._timers if timer.due_s is not None}

    async def _step(self, timer: DutyTimer) -> None:
        try:
            async with asyncio.timeout(STEP_S):
                report = await timer.duty.run_once(self._clock.now())
        except Exception as error:  # noqa: BLE001 - a service loop: one duty's error stops no other
            pause_s = BACKOFF_S[min(timer.failures, len(BACKOFF_S) - 1)] * (0.5 + self._chance.fraction())
            timer.failures += 1
            timer.has_more = False
            timer.due_s = self._clock.monotonic() + pause_s
            what = f"no answer within {STEP_S:g} s" if isinstance(error, TimeoutError) and not str(error) else error
            if self._outage is not None and isinstance(error, StoreUnavailable):
                self._outage.failed(error)
            else:
                log.warning("duty %s failed, trying again in %.1f s: %s", timer.duty.name, pause_s, what)
            return
        now_s = self._clock.monotonic()
        timer.failures, timer.succeeded_s = 0, now_s
        timer.has_more = report.next_s == 0
        timer.due_s = self._next_s(now_s, report)

    def _next_s(self, now_s: float, report: StepReport) -> float | None:
        if report.next_s is None:
            return None
        if report.next_s == 0:
            return now_s + PAUSE_S
        # Late, never early: a duty may be due at a full minute.
        return now_s + report.next_s + min(JITTER * report.next_s, 0.5) * self._chance.fraction()


def until_minute_s(now: datetime) -> float:
    """Seconds until the next full minute."""
    return 60.0 - now.second - now.microsecond / 1_000_000
