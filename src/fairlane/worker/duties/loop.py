"""The loop that runs the duties: one step at a time, each when it is due, whatever became of the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from fairlane.core.chance import Chance
from fairlane.core.clock import Clock
from fairlane.worker.duties import forgetting, meeting, rolling, sealing
from fairlane.worker.duties.aging import Ager
from fairlane.worker.duties.alerting import AlertKeeper
from fairlane.worker.duties.declaring import Declarer
from fairlane.worker.duties.fast_lane import FastLaneWatcher
from fairlane.worker.duties.firing import Firer
from fairlane.worker.duties.flushing import Flusher
from fairlane.worker.duties.forgetting import Forgetter
from fairlane.worker.duties.meeting import TenantMeeter
from fairlane.worker.duties.once import OnceForAll
from fairlane.worker.duties.promoting import Promoter
from fairlane.worker.duties.reclaiming import Reclaimer
from fairlane.worker.duties.report import Duty, Report
from fairlane.worker.duties.retaining import Retainer
from fairlane.worker.duties.rolling import Roller
from fairlane.worker.duties.sealing import Sealer
from fairlane.worker.duties.telling import EventFlusher
from fairlane.worker.duties.unholding import Unholder
from fairlane.worker.duties.weighing import Weigher
from fairlane.worker.state import Desk

log = logging.getLogger("fairlane.worker")

STEP_S = 30.0
"""A step that has not come back by then is given up, and tried again."""
BREATH_S = 0.05
"""Between two steps of a duty that has more to do."""
TOGETHER_S = 0.25
SPREAD_S = 3.0
"""Over so long a worker spreads the first steps of its duties: a hundred that start together must not all call at once, and jobs that have waited
for a worker come before its figures."""
BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
JITTER = 0.1


class Planned:
    """A duty and when its next step is due, by the monotonic clock; None: never again."""

    def __init__(self, duty: Duty, due_s: float) -> None:
        self.duty = duty
        self.due_s: float | None = due_s
        self.failures = 0
        self.has_more = False
        """Its last step left something to do."""
        self.succeeded_s = due_s


class DutyLoop:
    """Runs duties until cancelled. No error of a duty ends it: each is logged, and the step tried again, for ever."""

    def __init__(self, duties: Iterable[Duty], clock: Clock, chance: Chance) -> None:
        self._clock, self._chance = clock, chance
        now_s = self._made_s = clock.monotonic()
        self._planned = [Planned(duty, now_s + SPREAD_S * chance.fraction()) for duty in duties]

    async def run(self) -> None:
        # Spread from now on: a worker is made some time before it may claim, and would begin with all of them at once.
        late_s = self._clock.monotonic() - self._made_s
        for planned in self._planned:
            planned.due_s = None if planned.due_s is None else planned.due_s + late_s
        while True:
            pause_s = await self.run_due()
            # Several that are due soon are done together, a little late: waking up is most of what an idle worker costs.
            least_s = 0.0 if any(planned.has_more for planned in self._planned) else TOGETHER_S
            await asyncio.sleep(min(max(pause_s, least_s), 1.0))

    async def run_due(self) -> float:
        """Run what is due, the longest overdue first, one step each; how many seconds until something is due again."""
        now_s = self._clock.monotonic()
        due = [planned for planned in self._planned if planned.due_s is not None and planned.due_s <= now_s]
        for planned in sorted(due, key=lambda planned: planned.due_s or 0.0):
            await self._step(planned)
        now_s = self._clock.monotonic()
        return max(min((p.due_s - now_s for p in self._planned if p.due_s is not None), default=1.0), 0.0)

    def ages_s(self) -> dict[str, float]:
        """How long ago each duty last succeeded: a duty that cannot do its work is seen here."""
        now_s = self._clock.monotonic()
        return {
            planned.duty.name: now_s - planned.succeeded_s for planned in self._planned if planned.due_s is not None
        }

    async def _step(self, planned: Planned) -> None:
        try:
            async with asyncio.timeout(STEP_S):
                report = await planned.duty.run_once(self._clock.now())
        except Exception as error:  # noqa: BLE001 - a service loop: whatever a duty meets, the others go on, and it is tried again
            pause_s = BACKOFF_S[min(planned.failures, len(BACKOFF_S) - 1)] * (0.5 + self._chance.fraction())
            planned.failures += 1
            planned.has_more = False
            planned.due_s = self._clock.monotonic() + pause_s
            what = f"no answer within {STEP_S:g} s" if isinstance(error, TimeoutError) and not str(error) else error
            log.warning("duty %s failed, trying again in %.1f s: %s", planned.duty.name, pause_s, what)
            return
        now_s = self._clock.monotonic()
        planned.failures, planned.succeeded_s = 0, now_s
        planned.has_more = report.next_s == 0
        planned.due_s = self._next_s(now_s, report)

    def _next_s(self, now_s: float, report: Report) -> float | None:
        if report.next_s is None:
            return None
        if report.next_s == 0:
            return now_s + BREATH_S
        # Late, never early: a duty may aim at a full minute.
        return now_s + report.next_s + min(JITTER * report.next_s, 0.5) * self._chance.fraction()


class Duties:
    """The duties of one worker process."""

    def __init__(self, desk: Desk) -> None:
        app, store = desk.app, desk.app.runtime.access
        self.flusher = Flusher(store, desk.worker, desk.statistics, app.runtime.clock)
        self.fast_lane = FastLaneWatcher(desk)
        self.firer = Firer(app)
        self._teller = desk.teller
        self.loop = DutyLoop(
            (
                Declarer(app),
                self.firer,
                Promoter(store, desk.wake, desk.heard_within),
                Reclaimer(store),
                self.flusher,
                Retainer(store, app.runtime.settings),
                self.fast_lane,
                EventFlusher(desk),
                Weigher(desk),
                Unholder(desk),
                Ager(app),
                OnceForAll(TenantMeeter(store), store, meeting.EVERY_S),
                OnceForAll(Roller(store), store, rolling.EVERY_S),
                OnceForAll(Forgetter(store), store, forgetting.EVERY_S),
                OnceForAll(Sealer(store), store, sealing.EVERY_S),
                AlertKeeper(app),
            ),
            app.runtime.clock,
            app.runtime.chance,
        )

    async def run(self) -> None:
        """Until cancelled."""
        self._teller.came()
        await self.loop.run()

    async def finish(self) -> None:
        """Write the figures and tell the events that are left; for the end of a worker, while it is still registered."""
        await self.flusher.finish()
        await self._teller.finish()

    def figures(self) -> dict[str, float]:
        """What the duties say of this process, for its heartbeat: payload sizes, long jobs on fast lanes, ages of duties."""
        sizes = self.flusher.statistics.payload_buckets
        figures = {f"payload.under_{2**bucket}": float(count) for bucket, count in enumerate(sizes) if count}
        figures["fast_lane.long"] = float(self.fast_lane.seen)
        figures["schedules.fired"] = float(self.firer.fired)
        figures["duties.oldest_s"] = round(max(self.loop.ages_s().values(), default=0.0), 1)
        return figures
