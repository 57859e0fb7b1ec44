"""Runs a worker inside the application's own process: for small deployments, notebooks and tests.

    with app.running():            an event loop in a thread of its own
    async with app.running():      on the caller's event loop, as inside an ASGI application

Another thread sends the heartbeat. An attempt cannot be killed without the whole process: code that holds the
interpreter lock longer than the lease loses the lease, and its outcome is refused. `fairlane worker` has no such
limit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Self

from msgspec.structs import replace

from fairlane.client.app import Fairlane
from fairlane.client.logs import GuardedLogger
from fairlane.core.ids import WorkerId
from fairlane.errors import StoreClosed
from fairlane.worker.config import WorkerConfig
from fairlane.worker.engine import Engine
from fairlane.worker.heartbeat import FIGURES_S, HeartbeatThread, WorkerFigures
from fairlane.worker.services import keep
from fairlane.worker.shutdown import run_to_end

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
        app.tasks.require(name)
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
        self._app, self._config = app, config
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
        if not self._config.drain or error is not None:
            self.stop()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    async def __aenter__(self) -> Self:
        await self._start()
        self._task = asyncio.create_task(self._run(), name="fairlane-worker")
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        assert self._task is not None
        if not self._config.drain or error is not None:
            self.stop()
        await self._task
        if self._error is not None and error is None:
            raise self._error

    def stop(self) -> None:
        """Start stopping; may be called from any thread."""
        self._is_ending = True
        if self._loop is not None and (engine := self._engine) is not None:
            self._on_loop(engine.stop)

    async def _run(self) -> None:
        """Run the engine. One that fails is retired, which returns its leases, and replaced."""
        await keep("the worker", self._run_engine, is_ending=lambda: self._is_ending, log=log)

    async def _run_engine(self) -> None:
        if self._engine is None:
            await self._start()
        engine = self._engine
        assert engine is not None
        try:
            if self._is_ending:
                engine.stop()
            await engine.run()
            self._is_ending = True
        except asyncio.CancelledError:
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
        await asyncio.to_thread(self._heartbeat.start)
        self._engine = engine
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

    def _on_loop(self, act: Callable[[], None]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:
            return  # the loop is closed, and everything it ran has ended
