"""A worker inside the application's own process: for small deployments, notebooks and tests.

    with app.running():            an event loop in a thread of its own
    async with app.running():      on the caller's event loop, as inside an ASGI application

The heartbeat is kept by another thread. Nothing here can be killed but the whole process: code that holds the interpreter lock longer
than the lease loses it, and what it then settles is refused. `fairlane worker` has no such limit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from fairlane.client.app import Fairlane
from fairlane.core.ids import WorkerId
from fairlane.core.ops import Renew, Retire
from fairlane.errors import FairlaneError
from fairlane.worker.config import WorkerConfig, profile_config
from fairlane.worker.engine import Engine
from fairlane.worker.foreman.health import trusted_s
from fairlane.worker.lanes import ANY, Lane
from fairlane.worker.shutdown import run_and_leave
from fairlane.worker.state import known_queues
from fairlane.worker.statistics import FIGURES_S, Figures

log = logging.getLogger("fairlane.worker")

RETRY_S = 0.5


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
    """A worker for this application, to be entered; `drain`: leaving waits until nothing is ready and nothing runs."""
    base = config or profile_config(app.runtime.settings.profile)
    if slots is not None or queues is not None:
        lane = Lane("general", slots or sum(lane.slots for lane in base.lanes), tuple(queues or (ANY,)))
        base = replace(base, lanes=(lane,), batch=None)
    for name in types or ():
        app.tasks.require(name)
    base = replace(
        base,
        drain=drain or base.drain,
        types=tuple(types or base.types),
        grace_s=base.grace_s if grace is None else grace,
    )
    return EmbeddedWorker(app, base)


class Heartbeat:
    """Renews from a thread of its own, so that a busy loop does not starve it."""

    def __init__(self, app: Fairlane, engine: Engine, figures: Figures, lost: Callable[[], None]) -> None:
        self._app, self._engine, self._figures, self._lost = app, engine, figures, lost
        self._config, self._worker = engine.desk.config, engine.desk.worker
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="fairlane-heartbeat", daemon=True)
        self._renewed_s = 0.0

    def start(self) -> None:
        """Register; raises what keeps the store from answering."""
        self._renew()
        self._thread.start()

    def end(self) -> None:
        """Stop renewing and sign off: what is still leased goes back."""
        self._ended.set()
        self._thread.join()
        try:
            self._app.runtime.store.run(Retire(worker=self._worker))
        except FairlaneError as error:
            log.warning("could not sign off, jobs left behind wait for the heartbeat to lapse: %s", error)

    def _beat(self) -> None:
        every_s, monotonic = self._config.lease_s / 3, self._app.runtime.clock.monotonic
        pause_s = min(RETRY_S, every_s)  # soon once more: the wake address is known by then
        while not self._ended.wait(pause_s):
            try:
                self._renew()
                pause_s = every_s
            except Exception as error:  # noqa: BLE001 - a heartbeat: whatever it was, the next try may reach the store
                pause_s = min(RETRY_S, every_s)
                if monotonic() - self._renewed_s > trusted_s(self._config.lease_s):
                    log.warning("the heartbeat could not be renewed, what runs is stopped before it lapses: %s", error)
                    self._lost()

    def _renew(self) -> None:
        desk, sent_s = self._engine.desk, self._app.runtime.clock.monotonic()
        queues = tuple(queue for lane in self._config.lanes for queue in lane.queues)
        answer = self._app.runtime.store.run(
            Renew(
                worker=self._worker,
                lease_s=self._config.lease_s,
                name=f"{socket.gethostname()}:{os.getpid()}",
                queues=known_queues(self._app, queues),
                types=tuple(sorted(desk.tasks)),
                wake_address=self._engine.wake_address,
                figures=self._figures.latest,
            )
        )
        if answer.fresh and self._renewed_s:
            log.warning("the store had forgotten this worker: what runs here has lost its leases")
            self._lost()
        self._renewed_s = sent_s


class EmbeddedWorker:
    """Enter it to run jobs, leave it to stop: claims end, running jobs get the grace, everything is settled."""

    def __init__(self, app: Fairlane, config: WorkerConfig) -> None:
        self._app, self._config = app, config
        self._engine: Engine | None = None
        self._heartbeat: Heartbeat | None = None
        self._task: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._thread is not None
        if not self._config.drain or error is not None:
            self.stop()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    async def __aenter__(self) -> Self:
        await self._start()
        assert self._engine is not None
        self._task = asyncio.create_task(self._engine.run(), name="fairlane-worker")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._task is not None
        if not self._config.drain or error is not None:
            self.stop()
        try:
            await self._task
        finally:
            await self._end()

    def stop(self) -> None:
        """Begin to leave; may be called from any thread."""
        if self._loop is not None and self._engine is not None:
            self._on_loop(self._engine.stop)

    async def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._engine = Engine(self._app, self._config, WorkerId(self._app.runtime.new_job_id()))
        figures = Figures(self._engine, self._app.runtime.clock)
        figures.measure()
        self._heartbeat = Heartbeat(self._app, self._engine, figures, lambda: self._on_loop(self._abandon))
        await asyncio.to_thread(self._heartbeat.start)
        self._measuring = asyncio.create_task(self._measure(figures), name="fairlane-figures")

    async def _measure(self, figures: Figures) -> None:
        every_s = min(FIGURES_S, self._config.lease_s / 3)
        while True:
            await asyncio.sleep(every_s)
            figures.measure()

    async def _end(self) -> None:
        assert self._heartbeat is not None
        assert self._measuring is not None
        self._measuring.cancel()
        await asyncio.gather(self._measuring, return_exceptions=True)
        await asyncio.to_thread(self._heartbeat.end)

    def _serve(self, ready: threading.Event) -> None:
        async def live() -> None:
            await self._start()
            ready.set()
            assert self._engine is not None
            try:
                await self._engine.run()
            finally:
                await self._end()

        try:
            run_and_leave(live())
        except BaseException as error:  # noqa: BLE001 - a thread: handed to whoever entered or leaves the block
            self._error = error
        finally:
            ready.set()

    def _abandon(self) -> None:
        """Stop every attempt: the right to run them is ending."""
        assert self._engine is not None
        now_s = self._app.runtime.clock.monotonic()
        for slot in self._engine.desk.slots:
            slot.stop("lease_lost", now_s)
        for state in self._engine.desk.lanes:
            self._engine.desk.give_back(state, lambda _: True)

    def _on_loop(self, act: Callable[[], None]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:
            return  # the loop is gone: so is everything it ran
