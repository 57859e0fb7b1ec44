"""A worker process under a foreman: `python -m fairlane.worker.foreman.child SOCKET BOARD PARENT`.

What a worker says of itself, twice a second.

Whether an application can be run as asked: every mistake ends in one clear line before anything is claimed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Literal

from fairlane.client.app import Fairlane
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.ops import Check
from fairlane.errors import ConfigError, FairlaneError, StoreUnavailable, UnknownTask, nearest
from fairlane.stores.url import redacted
from fairlane.worker.application import load_application
from fairlane.worker.board import Board
from fairlane.worker.config import WorkerConfig
from fairlane.worker.engine import Engine
from fairlane.worker.foreman.code_changes import loaded_files
from fairlane.worker.foreman.heap import write_dump
from fairlane.worker.foreman.messages import (
    LOG_FORMAT,
    Dump,
    Hello,
    Left,
    Refused,
    Registered,
    Setup,
    Stop,
    StorePlace,
    Tick,
    ToWorker,
)
from fairlane.worker.foreman.tether import Tether
from fairlane.worker.isolated.child import die_with
from fairlane.worker.lanes import ANY
from fairlane.worker.shutdown import run_and_leave
from fairlane.worker.state import known_queues
from fairlane.worker.statistics import Figures


def check_application(app: Fairlane, config: WorkerConfig) -> None:
    """Raises what is wrong with the application, its flags or its store."""
    if not app.tasks:
        raise ConfigError(
            f'app = "{config.app}" has no tasks: nothing would ever run; did you import the modules that define them?'
        )
    for name in config.types:
        if name not in app.tasks:
            raise UnknownTask(name, app.tasks)
    known = known_queues(app, (ANY,))
    for lane in config.lanes:
        for queue in lane.queues:
            if queue != ANY and queue not in known:
                raise ConfigError(
                    f'lane "{lane.name}": no queue "{queue}" among those of settings and tasks '
                    f"({', '.join(known)}).{nearest(queue, known)}"
                )
    if app.runtime.settings.url.lower().startswith("memory:"):
        raise ConfigError(
            f"url = {app.runtime.settings.url} ({app.runtime.settings.source('url')}) lives in one process, and workers have processes of "
            "their own: give a url such as sqlite:///fairlane.db, or run jobs in this process with `app.running()`"
        )
    app.runtime.settings.alerts.require_extra()
    app.runtime.store.run(Check())
    migrator = app.runtime.store.migrator()
    if migrator is not None:
        migrator.require()
    if app.runtime.store.name == "memory":
        raise StoreUnavailable(
            app.runtime.settings.url.partition(":")[0],
            f"{redacted(app.runtime.settings.url)} did not answer, and a worker does not fall back to memory",
        )


def store_place(app: Fairlane) -> StorePlace:
    settings = app.runtime.settings
    return StorePlace(
        url=settings.url,
        schema=settings.schema,
        sqlite_library=settings.sqlite_library,
        statement_timeout_s=settings.statement_timeout_s,
    )


TICK_S = 0.5


class Ticker:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock, self._figures = engine, clock, Figures(engine, clock)

    def tick(self) -> Tick:
        engine, now_s = self._engine, self._clock.monotonic()
        self._figures.measure_if_old()
        return Tick(
            wake_address=engine.wake_address,
            running=sum(state.running for state in engine.desk.lanes),
            held=sum(len(state.held) for state in engine.desk.lanes),
            abandoned=engine.threads.abandoned if engine.threads is not None else 0,
            answered_ago_s=now_s - engine.turner.answered_s,
            figures=self._figures.latest,
        )


log = logging.getLogger("fairlane.worker")

REFUSED = 78
LAST_WORDS_S = 2.0


def main() -> int:
    line, board, parent = (int(number) for number in sys.argv[1:4])
    die_with(parent)
    # A terminal's Ctrl-C is the foreman's to hear: it tells us when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tether = Tether(socket.socket(fileno=line), Board(board), SystemClock())
    setup = tether.setup()
    if setup is None:
        return 0
    return Child(tether, setup).main()


class Child:
    def __init__(self, tether: Tether, setup: Setup) -> None:
        self._tether, self._setup = tether, setup
        self._engine: Engine | None = None
        self._begin = asyncio.Event()
        self._is_stopped = False

    def main(self) -> int:
        try:
            app = self._application()
            check_application(app, self._setup.config)
        except FairlaneError as error:
            self._tether.send(Refused(code=error.code, message=str(error)))
            self._tether.flush(LAST_WORDS_S)
            return REFUSED
        run_and_leave(self._live(app), quick_loop())
        self._tether.flush(LAST_WORDS_S)
        return 0

    def _application(self) -> Fairlane:
        app = load_application(self._setup.app)
        gc.collect()
        gc.freeze()  # what is loaded stays: no collection has to look through it again
        if not logging.getLogger().handlers:
            logging.basicConfig(format=LOG_FORMAT, level=self._setup.log_level)
        return app

    async def _live(self, app: Fairlane) -> None:
        setup, tether, loop = self._setup, self._tether, asyncio.get_running_loop()
        self._engine = engine = Engine(app, setup.config, setup.worker, tether.board)
        loop.add_signal_handler(signal.SIGTERM, self._heed, Stop())
        tether.hold(setup.config.lease_s, self._pass_on(loop), engine.desk.busy)
        tether.send(
            Hello(
                store=store_place(app),
                queues=known_queues(app, tuple(queue for lane in setup.config.lanes for queue in lane.queues)),
                types=tuple(sorted(engine.desk.tasks)),
                files=loaded_files() if setup.reports_files else (),
            )
        )
        await self._begin.wait()
        ticker = Ticker(engine, app.runtime.clock)
        ticking = asyncio.create_task(self._tick(ticker), name="ticker")
        try:
            if not self._is_stopped:
                await engine.run()
        finally:
            ticking.cancel()
            tether.send(Left(why=self._why(engine)))
            await app.aclose()

    async def _tick(self, ticker: Ticker) -> None:
        while True:
            self._tether.send(ticker.tick())
            await asyncio.sleep(TICK_S)

    def _pass_on(self, loop: asyncio.AbstractEventLoop) -> Callable[[ToWorker], object]:
        return lambda message: loop.call_soon_threadsafe(self._heed, message)

    def _heed(self, message: ToWorker) -> None:
        match message:
            case Registered():
                self._begin.set()
            case Stop(now=now):
                self._is_stopped = True
                self._begin.set()
                if self._engine is not None:
                    self._engine.stop_now() if now else self._engine.stop()
            case Dump():
                log.info("heap dump written to %s", write_dump())
            case Setup():
                pass

    def _why(self, engine: Engine) -> Literal["stopped", "drained", "used_up"]:
        if self._is_stopped:
            return "stopped"
        return "used_up" if engine.desk.jobs_left() <= 0 else "drained"


def quick_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed: a third off the cost per job."""
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


if __name__ == "__main__":
    sys.exit(main())
