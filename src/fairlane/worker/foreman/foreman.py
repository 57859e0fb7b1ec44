"""The foreman itself: so many places, one store of its own, and signals."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from fairlane.core.chance import Chance, SystemChance
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.ids import WorkerId, uuid7
from fairlane.stores import open_store
from fairlane.stores.base import Store
from fairlane.worker.config import WorkerConfig
from fairlane.worker.foreman.code_changes import FileWatcher
from fairlane.worker.foreman.messages import Dump, Hello, Refused, Setup
from fairlane.worker.foreman.place import Place
from fairlane.worker.foreman.probes import Prober

log = logging.getLogger("fairlane.foreman")

LOOK_S = 0.5
SIGN_OFF_S = 5.0
"""How long a leaving foreman tries to reach the store for workers it could not sign off yet."""


class ForemanConfig(Struct, frozen=True, kw_only=True):
    app: str
    worker: WorkerConfig
    processes: int = 1
    reload: bool = False
    probe_host: str = "127.0.0.1"
    probe_port: int | None = None
    """0: any free one."""
    hangup: Literal["replace", "stop"] = "replace"
    """What SIGHUP does to the workers."""
    log_level: int = logging.INFO


class CannotRun(Exception):
    """The application cannot be run as asked: one line for people, and the code of the error behind it."""

    def __init__(self, refusal: Refused) -> None:
        self.code = refusal.code
        super().__init__(refusal.message)


class Foreman:
    """Keeps `processes` workers alive until told to stop, or until all of them have drained the queues."""

    def __init__(self, config: ForemanConfig, *, clock: Clock | None = None, chance: Chance | None = None) -> None:
        self.settings, self.config = config, config.worker
        self.clock, self._chance = clock or SystemClock(), chance or SystemChance()
        self.is_stopping = False
        self.looked_s = self.clock.monotonic()
        """When this loop last looked around: what liveness is judged by."""
        self.places = [Place(self) for _ in range(config.processes)]
        self.prober = Prober(self)
        self._store: Store | None = None
        self._opening = asyncio.Lock()
        self._refusal: Refused | None = None
        self._accounting: set[asyncio.Task[None]] = set()
        self._watcher = FileWatcher()

    async def run(self, *, hears_signals: bool = True) -> None:
        """Until everybody has left. Raises `CannotRun` when the application could not be run from the start.

        Signals are heard in a process's main thread alone; elsewhere, call `stop` on its loop.
        """
        loop = asyncio.get_running_loop()
        signals = self._signals() if hears_signals else {}
        for number, act in signals.items():
            loop.add_signal_handler(number, act)
        looking = asyncio.create_task(self._look_around(), name="foreman")
        try:
            probes = self.prober.serving(self.settings.probe_host, self.settings.probe_port)
            async with probes, asyncio.TaskGroup() as group:
                for place in self.places:
                    group.create_task(place.keep())
        finally:
            looking.cancel()
            await self._sign_off()
            for number in signals:
                loop.remove_signal_handler(number)
        if self._refusal is not None:
            raise CannotRun(self._refusal)

    def stop(self) -> None:
        """The first time: claims end and running jobs get the grace. Again: at once."""
        now, self.is_stopping = self.is_stopping, True
        log.info(
            "stopping at once" if now else "stopping: running jobs have %g s; a second signal ends it at once",
            *(() if now else (self.config.grace_s,)),
        )
        for place in self.places:
            place.stop(now=now)

    def replace_all(self, why: str) -> None:
        """Another worker in every place, each once the one there has finished what it runs."""
        for place in self.places:
            place.recycle(why)

    def dump(self) -> None:
        for place in self.places:
            if place.process is not None:
                place.process.tell(Dump())

    def new_setup(self) -> Setup:
        entropy = self._chance.entropy(10)
        worker = WorkerId(uuid7(int(self.clock.now().timestamp() * 1000), entropy))
        return Setup(
            worker=worker,
            app=self.settings.app,
            config=self.config,
            reports_files=self.settings.reload,
            log_level=self.settings.log_level,
        )

    async def store_for(self, hello: Hello) -> Store:
        """The foreman's own way to the application's store, opened with the first hello."""
        async with self._opening:
            self._watcher.follow(hello.files)
            if self._store is None:
                place = hello.store
                self._store = await asyncio.to_thread(
                    lambda: open_store(
                        place.url,
                        schema=place.schema,
                        sqlite_library=place.sqlite_library,
                        statement_timeout_s=place.statement_timeout_s,
                    )
                )
            return self._store

    def refused(self, refusal: Refused) -> bool:
        if self._store is not None:
            # It has run before: new code may be mended, an absent store comes back.
            log.error("a worker could not start, another is tried later: %s", refusal.message)
            return True
        if self._refusal is None:
            self._refusal = refusal
            self.is_stopping = True
            for place in self.places:
                place.stop(now=True)
        return False

    def account(self, work: asyncio.Task[None]) -> None:
        self._accounting.add(work)
        work.add_done_callback(self._accounting.discard)

    def _signals(self) -> dict[signal.Signals, Callable[[], None]]:
        return {
            signal.SIGTERM: self.stop,
            signal.SIGINT: self.stop,
            signal.SIGHUP: self.stop if self.settings.hangup == "stop" else lambda: self.replace_all("SIGHUP"),
            signal.SIGUSR1: self.dump,
        }

    async def _look_around(self) -> None:
        while True:
            self.looked_s = self.clock.monotonic()
            if self.settings.reload and (changed := await asyncio.to_thread(self._watcher.changed)):
                self.replace_all(f"{changed[0]} has changed")
            await asyncio.sleep(LOOK_S)

    async def _sign_off(self) -> None:
        if self._accounting:
            await asyncio.wait(self._accounting, timeout=SIGN_OFF_S)
        for work in list(self._accounting):
            work.cancel()
        if self._store is not None:
            await self._store.aclose()
