"""Supervises one worker process after another: starts it, watches it, ends it, and starts the next."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from fairlane.client.logs import GuardedLogger
from fairlane.worker.foreman.health import Ending, kill_reason, recycle_reason
from fairlane.worker.foreman.heartbeat import HeartbeatSender, return_leases
from fairlane.worker.foreman.process import WorkerProcess, exit_text

if TYPE_CHECKING:
    from fairlane.worker.foreman.foreman import Foreman

log = GuardedLogger("fairlane.foreman")

CHECK_S = 0.5
CHECKS_PER_LEASE = 12
LAST_S = 5.0
"""Beyond the grace, for a worker to settle and exit."""
AT_ONCE_S = 3.0
FIRST_S, LONGEST_S, SETTLED_S = 1.0, 30.0, 60.0

REASONS = {
    "stuck": "an attempt ran past twice its timeout",
    "lapsed": "the store had removed it while it ran a job",
    "untrusted": "its heartbeat could not be renewed in time",
    "silent": "its loop has stopped",
    "not_starting": "its application did not load in time",
    "overstayed": "it did not exit within the grace",
}


class RestartDelay:
    """The first death is followed by a start at once, deaths in quick succession by one after 1 s, 2 s, 4 s … 30 s."""

    def __init__(self) -> None:
        self._deaths = 0

    def died_after(self, lived_s: float) -> float:
        """How long to wait before the next start."""
        if lived_s >= SETTLED_S:
            self._deaths = 0
        self._deaths += 1
        if self._deaths == 1:
            return 0.0
        return min(FIRST_S * 2.0 ** min(self._deaths - 2, 10), LONGEST_S)


class Supervisor:
    """Keeps one worker process running until the foreman stops."""

    def __init__(self, foreman: Foreman) -> None:
        self._foreman = foreman
        self.process: WorkerProcess | None = None
        self._delay = RestartDelay()
        self._abandoned_since_s: float | None = None
        self._is_woken = asyncio.Event()
        self._heartbeat: HeartbeatSender | None = None

    async def run(self) -> None:
        """Until the worker exits and is not replaced."""
        while not self._foreman.is_stopping:
            self.process = process = await WorkerProcess.start(self._foreman.new_setup(), self._foreman.clock)
            self._repeat_stop()
            ending = await self._supervise(process)
            self.process = None
            if not await self._replaces(process, ending):
                return

    def stop(self, *, now: bool) -> None:
        self._is_woken.set()
        if self.process is not None:
            grace_s = 0.0 if now else self._foreman.config.grace_s
            self.process.stop(now=now, patience_s=grace_s + (AT_ONCE_S if now else LAST_S))

    def recycle(self, why: str) -> None:
        """Let the worker finish its jobs, and start another."""
        self._is_woken.set()
        if self.process is not None and self.process.leaving_by_s is None:
            log.info("worker %d is replaced: %s", self.process.pid, why)
            self.stop(now=False)

    def _repeat_stop(self) -> None:
        # A stop while the process was being started found none to send it to.
        if self._foreman.is_stopping:
            self.stop(now=True)

    async def _supervise(self, process: WorkerProcess) -> Ending:
        """Watch one worker from its start to its end, and return its leases."""
        self._heartbeat = None
        heartbeat = asyncio.create_task(self._send_heartbeats(process), name=f"heartbeat-{process.pid}")
        exited = asyncio.create_task(process.process.wait(), name=f"exit-{process.pid}")
        every_s = min(CHECK_S, process.setup.config.lease_s / CHECKS_PER_LEASE)
        try:
            while not exited.done():
                await asyncio.wait({exited}, timeout=every_s)
                if heartbeat.done():
                    heartbeat.result()
                if not exited.done():
                    await self._check(process)
        finally:
            if not exited.done():
                await asyncio.shield(process.end("overstayed"))
            await self._end_heartbeats(heartbeat)
        ending = await process.ended()
        if process.hello is not None and process.is_registered:
            store, clock = await self._foreman.store_for(process.hello), self._foreman.clock
            lease_s = process.setup.config.lease_s
            work = return_leases(store, clock, process.worker, ending, process.board.running(), lease_s)
            returned = asyncio.create_task(work, name=f"leases-{process.pid}")
            self._foreman.await_at_end(returned)
            # A replacement need not wait for a store that does not answer.
            await asyncio.wait({returned}, timeout=1.0)
        return ending

    async def _send_heartbeats(self, process: WorkerProcess) -> None:
        await process.news.wait()
        assert process.hello is not None
        store = await self._foreman.store_for(process.hello)
        self._heartbeat = HeartbeatSender(store, self._foreman.clock, process)
        await self._heartbeat.run()

    async def _end_heartbeats(self, heartbeat: asyncio.Task[None]) -> None:
        if self._heartbeat is not None:
            self._heartbeat.end()
            await asyncio.wait({heartbeat}, timeout=1.0)
        heartbeat.cancel()
        await asyncio.gather(heartbeat, return_exceptions=True)

    async def _check(self, process: WorkerProcess) -> None:
        now_s = self._foreman.clock.monotonic()
        reason = kill_reason(process.health(now_s))
        if reason is not None:
            log.error("worker %d is killed: %s", process.pid, REASONS[reason])
            await process.end(reason)
        elif process.leaving_by_s is not None:
            if now_s > process.leaving_by_s:
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
        is_stopping = self._foreman.is_stopping
        if ending == "left":
            return not is_stopping and process.left is not None and process.left.why != "drained"
        if ending == "refused" and not is_stopping:
            assert process.refused is not None
            if not self._foreman.refused(process.refused):
                return False
        pause_s = self._delay.died_after(process.lived_s)
        if is_stopping:
            following = "it was leaving"
        else:
            following = f"another is started {f'in {pause_s:g} s' if pause_s else 'at once'}"
        if ending != "refused":
            log.error("worker %d %s; %s", process.pid, exit_text(process.process.returncode), following)
        if is_stopping:
            return False
        self._is_woken.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._is_woken.wait()
        return not self._foreman.is_stopping
