"""Keeps worker processes running: one supervisor for each, one store of its own, and the signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from fairlane.client.logs import GuardedLogger
from fairlane.core.chance import Chance, SystemChance
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.ids import WorkerId, uuid7
from fairlane.core.ops import AddEvents, EventDraft, ListWorkers
from fairlane.core.profiles import ProfileName
from fairlane.errors import FairlaneError
from fairlane.stores import import_store, open_store
from fairlane.stores.base import Store
from fairlane.worker.config import WorkerConfig
from fairlane.worker.foreman.code_changes import FileWatcher
from fairlane.worker.foreman.crashes import Crashes, culprits_of
from fairlane.worker.foreman.heartbeat import lapse_gone
from fairlane.worker.foreman.messages import (
    ChildCrash,
    Dump,
    Hello,
    JobKind,
    Loaded,
    Setup,
    StartRefusal,
    Successes,
    ToWorker,
)
from fairlane.worker.foreman.probes import ProbeServer
from fairlane.worker.foreman.supervisor import Supervisor
from fairlane.worker.host_workers import HostWorkers
from fairlane.worker.services import keep

log = GuardedLogger("fairlane.foreman")

CHECK_S = 0.5
RETIRE_S = 5.0
"""How long a stopping foreman tries to reach the store for workers it could not retire yet."""


class ForemanConfig(Struct, frozen=True, kw_only=True):
    app: str
    worker: WorkerConfig
    profile: ProfileName | None = None
    """For an application that names none itself."""
    processes: int = 1
    """As many, if there is a slot for each."""
    reload: bool = False
    probe_host: str = "127.0.0.1"
    probe_port: int | None = None
    """0: any free one."""
    hangup: Literal["replace", "stop"] = "replace"
    """What SIGHUP does to the workers."""
    log_level: int = logging.INFO


class CannotRun(Exception):
    """The application cannot be run as requested: a message in one line, and the code of its error."""

    def __init__(self, refusal: StartRefusal) -> None:
        self.code = refusal.code
        super().__init__(refusal.message)


class Foreman:
    """Keeps workers running until stopped, or until all of them have drained the queues.

    The first one loads the application, and reports how many processes its slots are for: then the others start.
    """

    def __init__(self, config: ForemanConfig, *, clock: Clock | None = None, chance: Chance | None = None) -> None:
        self.settings, self.config = config, config.worker
        self.clock, self._chance = clock or SystemClock(), chance or SystemChance()
        self.is_stopping = False
        self.checked_s = self.clock.monotonic()
        """When this loop last ran; the liveness probe reads it."""
        self.supervisors = [Supervisor(self, 0)]
        """By number."""
        self._beside: set[Supervisor] = set()
        """A successor that starts a worker, and supervisors whose workers leave."""
        self._group = asyncio.TaskGroup()
        self._outdated: asyncio.Queue[tuple[Supervisor, str]] = asyncio.Queue()
        """Supervisors whose workers are to be replaced, one after the other, and why."""
        self.crashes = Crashes(self.clock)
        self.probes = ProbeServer(self)
        self._store: Store | None = None
        self._opening = asyncio.Lock()
        self._refusal: StartRefusal | None = None
        self._unfinished: set[asyncio.Task[None]] = set()
        self._helpers: list[asyncio.Task[None]] = []
        self._watcher = FileWatcher()

    async def run(self, *, handles_signals: bool = True) -> None:
        """Until every worker has exited. Raises `CannotRun` when the application could not be run from the start.

        Signals reach only a process's main thread; elsewhere, call `stop` on its loop.
        """
        loop = asyncio.get_running_loop()
        signals = self._signals() if handles_signals else {}
        for number, act in signals.items():
            loop.add_signal_handler(number, act)
        try:
            serving = self.probes.serving(self.settings.probe_host, self.settings.probe_port)
            async with serving, self._group:
                for supervisor in self.supervisors:
                    self._group.create_task(supervisor.run())
                for name, run in (("checks", self._check), ("replacements", self._replace_outdated)):
                    kept = keep(f"the foreman's loop of {name}", run, is_ending=lambda: self.is_stopping, log=log)
                    self._helpers.append(loop.create_task(kept, name=name))
        finally:
            self.is_stopping = True
            for helper in self._helpers:
                helper.cancel()
            await asyncio.gather(*self._helpers, return_exceptions=True)
            await self._retire_workers()
            for number in signals:
                loop.remove_signal_handler(number)
        if self._refusal is not None:
            raise CannotRun(self._refusal)

    def stop(self) -> None:
        """The first call ends claims and gives running jobs the grace; the second stops at once."""
        now, self.is_stopping = self.is_stopping, True
        log.info(
            "stopping at once" if now else "stopping: running jobs have %g s; a second signal ends it at once",
            *(() if now else (self.config.grace_s,)),
        )
        for supervisor in self._all():
            supervisor.stop(now=now)

    def replace_all(self, why: str) -> None:
        """Replace every worker, one after the other: each stops when its successor runs jobs."""
        for supervisor in self._all():
            self._outdated.put_nowait((supervisor, why))

    def dump(self) -> None:
        self._send(Dump())

    def learn(self, report: ChildCrash | Successes | Loaded) -> None:
        """What a worker reports of jobs that crash processes, or no longer do; and what its store and slots are."""
        if isinstance(report, Loaded):
            self._fit(report.processes)
            if self._store is None:  # imported while the worker does the same: its heartbeat is sent 80 ms earlier
                asyncio.get_running_loop().run_in_executor(None, import_store, report.url)
            return
        if isinstance(report, ChildCrash):
            self.crashed((report.kind,), alone=True)
            return
        trusted = tuple(kind for kind, count in report.counts if self.crashes.succeed(kind, count))
        self._trust(trusted)

    async def crashed_together(self, kinds: tuple[JobKind, ...], code: int | None) -> None:
        """A worker died with this code while it ran these kinds of jobs."""
        figures: list[dict[str, float]] = []
        with contextlib.suppress(FairlaneError):
            if self._store is not None:
                figures = [worker.figures for worker in (await self._store.arun(ListWorkers())).workers]
        culprits = culprits_of(kinds, code, figures)
        self.crashed(tuple(culprits), alone=True)
        self.crashed(tuple(set(kinds) - culprits), alone=False)

    def crashed(self, kinds: tuple[JobKind, ...], *, alone: bool) -> None:
        """A process died that ran these kinds of jobs."""
        if not kinds:
            return
        isolated = self.crashes.add(kinds, alone=alone)
        said = 'task "%s" of tenant "%s" keeps crashing processes: its jobs run isolated until they behave'
        self._publish(isolated, "task_isolated", said)
        self._send(self.crashes.suspects())

    def _fit(self, processes: int) -> None:
        """Start or end workers: as many run as there are slots for, also after code or settings have changed."""
        spare = self.supervisors[processes:]
        del self.supervisors[processes:]
        self._beside = {one for one in (*self._beside, *spare) if not one.ended.is_set()}
        for one in spare:
            one.retire()
        while len(self.supervisors) < processes and not self.is_stopping:
            supervisor = Supervisor(self, len(self.supervisors))
            self.supervisors.append(supervisor)
            self._group.create_task(supervisor.run())

    def new_setup(self, number: int) -> Setup:
        entropy = self._chance.entropy(10)
        worker = WorkerId(uuid7(int(self.clock.now().timestamp() * 1000), entropy))
        return Setup(
            worker=worker,
            app=self.settings.app,
            config=self.config,
            profile=self.settings.profile,
            number=number,
            processes=self.settings.processes,
            reports_files=self.settings.reload,
            log_level=self.settings.log_level,
            suspects=self.crashes.suspects(),
            waits=self._store is not None,
        )

    async def store_for(self, hello: Hello) -> Store:
        """The foreman's own connection to the application's store, opened with the first hello."""
        async with self._opening:
            self._watcher.follow(hello.files)
            if self._store is None:
                for line in hello.introduction:
                    log.info("%s", line)
                place = hello.store
                self._store = await asyncio.to_thread(
                    lambda: open_store(
                        place.url,
                        schema=place.schema,
                        sqlite_library=place.sqlite_library,
                        statement_timeout_s=place.statement_timeout_s,
                        key_prefix=place.key_prefix,
                        health_check_timeout_s=place.health_check_timeout_s,
                    )
                )
                lapsing = lapse_gone(self._store, self.host_workers(hello))
                self._helpers.append(asyncio.create_task(lapsing, name="gone-workers"))
            return self._store

    def has_ready_worker(self) -> bool:
        return any(one.process is not None and one.process.is_ready for one in self._all())

    def host_workers(self, hello: Hello) -> HostWorkers:
        return HostWorkers(self.clock, hello.store.url, hello.store.schema, hello.store.key_prefix)

    def refused(self, refusal: StartRefusal, *, is_last_try: bool) -> bool:
        """A worker refused to start; whether to try again later."""
        if is_last_try:
            log.error("a worker could not start, the one it was to replace goes on: %s", refusal.message)
            return False
        if self._store is not None:
            # It ran before: broken code may be fixed, a password put right.
            log.error("a worker could not start, another is tried later: %s", refusal.message)
            return True
        if self._refusal is None:
            self._refusal = refusal
            self.is_stopping = True
            for supervisor in self._all():
                supervisor.stop(now=True)
        return False

    def await_at_end(self, work: asyncio.Task[None]) -> None:
        self._unfinished.add(work)
        work.add_done_callback(self._unfinished.discard)

    def _signals(self) -> dict[signal.Signals, Callable[[], None]]:
        return {
            signal.SIGTERM: self.stop,
            signal.SIGINT: self.stop,
            signal.SIGHUP: self.stop if self.settings.hangup == "stop" else lambda: self.replace_all("SIGHUP"),
            signal.SIGUSR1: self.dump,
        }

    def _all(self) -> list[Supervisor]:
        return [*self.supervisors, *self._beside]

    def _send(self, message: ToWorker) -> None:
        for supervisor in self._all():
            if supervisor.process is not None:
                supervisor.process.send(message)

    def _trust(self, kinds: tuple[JobKind, ...]) -> None:
        said = 'task "%s" of tenant "%s" crashes nothing any more: its jobs share processes again'
        self._publish(kinds, "task_trusted", said)

    def _publish(self, kinds: tuple[JobKind, ...], event: str, said: str) -> None:
        """Log it and write it to the event stream."""
        if not kinds:
            return
        for kind in kinds:
            log.warning(said, kind.type, kind.tenant)
        self._send(self.crashes.suspects())
        for supervisor in self._all():
            if supervisor.process is not None:
                supervisor.process.news.set()  # its figures say so to other foremen
        events = tuple(EventDraft(kind=event, tenant=kind.tenant, data={"type": kind.type}) for kind in kinds)
        self.await_at_end(asyncio.create_task(self._add(events), name=event))

    async def _add(self, events: tuple[EventDraft, ...]) -> None:
        try:
            if self._store is not None:
                await self._store.arun(AddEvents(events=events))
        except FairlaneError as error:
            log.warning("the event %s was not written: %s", events[0].kind, error)

    async def _replace_outdated(self) -> None:
        while True:
            old, why = await self._outdated.get()
            if old not in self.supervisors or old.ended.is_set() or self.is_stopping:
                continue
            log.info("worker %s is replaced: %s", "?" if old.process is None else old.process.pid, why)
            successor = Supervisor(self, old.number, is_successor=True)
            self._beside.add(successor)
            running = self._group.create_task(successor.run())
            ready = asyncio.create_task(successor.ready.wait())
            await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
            ready.cancel()
            if running.done() or old not in self.supervisors:
                successor.retire()
                while not self._outdated.empty():
                    self._outdated.get_nowait()  # they would fare no better
            else:
                self.supervisors[old.number] = successor
                self._beside = (self._beside | {old}) - {successor}
                old.retire()
                await old.ended.wait()

    async def _check(self) -> None:
        while True:
            self.checked_s = self.clock.monotonic()
            self._trust(self.crashes.forget_old())
            if self.settings.reload and (changed := await asyncio.to_thread(self._watcher.changed)):
                self.replace_all(f"{changed[0]} has changed")
            await asyncio.sleep(CHECK_S)

    async def _retire_workers(self) -> None:
        if self._unfinished:
            await asyncio.wait(self._unfinished, timeout=RETIRE_S)
        for work in list(self._unfinished):
            work.cancel()
        if self._store is not None:
            await self._store.aclose()
