"""Supervises one worker process after another: starts it, watches it, ends it, and starts the next."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

from fairlane.client.logs import GuardedLogger
from fairlane.worker.foreman.health import Ending, check_s, kill_reason, recycle_reason, stuck
from fairlane.worker.foreman.heartbeat import HeartbeatSender, return_leases
from fairlane.worker.foreman.process import WorkerProcess, exit_text
from fairlane.worker.services import keep

if TYPE_CHECKING:
    from fairlane.worker.foreman.foreman import Foreman

log = GuardedLogger("fairlane.foreman")

LAST_S = 5.0
"""Beyond the grace, for a worker to settle and exit."""
AT_ONCE_S = 3.0
FIRST_S, LONGEST_S, SETTLED_S = 1.0, 30.0, 60.0
LOOK_S = 0.5
"""Between two looks whether the foreman's other workers are ready."""

REASONS = {
    "stuck": "an attempt ran past twice its timeout",
    "blocked": "its loop was blocked past twice the timeouts of all that it ran, by one of them",
    "lapsed": "the store had removed it while it ran a job",
    "untrusted": "its heartbeat could not be renewed in time",
    "silent": "its loop has stopped",
    "not_starting": "its application did not load in time",
    "overstayed": "it did not exit within the grace",
}


class RestartDelay:
    """A worker that has worked is replaced at once, and so is the first that dies while it starts; the next such death
    is followed by a start after 1 s, 2 s, 4 s … 30 s; after a third of the lease at most while no worker is ready."""

    def __init__(self) -> None:
        self._deaths = 0

    def died(self, *, has_worked: bool) -> float:
        """How long to wait before the next start."""
        if has_worked:
            self._deaths = 0
            return 0.0
        self._deaths += 1
        if self._deaths == 1:
            return 0.0
        return min(FIRST_S * 2.0 ** min(self._deaths - 2, 10), LONGEST_S)


