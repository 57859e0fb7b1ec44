"""A worker process under a foreman: `python -m fairlane.worker.foreman.child SOCKET BOARD PARENT`."""

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
from fairlane.core.clock import SystemClock
from fairlane.errors import FairlaneError
from fairlane.worker.application import load_application
from fairlane.worker.board import Board
from fairlane.worker.desk import known_queues
from fairlane.worker.engine import Engine
from fairlane.worker.foreman.checking import check_application, store_place
from fairlane.worker.foreman.heap import write_dump
from fairlane.worker.foreman.messages import LOG_FORMAT, Dump, Hello, Left, Refused, Registered, Setup, Stop, ToWorker
from fairlane.worker.foreman.reloading import loaded_files
from fairlane.worker.foreman.tether import Tether
from fairlane.worker.foreman.ticking import TICK_S, Ticker
from fairlane.worker.isolated.child import die_with
from fairlane.worker.leaving import run_and_leave

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
        ticker = Ticker(engine, app.clock)
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
