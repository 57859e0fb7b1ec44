"""One event loop that claims, runs and settles jobs for the lanes of one worker process.

wake-ups ──▶ turn loop ──leases──▶ lanes ──▶ slots ──outcomes──▶ state ──▶ turn loop
                                  watchdog ──stops──▶ slots
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from fairlane.alerts import StoreOutage, register_sinks
from fairlane.client.app import Fairlane
from fairlane.client.context import job_in_force
from fairlane.client.logs import GuardedLogger, job_on_log_lines
from fairlane.core.ids import WorkerId
from fairlane.errors import StoreClosed
from fairlane.worker.attempts import BreakerGuard
from fairlane.worker.batch_calls import BatchCall
from fairlane.worker.board import Board, BoardLine
from fairlane.worker.config import WorkerConfig
from fairlane.worker.duties import Duties
from fairlane.worker.isolated.children import Children
from fairlane.worker.lanes import Slot
from fairlane.worker.progress import ProgressWriter
from fairlane.worker.resources import WorkerScope
from fairlane.worker.runner import SlotRunner
from fairlane.worker.services import keep
from fairlane.worker.shutdown import LET_GO_S, end_tasks
from fairlane.worker.state import WorkerState
from fairlane.worker.threads import Threads
from fairlane.worker.turns import TurnLoop, Unanswered
from fairlane.worker.wakeups import WakeUpListener
from fairlane.worker.watchdog import PauseMonitor, Watchdog

log = GuardedLogger("fairlane.worker")

LAST_S = LET_GO_S
"""How long after the grace an interrupted attempt may take to end."""


class Engine:
    """Runs jobs until stopped. Its heartbeat is sent by a foreman, or by the embedded worker's thread."""

    def __init__(self, app: Fairlane, config: WorkerConfig, worker: WorkerId, board: Board | None = None) -> None:
        self._board = board
        register_sinks(app)
        self.state = WorkerState(app, config, worker)
        self.turns = TurnLoop(self.state)
        self.watchdog = Watchdog(self.state)
        self.duties = Duties(self.state)
        self.wakeups = WakeUpListener(app.runtime.store, worker, self.state.on_wake_up)
        self.progress = ProgressWriter(self.state)
        self.pauses = PauseMonitor(self.state)
        self.breakers = BreakerGuard(self.state)
        self.threads: Threads | None = None
        self.children = Children(config.app, config.isolated_memory_mb) if config.app is not None else None

    async def run(self) -> None:
        """Until `stop`, until drained, or until `max_jobs`. If the store can be reached, no job stays leased to us.

        Raises what ended the turn loop, if that ended otherwise, after everything that can be settled is settled:
        then the engine is to be replaced.
        """
        with job_on_log_lines(is_wanted=self.state.app.runtime.settings.log_context):
            await self._run()

    async def _run(self) -> None:
        state = self.state
        failure: BaseException | None = None
        await self.wakeups.start()
        self.threads = threads = Threads(asyncio.get_running_loop())
        # Before the slots: they take the worker's resources from the context they are made in.
        resources = WorkerScope()
        helpers = [
            self.keep("progress", self.progress.run),
            self.keep("pauses", self.pauses.run),
            self.keep("events", state.events.run),
            self.keep("store outage", StoreOutage(state.app, state.outage).run),
        ]
        if (failover := state.app.runtime.access.failover) is not None and state.app.runtime.settings.run_spooled:
            from fairlane.worker.embedded import SpooledJobs  # Imported here: it is made of an engine.

            helpers.append(self.keep("spooled jobs", SpooledJobs(state, failover).run))
        slots = self._start_slots(threads)
        watchdog, duties = self.keep("watchdog", self.watchdog.run), self.keep("duties", self.duties.run)
        try:
            try:
                try:
                    await self.turns.run()
                except (Unanswered, StoreClosed, GeneratorExit):
                    raise
                except BaseException as error:  # noqa: BLE001 - raised again below
                    failure = error
                    self.stop_now() if isinstance(error, asyncio.CancelledError) else self.stop()
                await self._leave()
            except Unanswered as error:
                log.warning("jobs held here stay leased until their leases expire: %s", error)
            duties.cancel()
            await asyncio.gather(duties, return_exceptions=True)
            await self.duties.finish()
        finally:
            state.closing = state.stopping = True
            await end_tasks((watchdog, duties, *slots), LAST_S)
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await resources.close()
            threads.close()
            await self.wakeups.close()
            if self.children is not None:
                await self.children.close()
        if failure is not None:
            raise failure

    def drain(self) -> None:
        """Stop when nothing is ready and nothing runs."""
        self.state.draining = True
        self.state.wake()

    def stop(self) -> None:
        """Claim no more; held jobs are released, running ones may end within the grace."""
        self._leave_within(self.state.config.grace_s)
        self.state.stopping = True
        self.state.kick.set()

    def stop_now(self) -> None:
        """End the grace: interrupt and release what still runs."""
        self.stop()
        self._leave_within(0.0)
        for slot in self.state.slots:
            slot.stop("shutdown")

    def show_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Show on the board which attempt runs on the loop right now; called in another thread, as it may be blocked.

        An attempt's own tasks are known as its from Python 3.12 on.
        """
        task = asyncio.current_task(loop)
        if task is None:
            return
        get_context = getattr(task, "get_context", None)
        job = None if get_context is None else get_context().get(job_in_force)
        for slot in tuple(self.state.slots):
            if slot.task is task or (job is not None and slot.job is job):
                members = slot.unsettled.members if isinstance(slot.unsettled, BatchCall) else (slot,)
                for line in [member.line for member in members if member.line is not None]:
                    line.on_loop(self.state.monotonic())

    def _start_slots(self, threads: Threads) -> list[asyncio.Task[None]]:
        state, tasks = self.state, []
        lines: list[BoardLine] = []
        """Lines of the board for the jobs of batch calls."""
        if self._board is not None:
            slots = sum(lane.config.slots for lane in state.lanes)
            lines.extend(map(self._board.line, range(slots, state.board_lines)))
        for lane in state.lanes:
            runner = SlotRunner(state, lane, threads, self.children, self.breakers, self.progress, lines)
            for number in range(lane.config.slots):
                slot = Slot(None if self._board is None else self._board.line(len(state.slots)))
                slot.task = self.keep(f"slot {lane.config.name}-{number}", partial(runner.run, slot))
                state.slots.append(slot)
                tasks.append(slot.task)
        return tasks

    def keep(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Start one of the engine's own tasks, which is started again if it ends before the engine does."""
        return asyncio.create_task(keep(name, run, is_ending=lambda: self.state.stopping, log=log), name=name)

    def _leave_within(self, grace_s: float) -> None:
        until_s, turns = self.state.monotonic() + grace_s + LAST_S, self.turns
        turns.until_s = until_s if turns.until_s is None else min(turns.until_s, until_s)

    async def _leave(self) -> None:
        """Release held jobs, wait for running ones, then interrupt them; settle everything."""
        state = self.state
        self.stop()
        for lane in state.lanes:
            state.give_back(lane, lambda _: True)
            lane.give_back_gathered()
            lane.wake_all()
        until_s = state.monotonic() + state.config.grace_s
        while state.outcomes or state.busy():
            if state.outcomes:
                await self.turns.turn()
                continue
            left_s = until_s - state.monotonic()
            if left_s <= 0:
                self.stop_now()
                if left_s < -LAST_S:
                    return  # what ignores even this is fenced: its lease ends with this worker's registration
                left_s = 0.1
            state.kick.clear()
            try:
                async with asyncio.timeout(min(left_s, 1.0)):
                    await state.kick.wait()
            except TimeoutError:
                await self.turns.turn()
