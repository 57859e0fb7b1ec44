"""Runs a worker inside the application's own process: for small deployments, notebooks and tests.

    with app.running():            an event loop in a thread of its own
    async with app.running():      on the caller's event loop, as inside an ASGI application

Another thread sends the heartbeat. An attempt cannot be killed without the whole process: code that holds the
interpreter lock longer than the lease loses the lease, and its outcome is refused. `fairlane worker` has no such
limit. A worker runs spooled jobs the same way while its store is away.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from fairlane.client.app import Fairlane
from fairlane.client.logs import GuardedLogger
from fairlane.client.settings.alerts import AlertSettings
from fairlane.core.ids import WorkerId
from fairlane.core.ops import ALL_TENANTS, Enqueue, GetJob
from fairlane.errors import StoreClosed
from fairlane.stores import open_store
from fairlane.worker.config import WorkerConfig, introduction
from fairlane.worker.engine import Engine
from fairlane.worker.heartbeat import FIGURES_S, HeartbeatThread, WorkerFigures
from fairlane.worker.services import keep
from fairlane.worker.shutdown import run_to_end
from fairlane.worker.state import WorkerState

if TYPE_CHECKING:
    from fairlane.stores.failover import Failover
    from fairlane.stores.failover.spool import SpooledJob

log = GuardedLogger("fairlane.worker")


def running(
    app: Fairlane,
    *,
    slots: int | None = None,
    queues: Sequence[str] | None = None,
    types: Sequence[str] | None = None,
    drain: bool = False,
    grace: float | None = None,
    config: WorkerConfig | None = None,
) -> EmbeddedWorker:
    """A worker to be entered; with `drain`, leaving waits until nothing is ready and nothing runs."""
    base = config or WorkerConfig()
    if slots is not None or queues is not None:
        base = replace(base, lanes=(), slots=slots, queues=tuple(queues or ()), batch=None)
    for name in types or ():
        _ = app.tasks[name]  # raises for one that is unknown
    base = replace(
        base,
        drain=drain or base.drain,
        types=tuple(types or base.types),
        grace_s=base.grace_s if grace is None else grace,
    )
    return EmbeddedWorker(app, base)


class EmbeddedWorker:
    """Enter it to run jobs; on leaving, claims end, running jobs get the grace, and everything is settled."""

    def __init__(self, app: Fairlane, config: WorkerConfig) -> None:
        self._app, self._drain, self._config = app, config.drain, replace(config, drain=False)
        self._is_draining = False
        self._engine: Engine | None = None
        self._heartbeat: HeartbeatThread | None = None
        self._task: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None
        self._is_ending = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="fairlane-worker", daemon=True)
        self._thread.start()
        ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        assert self._thread is not None
        self._leave(error)
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    async def __aenter__(self) -> Self:
        await self._start()
        self._task = asyncio.create_task(self._run(), name="fairlane-worker")
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        assert self._task is not None
        self._leave(error)
        await self._task
        if self._error is not None and error is None:
            raise self._error

    def stop(self) -> None:
        """Start stopping; may be called from any thread."""
        self._is_ending = True
        if self._loop is not None and (engine := self._engine) is not None:
            self._on_loop(engine.stop)

    def _leave(self, error: BaseException | None) -> None:
        """Drain only now: a job that is enqueued within the block runs, however late."""
        if not self._drain or error is not None:
            self.stop()
            return
        self._is_draining = True
        if (engine := self._engine) is not None:
            self._on_loop(engine.drain)

    async def _run(self) -> None:
        """Run the engine. One that fails is retired, which returns its leases, and replaced."""
        await keep("the worker", self._run_engine, is_ending=lambda: self._is_ending, log=log)

    async def _run_engine(self) -> None:
        if self._engine is None:
            await self._start()
        engine = self._engine
        assert engine is not None
        try:
            if self._is_draining:
                engine.drain()
            if self._is_ending:
                engine.stop()
            await engine.run()
            self._is_ending = True
        except asyncio.CancelledError:
            if not self._is_ending:
                log.warning(
                    "the worker was cancelled with its asyncio task: it claims nothing until it is started again"
                )
            self._is_ending = True
            raise
        except StoreClosed as error:
            self._error, self._is_ending = error, True
        finally:
            await self._end()

    async def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        engine = Engine(self._app, self._config, WorkerId(self._app.runtime.new_job_id()))
        figures = WorkerFigures(engine, self._app.runtime.clock)
        figures.measure()
        abandon = partial(self._abandon, engine)
        self._heartbeat = HeartbeatThread(self._app, engine, figures, lambda: self._on_loop(abandon))
        waits = bool(self._app.runtime.settings.wait_for_store) and not self._drain
        await asyncio.to_thread(partial(self._heartbeat.start, waits=waits))
        self._engine = engine
        for line in introduction(self._app, engine.state.config):
            log.debug("%s", line)
        self._measuring = engine.keep("fairlane-figures", partial(self._measure, figures))

    async def _measure(self, figures: WorkerFigures) -> None:
        every_s = min(FIGURES_S, self._config.lease_s / 3)
        while True:
            await asyncio.sleep(every_s)
            figures.measure()

    async def _end(self) -> None:
        assert self._heartbeat is not None
        assert self._measuring is not None
        self._engine = None
        self._measuring.cancel()
        await asyncio.gather(self._measuring, return_exceptions=True)
        await asyncio.to_thread(self._heartbeat.end)

    def _serve(self, ready: threading.Event) -> None:
        async def live() -> None:
            await self._start()
            ready.set()
            await self._run()

        try:
            run_to_end(live())
        except BaseException as error:  # noqa: BLE001 - a thread: raised to the caller that enters or leaves the block
            self._error = error
        finally:
            ready.set()

    @staticmethod
    def _abandon(engine: Engine) -> None:
        """Stop every attempt: their leases are about to end."""
        for slot in engine.state.slots:
            slot.stop("lease_lost")
        for lane in engine.state.lanes:
            engine.state.give_back(lane, lambda _: True)
            lane.give_back_gathered()

    def _on_loop(self, act: Callable[[], None]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:
            return  # the loop is closed, and everything it ran has ended


SPOOL_LOOK_S = 0.25
SPOOL_PAGE = 1_000
MOST_TAKEN = 200
"""Spooled jobs taken at once: what a process that dies would leave to run again."""


class SpooledJobs:
    """Runs spooled jobs in this worker while their store is away, by setting (`run_spooled`).

    They run on a store in memory, under the rules of the application. One that completes leaves the spool; one that
    fails, or has not ended when the store is back and the grace is over, is left to the replay and runs there with all
    its attempts. If this process dies, so are those it had taken. One process of a machine does this at a time.
    """

    def __init__(self, state: WorkerState, failover: Failover) -> None:
        self._state, self._failover, self._spool = state, failover, failover.spool

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(SPOOL_LOOK_S)
            if self._failover.is_away:
                with self._spool.running() as ours:
                    if ours:
                        await LocalRun(self._state, self._failover).run()


class LocalRun:
    """One time that the store is away."""

    def __init__(self, state: WorkerState, failover: Failover) -> None:
        self._state, self._failover, self._spool = state, failover, failover.spool
        self._app = local_application(state.app)
        self._held: dict[int, SpooledJob] = {}
        self._failed: set[int] = set()
        self._after = 0
        self._stepping, self._is_over = threading.Lock(), False

    async def run(self) -> None:
        log.warning("the store is away: spooled jobs run in this worker until it is back")
        try:
            async with running(self._app, config=self._state.config):
                while self._failover.is_away:
                    await asyncio.to_thread(self._step)
                    await asyncio.sleep(SPOOL_LOOK_S)
        finally:
            with self._stepping:  # a step that was under way when this was cancelled ends in its thread
                self._collect()
                self._spool.give_back(self._held.values())
                self._is_over = True
            await self._app.aclose()

    def _step(self) -> None:
        with self._stepping, self._spool.replaying() as ours:
            if not self._is_over:
                self._collect()
                if ours and len(self._held) < MOST_TAKEN:
                    self._feed(self._state.app.runtime.clock.now())

    def _feed(self, now: datetime) -> None:
        page = self._spool.page(self._after, SPOOL_PAGE)
        self._after = page[-1].seq if page else 0
        jobs = [job for job in page if self._may_run(job, now)][: MOST_TAKEN - len(self._held)]
        if jobs and jobs[-1] is not page[-1]:
            self._after = jobs[-1].seq
        self._spool.take(jobs)
        self._held.update((job.seq, job) for job in jobs)
        for job in jobs:
            # One attempt: what fails here has all of its attempts where people look for it.
            spec = replace(job.as_of(now), max_attempts=1, retry=None)
            [receipt] = self._app.runtime.store.run(Enqueue(jobs=(spec,))).receipts
            if receipt.id != spec.id:
                self._failed.add(job.seq)

    def _may_run(self, job: SpooledJob, now: datetime) -> bool:
        spec = job.as_of(now)
        is_due = spec.run_at <= now if spec.run_at is not None else not spec.delay_s
        return is_due and not job.sent and spec.type in self._state.tasks and job.seq not in self._failed

    def _collect(self) -> None:
        """Remove completed jobs from the spool; leave those that failed to the replay."""
        done, failed = [], []
        for job in self._held.values():
            found = self._app.runtime.store.run(GetJob(id=job.spec.id, scope=ALL_TENANTS))
            status = None if found is None else found.job.status
            if status in ("completed", "cancelled"):
                done.append(job)
            elif status == "dead" or job.seq in self._failed:
                failed.append(job)
        self._spool.remove(done)
        self._spool.give_back(failed)
        self._failed.update(job.seq for job in failed)
        for job in (*done, *failed):
            del self._held[job.seq]


def local_application(app: Fairlane) -> Fairlane:
    """The same tasks, limits and rules on an empty store in memory; no schedules and no alerts."""
    theirs = app.runtime
    settings = replace(
        theirs.settings, url="memory://", spool=None, run_spooled=False, alerts=AlertSettings(enabled=False)
    )
    local = Fairlane(
        settings=settings,
        store=open_store("memory://", clock=theirs.clock, sqlite_library=settings.sqlite_library),
        clock=theirs.clock,
        chance=theirs.chance,
    )
    ours = local.runtime
    ours.tasks, ours.limits, ours.classifier = dict(theirs.tasks), theirs.limits, theirs.classifier
    ours.preparer, ours.last_exceptions, ours.has_resources = (
        theirs.preparer,
        theirs.last_exceptions,
        theirs.has_resources,
    )
    for task in ours.tasks.values():
        if task.definition.breaker is not None:
            ours.circuits.declare(task.definition.breaker)
    return local
