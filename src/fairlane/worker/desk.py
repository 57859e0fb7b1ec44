"""The desk: what the parts of one engine share. Slots put outcomes on it, the turner takes them away."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from fairlane.client.app import Fairlane
from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.outcome import Outcome, Released
from fairlane.worker.config import WorkerConfig
from fairlane.worker.lanes import ANY, LaneState
from fairlane.worker.prepared import PreparedTask
from fairlane.worker.slot import Slot
from fairlane.worker.statistics import Statistics


class Desk:
    def __init__(self, app: Fairlane, config: WorkerConfig, worker: WorkerId) -> None:
        self.app, self.config, self.worker = app, config, worker
        self.monotonic: Callable[[], float] = app.clock.monotonic
        self.tasks = {
            name: PreparedTask(app, task)
            for name, task in app.tasks.items()
            if not config.types or name in config.types
        }
        self.lanes = tuple(
            LaneState(lane, known_queues(app, lane.queues), tuple(sorted(self.tasks))) for lane in config.lanes
        )
        self.slots: list[Slot] = []
        self.outcomes: list[Outcome] = []
        self.statistics = Statistics()
        self.kick = asyncio.Event()
        """Something for the turner: an outcome, a free slot, a wake-up, the end."""
        self.woken = True
        self.stopping = False
        """No more claims; what is held goes back."""
        self.closing = False
        """The slots themselves are being taken down."""
        self.started = 0
        self.ended = 0

    def wake(self) -> None:
        """There may be work."""
        self.woken = True
        self.kick.set()

    def put(self, outcome: Outcome | None, lease: Lease, ran_s: float) -> None:
        """An attempt ended; None: its lease is gone and there is nothing to settle."""
        self.ended += 1
        if outcome is not None:
            self.outcomes.append(outcome)
            self.statistics.add(lease, outcome, ran_s)
        self.kick.set()

    def busy(self) -> bool:
        return any(state.running or state.held for state in self.lanes)

    def jobs_left(self) -> int:
        """How many more jobs this worker may claim before it is used up."""
        if self.config.max_jobs is None:
            return sys.maxsize
        return self.config.max_jobs - self.started - sum(len(state.held) for state in self.lanes)

    def give_back(self, state: LaneState, unwanted: Callable[[Lease], bool]) -> None:
        """Release held jobs before they begin."""
        kept = []
        for lease in state.held:
            if unwanted(lease):
                self.outcomes.append(Released(seq=lease.seq, attempt=lease.attempt))
            else:
                kept.append(lease)
        state.held.clear()
        state.held.extend(kept)
        self.kick.set()


def known_queues(app: Fairlane, queues: tuple[str, ...]) -> tuple[str, ...]:
    """A lane's queues by name: `*` stands for all that settings and tasks name, in their order, behind the ones named here."""
    named = [queue for queue in queues if queue != ANY]
    if ANY in queues:
        named += [
            *app.settings.queues,
            *app.settings.routes.values(),
            *(task.definition.queue for task in app.tasks.values()),
        ]
    return tuple(dict.fromkeys(named))
