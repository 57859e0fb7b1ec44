"""The desk: what the parts of one engine share. Slots put outcomes on it, the turner takes them away."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import datetime

from fairlane.client.app import Fairlane
from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops.turn import START_BY_S
from fairlane.core.outcome import Completed, Outcome, Released, leaves_no_record
from fairlane.worker.config import WorkerConfig
from fairlane.worker.events import Teller
from fairlane.worker.lanes import ANY, LaneState, Slot
from fairlane.worker.limits import LimitWatch
from fairlane.worker.prepared import PreparedTask
from fairlane.worker.statistics import Statistics

MARGIN_S = 5.0
"""A held job begins no later than this before its lease ends: from then on it may be somebody else's."""
TRUSTED_S = START_BY_S - MARGIN_S


class Desk:
    def __init__(self, app: Fairlane, config: WorkerConfig, worker: WorkerId) -> None:
        self.app, self.config, self.worker = app, config, worker
        self.monotonic: Callable[[], float] = app.runtime.clock.monotonic
        self.tasks = {
            name: PreparedTask(app, task)
            for name, task in app.tasks.items()
            if not config.types or name in config.types
        }
        self.lanes = tuple(
            LaneState(lane, known_queues(app, lane.queues), tuple(sorted(self.tasks))) for lane in config.lanes
        )
        self.limits = LimitWatch(app.limits.declared, (queue for state in self.lanes for queue in state.queues))
        self.slots: list[Slot] = []
        self.outcomes: list[Outcome] = []
        self.statistics = Statistics()
        self.teller = Teller(app.runtime.access, worker, {lane.name: lane.slots for lane in config.lanes})
        self.kick = asyncio.Event()
        """Something for the turner: an outcome, a free slot, a wake-up, the end."""
        self.woken = True
        self.stopping = False
        """No more claims; what is held goes back."""
        self.closing = False
        """The slots themselves are being taken down."""
        self._told: tuple[datetime, float] | None = None
        """The store's time, and the earliest it can have been by ours."""
        self.started = 0
        self.ended = 0
        self.is_woken_reliably = False
        """A wake-up has been heard here: they do reach this process."""

    def hear_wake_up(self) -> None:
        self.is_woken_reliably = True
        self.wake()

    def wake(self) -> None:
        """There may be work."""
        self.woken = True
        self.kick.set()

    def put(self, outcome: Outcome | None, lease: Lease, ran_s: float) -> None:
        """An attempt ended; None: its lease is gone and there is nothing to settle."""
        self.ended += 1
        if outcome is not None:
            self.outcomes.append(outcome)
            self.limits.end(lease)
            self.statistics.add(lease, outcome, ran_s)
            if type(outcome) is not Completed and leaves_no_record(outcome):
                self.started -= 1  # put off: it runs another time
            if self.teller.is_watched or type(outcome) is not Completed:
                self.teller.ended(lease, outcome, ran_s)
        self.kick.set()

    def busy(self) -> bool:
        return any(state.running or state.held for state in self.lanes)

    def jobs_left(self) -> int:
        """How many more jobs this worker may claim before it is used up."""
        if self.config.max_jobs is None:
            return sys.maxsize
        return self.config.max_jobs - self.started - sum(len(state.held) for state in self.lanes)

    def hear_time(self, now: datetime, sent_s: float) -> None:
        """The store's time, from the answer to what was sent at `sent_s`."""
        self._told = now, sent_s

    def heard_within(self, span_s: float) -> bool:
        """Whether a Turn has been answered so lately."""
        return self._told is not None and self.monotonic() - self._told[1] < span_s

    def left_s(self, lease: Lease, now_s: float) -> float:
        """How long a lease lasts at least, counted by our clock from what the store said last."""
        if self._told is None:
            return 0.0
        told, told_s = self._told
        return (lease.deadline_at - told).total_seconds() - (now_s - told_s)

    def may_begin(self, state: LaneState, lease: Lease, now_s: float) -> bool:
        """Whether a job that was held for a while is still surely ours; one that is not goes back."""
        if lease.started:
            return True
        left_s = self.left_s(lease, now_s) - MARGIN_S
        if left_s > 0:
            state.trusted_until_s = now_s + left_s
            return True
        self._release(state, lease)
        self.kick.set()
        return False

    def give_back(self, state: LaneState, unwanted: Callable[[Lease], bool]) -> None:
        """Release held jobs before they begin."""
        kept = []
        for lease in state.held:
            if unwanted(lease):
                self._release(state, lease)
            else:
                kept.append(lease)
        state.held.clear()
        state.held.extend(kept)
        self.kick.set()

    def _release(self, state: LaneState, lease: Lease) -> None:
        state.give_up(lease)
        self.outcomes.append(Released(seq=lease.seq, attempt=lease.attempt))
        self.limits.end(lease)


def known_queues(app: Fairlane, queues: tuple[str, ...]) -> tuple[str, ...]:
    """A lane's queues by name: `*` stands for all that settings and tasks name, in their order, behind the ones named here."""
    named = [queue for queue in queues if queue != ANY]
    if ANY in queues:
        named += [
            *app.runtime.settings.queues,
            *app.runtime.settings.routes.values(),
            *(task.definition.queue for task in app.tasks.values()),
        ]
    return tuple(dict.fromkeys(named))
