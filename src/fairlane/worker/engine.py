"""The engine: one event loop that claims, runs and settles jobs for the lanes of one worker process.

    waker ──wakes──▶ turner ──leases──▶ lanes ──▶ slots ──outcomes──▶ desk ──▶ turner
                                          watchdog ──stops──▶ slots

Slots pull held jobs and run them, one each: no task, future or model per job on the way.
"""

from __future__ import annotations

import asyncio
import logging

from fairlane.alerts import register_sinks
from fairlane.client.app import Fairlane
from fairlane.core.ids import WorkerId
from fairlane.worker.board import Board
from fairlane.worker.config import WorkerConfig
from fairlane.worker.duties import Duties
from fairlane.worker.isolated.children import Children
from fairlane.worker.lanes import Slot
from fairlane.worker.runner import Filler
from fairlane.worker.services import Services
from fairlane.worker.shutdown import LET_GO_S, end_tasks
from fairlane.worker.state import Desk
from fairlane.worker.threads import Threads
from fairlane.worker.turns import Turner, Unanswered
from fairlane.worker.wakeups import Waker
from fairlane.worker.watchdog import Watchdog

log = logging.getLogger("fairlane.worker")


class Engine:
    """Runs jobs until told to stop. Its heartbeat is somebody else's: a foreman's, or the embedded worker's."""

    def __init__(self, app: Fairlane, config: WorkerConfig, worker: WorkerId, board: Board | None = None) -> None:
        self._board = board
        register_sinks(app)
        self.desk = Desk(app, config, worker)
        self.services = Services(self.desk)
        self.turner = Turner(self.desk)
        self.watchdog = Watchdog(self.desk)
        self.duties = Duties(self.desk)
        self.waker = Waker(app.runtime.store, worker, self.desk.hear_wake_up)
        self.wake_address: str | None = None
        """To be registered with the heartbeat, where the store needs one."""
        self.threads: Threads | None = None
        self.children = Children(config.app, config.isolated_memory_mb) if config.app is not None else None

    async def run(self) -> None:
        """Until `stop`, or until drained or used up. Nothing that this worker held stays leased, if the store can be reached."""
        desk = self.desk
        self.wake_address = await self.waker.start()
        self.threads = threads = Threads(asyncio.get_running_loop())
        self.services.start()
        slots = []
        for state in desk.lanes:
            filler = Filler(desk, state, threads, self.children, self.services)
            for number in range(state.lane.slots):
                slot = Slot(None if self._board is None else self._board.line(len(desk.slots)))
                slot.task = asyncio.create_task(filler.fill(slot), name=f"{state.lane.name}-{number}")
                desk.slots.append(slot)
                slots.append(slot.task)
        watchdog = asyncio.create_task(self.watchdog.watch(), name="watchdog")
        duties = asyncio.create_task(self.duties.run(), name="duties")
        try:
            try:
                await self.turner.turn_until_stopped()
                await self._leave()
            except Unanswered as error:
                log.warning("what was held here waits for its leases to end: %s", error)
            duties.cancel()
            await asyncio.gather(duties, return_exceptions=True)
            await self.duties.finish()
        finally:
            desk.closing = desk.stopping = True
            await end_tasks((watchdog, duties, *slots), LAST_S)
            await self.services.close()
            threads.close()
            await self.waker.close()
            if self.children is not None:
                await self.children.close()

    def stop(self) -> None:
        """Claim no more; what is held goes back, what runs may end within the grace."""
        self._leave_within(self.desk.config.grace_s)
        self.desk.stopping = True
        self.desk.kick.set()

    def stop_now(self) -> None:
        """End the grace: what still runs is interrupted and given back."""
        self.stop()
        self._leave_within(0.0)
        now_s = self.desk.monotonic()
        for slot in self.desk.slots:
            slot.stop("shutdown", now_s)

    def _leave_within(self, grace_s: float) -> None:
        until_s, turner = self.desk.monotonic() + grace_s + LAST_S, self.turner
        turner.until_s = until_s if turner.until_s is None else min(turner.until_s, until_s)

    async def _leave(self) -> None:
        """Give back what has not begun, wait for what runs, then interrupt it; settle everything."""
        desk = self.desk
        self.stop()
        for state in desk.lanes:
            desk.give_back(state, lambda _: True)
            state.wake_all()
        until_s = desk.monotonic() + desk.config.grace_s
        while desk.outcomes or desk.busy():
            if desk.outcomes:
                await self.turner.turn()
                continue
            left_s = until_s - desk.monotonic()
            if left_s <= 0:
                self.stop_now()
                if left_s < -LAST_S:
                    return  # what ignores even this is fenced: its lease goes with this worker
                left_s = 0.1
            desk.kick.clear()
            try:
                async with asyncio.timeout(min(left_s, 1.0)):
                    await desk.kick.wait()
            except TimeoutError:
                await self.turner.turn()


LAST_S = LET_GO_S
"""How long after the grace an interrupted attempt may take to let go."""