class Supervisor:
    """Keeps one worker process running until the foreman stops, or until another supervisor takes its place."""

    def __init__(self, foreman: Foreman, number: int, *, is_successor: bool = False) -> None:
        self._foreman, self.number = foreman, number
        self.process: WorkerProcess | None = None
        self._delay = RestartDelay()
        self._abandoned_since_s: float | None = None
        self._is_woken = asyncio.Event()
        self._heartbeat: HeartbeatSender | None = None
        self._is_successor = is_successor
        """Its first worker is tried once: the worker that it replaces is still there."""
        self._is_retired = False
        self.ready = asyncio.Event()
        """Its worker is registered and runs jobs, for the first time."""
        self.ended = asyncio.Event()
        """No worker is left here, and none follows."""

    async def run(self) -> None:
        """Until the worker exits and is not replaced."""
        await keep("a supervisor", self._run, is_ending=self._is_ending, log=log)
        self.ended.set()

    def stop(self, *, now: bool) -> None:
        self._is_woken.set()
        if self.process is not None:
            grace_s = 0.0 if now else self._foreman.config.grace_s
            self.process.stop(now=now, patience_s=grace_s + (AT_ONCE_S if now else LAST_S))

    def retire(self) -> None:
        """Let the worker finish its jobs, and start no other."""
        self._is_retired = True
        self.stop(now=False)

    def recycle(self, why: str) -> None:
        """Let the worker finish its jobs, and start another."""
        self._is_woken.set()
        if self.process is not None and self.process.leaving_by_s is None:
            log.info("worker %d is replaced: %s", self.process.pid, why)
            self.stop(now=False)

    def _is_ending(self) -> bool:
        return self._foreman.is_stopping or self._is_retired

    async def _run(self) -> None:
        while not self._is_ending():
            foreman = self._foreman
            setup = foreman.new_setup(self.number)
            self.process = process = await WorkerProcess.start(setup, foreman.clock, foreman.learn)
            self._repeat_stop()
            try:
                ending = await self._supervise(process)
            except asyncio.CancelledError:
                self._is_retired = True
                raise
            finally:
                self.process = None
            if not await self._replaces(process, ending):
                self._is_retired = True

    def _repeat_stop(self) -> None:
        # A stop while the process was being started found none to send it to.
        if self._is_ending():
            self.stop(now=True)

    async def _supervise(self, process: WorkerProcess) -> Ending:
        """Watch one worker from its start to its end, and return its leases."""
        self._heartbeat, is_over = None, asyncio.Event()
        send = partial(self._send_heartbeats, process)
        sending = keep(f"the heartbeat of worker {process.pid}", send, is_ending=is_over.is_set, log=log)
        heartbeat = asyncio.create_task(sending, name=f"heartbeat-{process.pid}")
        exited = asyncio.create_task(process.process.wait(), name=f"exit-{process.pid}")
        every_s = check_s(process.setup.config.lease_s)
        try:
            while not exited.done():
                await asyncio.wait({exited}, timeout=every_s)
                if process.is_ready:
                    self.ready.set()
                if not exited.done():
                    await self._check(process)
        finally:
            is_over.set()
            if not exited.done():
                await asyncio.shield(process.end("overstayed"))
            await self._end_heartbeats(heartbeat)
        ending = await process.ended()
        if process.hello is not None and process.is_registered:
            returned = asyncio.create_task(self._return_leases(process, ending), name=f"leases-{process.pid}")
            self._foreman.await_at_end(returned)
            # A replacement need not wait for a store that does not answer.
            await asyncio.wait({returned}, timeout=1.0)
        return ending

    async def _return_leases(self, process: WorkerProcess, ending: Ending) -> None:
        assert process.hello is not None
        foreman, lease_s = self._foreman, process.setup.config.lease_s
        store = await foreman.store_for(process.hello)
        running = process.board.running()
        kinds = await return_leases(store, foreman.clock, process.worker, ending, running, process.stuck, lease_s)
        if kinds is not None:
            foreman.host_workers(process.hello).remove(process.worker)
        if kinds:
            await foreman.crashed_together(kinds, process.process.returncode)

    async def _send_heartbeats(self, process: WorkerProcess) -> None:
        while process.hello is None:
            await process.news.wait()
            process.news.clear()
        store = await self._foreman.store_for(process.hello)
        self._foreman.host_workers(process.hello).add(process.worker, process.pid)
        self._heartbeat = HeartbeatSender(store, self._foreman.clock, process, self._foreman.crashes)
        await self._heartbeat.run()

    async def _end_heartbeats(self, heartbeat: asyncio.Task[None]) -> None:
        if self._heartbeat is not None:
            self._heartbeat.end()
            await asyncio.wait({heartbeat}, timeout=1.0)
        heartbeat.cancel()
        await asyncio.gather(heartbeat, return_exceptions=True)

    async def _check(self, process: WorkerProcess) -> None:
        now_s = self._foreman.clock.monotonic()
        health = process.health(now_s)
        reason, process.stuck = kill_reason(health), stuck(health)
        if health.is_silent and health.running and not process.is_silent:
            process.news.set()  # a heartbeat at once, which reports what runs there
        process.is_silent = health.is_silent
        if process.has_exited():
            return
        if reason is not None:
            log.error("worker %d is killed: %s", process.pid, REASONS[reason])
            await process.end(reason)
        elif process.leaving_by_s is not None:
            if now_s > process.leaving_by_s:
                if process.hello is not None:
                    log.warning("worker %d is killed: %s", process.pid, REASONS["overstayed"])
                await process.end("overstayed")
        else:
            self._recycle_if_worn(process, now_s)

    def _recycle_if_worn(self, process: WorkerProcess, now_s: float) -> None:
        if process.hello is not None and (reason := recycle_reason(process.tick, process.hello.poll_s)) is not None:
            self.recycle(reason)
        cap_mb = process.setup.config.max_memory_mb
        if cap_mb is not None and process.is_registered and (used_mb := process.memory_mb() or 0.0) > cap_mb:
            self.recycle(f"it uses {used_mb:.0f} MB, more than the {cap_mb:g} MB it may")
        if not process.tick.abandoned:
            self._abandoned_since_s = None
        elif self._abandoned_since_s is None:
            self._abandoned_since_s = now_s
        elif now_s - self._abandoned_since_s > process.setup.config.lease_s:
            # A thread that runs an abandoned attempt this long ends only with its process.
            self._abandoned_since_s = None
            self.recycle(f"{process.tick.abandoned} of its threads ignore that their attempts were ended")

    async def _replaces(self, process: WorkerProcess, ending: Ending) -> bool:
        """Whether another worker is started; returns when it is time to."""
        is_stopping = self._is_ending()
        if is_stopping and process.hello is None:
            return False  # It was still starting and held nothing: its end is no news.
        if ending == "left":
            return not is_stopping and process.left is not None and process.left.why != "drained"
        is_tried_once = self._is_successor and not self.ready.is_set()
        if ending == "refused" and not is_stopping:
            assert process.refused is not None
            if not self._foreman.refused(process.refused, is_last_try=is_tried_once):
                return False
        pause_s = self._delay.died(has_worked=process.has_worked or process.lived_s > SETTLED_S)
        if is_stopping:
            following = "it was leaving"
        elif is_tried_once:
            following = "the worker it was to replace goes on"
        else:
            following = f"another is started {f'in {pause_s:g} s' if pause_s else 'at once'}"
        if ending != "refused":
            log.error("worker %d %s; %s", process.pid, exit_text(process.process.returncode), following)
        if is_stopping or is_tried_once:
            return False
        await self._pause(pause_s)
        return not self._is_ending()

    async def _pause(self, pause_s: float) -> None:
        """Wait until the pause is over or the supervisor is woken; not for long while no worker here is ready."""
        clock, foreman = self._foreman.clock, self._foreman
        self._is_woken.clear()
        began_s = clock.monotonic()
        while not self._is_woken.is_set():
            longest_s = pause_s if foreman.has_ready_worker() else min(pause_s, foreman.config.lease_s / 3)
            left_s = began_s + longest_s - clock.monotonic()
            if left_s <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, LOOK_S)):
                    await self._is_woken.wait()
