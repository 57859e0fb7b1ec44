"""One place for a worker: whoever dies, leaves or is worn out there is replaced, until the foreman says no more.

How soon a worker that died is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Protocol

from fairlane.core.clock import Clock
from fairlane.stores.base import Store
from fairlane.worker.config import WorkerConfig
from fairlane.worker.foreman.health import judge
from fairlane.worker.foreman.heartbeat import Renewer
from fairlane.worker.foreman.losses import Ending, account_for
from fairlane.worker.foreman.messages import Hello, Refused, Setup
from fairlane.worker.foreman.process import WorkerProcess, ending as in_words

FIRST_S, LONGEST_S, SETTLED_S = 1.0, 30.0, 60.0


class Backoff:
    """The first death is answered at once; more of them in short order after 1 s, 2 s, 4 s … 30 s."""

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


log = logging.getLogger("fairlane.foreman")

LOOK_S = 0.5
LOOKS_A_LEASE = 12
LAST_S = 5.0
"""Beyond the grace, for a worker to settle and leave."""
AT_ONCE_S = 3.0

WHY = {
    "stuck": "an attempt ran past twice its timeout",
    "lapsed": "the store had forgotten it while it ran something",
    "untrusted": "its heartbeat could not be renewed in time",
    "silent": "its loop has stopped",
    "not_starting": "its application did not load in time",
    "overstayed": "it did not leave within the grace",
}


class Site(Protocol):
    """What a place needs of its foreman."""

    clock: Clock
    config: WorkerConfig
    is_stopping: bool

    def new_setup(self) -> Setup: ...

    async def store_for(self, hello: Hello) -> Store: ...

    def refused(self, refusal: Refused) -> bool:
        """Whether to try again later."""
        ...

    def account(self, work: asyncio.Task[None]) -> None: ...


class Place:
    def __init__(self, site: Site) -> None:
        self._site = site
        self.process: WorkerProcess | None = None
        self.restarts = 0
        self._backoff = Backoff()
        self._abandoned_since_s: float | None = None
        self._is_woken = asyncio.Event()
        self._renewer: Renewer | None = None

    async def keep(self) -> None:
        """Until the worker here leaves for good."""
        while not self._site.is_stopping:
            self.process = process = await WorkerProcess.start(self._site.new_setup(), self._site.clock)
            self._heed_stopping()
            ending = await self._see_through(process)
            self.process = None
            if not await self._replaces(process, ending):
                return
            self.restarts += 1

    def stop(self, *, now: bool) -> None:
        self._is_woken.set()
        if self.process is not None:
            grace_s = 0.0 if now else self._site.config.grace_s
            self.process.stop(now=now, patience_s=grace_s + (AT_ONCE_S if now else LAST_S))

    def recycle(self, why: str) -> None:
        """Let the worker here finish, and start another."""
        self._is_woken.set()
        if self.process is not None and self.process.leaving_by_s is None:
            log.info("worker %d is replaced: %s", self.process.pid, why)
            self.stop(now=False)

    def _heed_stopping(self) -> None:
        # A stop that came while the process was being started found nobody to tell.
        if self._site.is_stopping:
            self.stop(now=True)

    async def _see_through(self, process: WorkerProcess) -> Ending:
        """Watch over one worker from its start to its end, and give back what it held."""
        self._renewer = None
        renewing = asyncio.create_task(self._renew(process), name=f"renew-{process.pid}")
        exited = asyncio.create_task(process.process.wait(), name=f"exit-{process.pid}")
        every_s = min(LOOK_S, process.setup.config.lease_s / LOOKS_A_LEASE)
        try:
            while not exited.done():
                await asyncio.wait({exited}, timeout=every_s)
                if renewing.done():
                    renewing.result()
                if not exited.done():
                    await self._look(process)
        finally:
            if not exited.done():
                await asyncio.shield(process.end("overstayed"))
            await self._end_renewing(renewing)
        ending = await process.ended()
        if process.hello is not None and process.is_registered:
            store, clock = await self._site.store_for(process.hello), self._site.clock
            lease_s = process.setup.config.lease_s
            work = account_for(store, clock, process.worker, ending, process.board.running(), lease_s)
            accounting = asyncio.create_task(work, name=f"account-{process.pid}")
            self._site.account(accounting)
            # A replacement need not wait for a store that does not answer.
            await asyncio.wait({accounting}, timeout=1.0)
        return ending

    async def _renew(self, process: WorkerProcess) -> None:
        await process.news.wait()
        assert process.hello is not None
        store = await self._site.store_for(process.hello)
        self._renewer = Renewer(store, self._site.clock, process)
        await self._renewer.renew_until_ended()

    async def _end_renewing(self, renewing: asyncio.Task[None]) -> None:
        if self._renewer is not None:
            self._renewer.end()
            await asyncio.wait({renewing}, timeout=1.0)
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)

    async def _look(self, process: WorkerProcess) -> None:
        now_s = self._site.clock.monotonic()
        verdict = judge(process.seen(now_s))
        if verdict is not None:
            log.error("worker %d is killed: %s", process.pid, WHY[verdict])
            await process.end(verdict)
        elif process.leaving_by_s is not None:
            if now_s > process.leaving_by_s:
                log.warning("worker %d is killed: %s", process.pid, WHY["overstayed"])
                await process.end("overstayed")
        else:
            self._look_for_wear(process, now_s)

    def _look_for_wear(self, process: WorkerProcess, now_s: float) -> None:
        cap_mb = process.setup.config.max_memory_mb
        if cap_mb is not None and process.is_registered and (used_mb := process.memory_mb() or 0.0) > cap_mb:
            self.recycle(f"it uses {used_mb:.0f} MB, more than the {cap_mb:g} MB it may")
        if not process.tick.abandoned:
            self._abandoned_since_s = None
        elif self._abandoned_since_s is None:
            self._abandoned_since_s = now_s
        elif now_s - self._abandoned_since_s > process.setup.config.lease_s:
            # A thread that goes on this long with an attempt nobody waits for: only the end of its process ends it.
            self._abandoned_since_s = None
            self.recycle(f"{process.tick.abandoned} of its threads ignore that their attempts were ended")

    async def _replaces(self, process: WorkerProcess, ending: Ending) -> bool:
        """Whether another worker is started here, and not before it is time."""
        is_stopping = self._site.is_stopping
        if ending == "left":
            return not is_stopping and process.left is not None and process.left.why != "drained"
        if ending == "refused" and not is_stopping:
            assert process.refused is not None
            if not self._site.refused(process.refused):
                return False
        pause_s = self._backoff.died_after(process.lived_s)
        if is_stopping:
            following = "it was leaving"
        else:
            following = f"another is started {f'in {pause_s:g} s' if pause_s else 'at once'}"
        if ending != "refused":
            log.error("worker %d %s; %s", process.pid, in_words(process.process.returncode), following)
        if is_stopping:
            return False
        self._is_woken.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._is_woken.wait()
        return not self._site.is_stopping
