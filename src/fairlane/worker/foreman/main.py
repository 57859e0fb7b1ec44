"""The main program of a worker process under a foreman: `python -m fairlane.worker.foreman.main SOCKET BOARD PARENT`.

Checks the application before anything is claimed, then runs the engine and sends a tick twice a second.
"""

from __future__ import annotations

import asyncio
import gc
import math
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import Literal

from msgspec.structs import replace

from fairlane.alerts import StoreOutage
from fairlane.client.app import Fairlane
from fairlane.client.logs import GuardedLogger, OutageLog, configure_logging
from fairlane.client.settings.load import use_profile
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.ids import WorkerId
from fairlane.core.ops import Check, Retire
from fairlane.core.payload.storable import format_traceback
from fairlane.core.profiles import ANY, processes_for
from fairlane.errors import (
    ConfigError,
    FairlaneError,
    NotAdmitted,
    RoleLacksRights,
    StoreUnavailable,
    UnknownTask,
    nearest,
)
from fairlane.stores.sqlite.borrowed import chosen_library
from fairlane.stores.url import redacted
from fairlane.worker.application import load_application
from fairlane.worker.board import Board
from fairlane.worker.config import WorkerConfig, introduction, known_queues
from fairlane.worker.engine import Engine
from fairlane.worker.foreman.code_changes import loaded_files
from fairlane.worker.foreman.link import BROKEN, ForemanLink
from fairlane.worker.foreman.messages import (
    ChildCrash,
    Dump,
    Hello,
    JobKind,
    Left,
    Loaded,
    Registered,
    Setup,
    StartRefusal,
    Stop,
    StoreAddress,
    StoreAway,
    Successes,
    Suspects,
    Tick,
    ToWorker,
)
from fairlane.worker.heartbeat import WorkerFigures
from fairlane.worker.isolated.child import die_with
from fairlane.worker.process_memory import write_dump
from fairlane.worker.shutdown import run_to_end

LACKS_RIGHTS = "42501"
"""The code of PostgreSQL's refusal."""


def check_application(app: Fairlane, config: WorkerConfig) -> None:
    """Raise an error in one clear line if the application or its flags are unusable, or its store cannot be opened."""
    if not app.tasks:
        raise ConfigError(
            f'app = "{config.app}" has no tasks: nothing would ever run; did you import the modules that define them?'
        )
    for name in config.types:
        if name not in app.tasks:
            raise UnknownTask(name, app.tasks)
    known = known_queues(app, (ANY,))
    for lane in config.completed(app).lanes:
        for queue in lane.queues:
            if queue != ANY and queue not in known:
                raise ConfigError(
                    f'lane "{lane.name}": no queue "{queue}" among those of settings and tasks '
                    f"({', '.join(known)}).{nearest(queue, known)}"
                )
    if app.runtime.settings.url.lower().startswith("memory:"):
        raise ConfigError(
            f"url = {app.runtime.settings.url} ({app.runtime.settings.source('url')}) lives in one process, and "
            "workers have processes of their own: give a url such as sqlite:///fairlane.db, or run jobs in this "
            "process with `app.running()`"
        )
    app.runtime.settings.alerts.require_extra()
    if app.runtime.store.name == "memory":
        raise ConfigError(
            f'url = "{redacted(app.runtime.settings.url)}" needs a package that is not installed, as the warning above '
            "says, and a worker does not fall back to memory"
        )


def check_store(app: Fairlane) -> None:
    """Raise an error in one clear line if a worker cannot use the store."""
    app.runtime.store.run(Check())
    migrator = app.runtime.store.migrator()
    if migrator is not None:
        migrator.require()
    _require_rights(app)


def _require_rights(app: Fairlane) -> None:
    """Refuse a role that may not call a worker's functions: it would wait for rights in silence."""
    try:
        app.runtime.store.run(Retire(worker=WorkerId(app.runtime.new_job_id())))  # an unknown worker: changes nothing
    except StoreUnavailable as error:
        if getattr(error.__cause__, "sqlstate", None) != LACKS_RIGHTS:
            raise
        settings = app.runtime.settings
        from fairlane.stores.postgres import PostgresStore
        from fairlane.stores.postgres.connection import role_of

        remedy = PostgresStore(settings.url, schema=settings.schema).isolator().worker_grant()
        why = str(error.__cause__).splitlines()[0]
        raise RoleLacksRights(role_of(settings.url), settings.schema, why, remedy) from error


def store_address(app: Fairlane) -> StoreAddress:
    settings = app.runtime.settings
    return StoreAddress(
        url=settings.url,
        schema=settings.schema,
        sqlite_library=chosen_library(settings.sqlite_library),
        statement_timeout_s=settings.statement_timeout_s,
        key_prefix=settings.key_prefix,
        health_check_timeout_s=settings.health_check_timeout_s,
    )


TICK_S = 0.5
LOOK_S = 0.5
"""Between two looks whether a store that was away at the start answers."""


class Ticker:
    """Builds the ticks of one engine."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock, self._figures = engine, clock, WorkerFigures(engine, clock)

    def tick(self) -> Tick:
        engine, now_s = self._engine, self._clock.monotonic()
        self._figures.measure_if_old()
        return Tick(
            wake_address=engine.wakeups.address,
            running=sum(lane.running for lane in engine.state.lanes),
            held=sum(len(lane.held) + lane.gathered for lane in engine.state.lanes),
            abandoned=engine.threads.abandoned if engine.threads is not None else 0,
            answered_ago_s=now_s - engine.turns.answered_s,
            stepped_ago_s=now_s - engine.turns.stepped_s,
            # Slots of an engine that stops end by themselves.
            ended_slots=sum(slot.task is not None and slot.task.done() for slot in engine.state.slots)
            if not engine.state.stopping
            else 0,
            figures=self._figures.latest,
        )

    def successes(self) -> Successes | None:
        watched = self._engine.state.watched
        counts = tuple((JobKind(*kind), count) for kind, count in watched.items() if count)
        watched.update((kind, 0) for kind, _ in counts)
        return Successes(counts=counts) if counts else None


log = GuardedLogger("fairlane.worker")

REFUSED = 78
FLUSH_S = 2.0


def main() -> int:
    line, board, parent = (int(number) for number in sys.argv[1:4])
    die_with(parent)
    # The foreman handles a terminal's Ctrl-C and sends us the stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = ForemanLink(socket.socket(fileno=line), Board(board), SystemClock())
    setup = link.setup()
    if setup is None:
        return 0
    return WorkerMain(link, setup).main()


class CannotStart(Exception):
    """What a worker found when it was to begin."""

    def __init__(self, error: FairlaneError) -> None:
        super().__init__(str(error))
        self.error = error


class WorkerMain:
    """Runs one engine and acts on the foreman's messages."""

    def __init__(self, link: ForemanLink, setup: Setup) -> None:
        self._link, self._setup = link, setup
        self._engine: Engine | None = None
        self._begin = asyncio.Event()
        self._is_stopped = False

    def main(self) -> int:
        try:
            app = self._application()
            check_application(app, self._setup.config)
        except FairlaneError as error:
            return self._refuse(error)
        code, config, setup = 0, self._setup.config.completed(app), self._setup
        there_are = processes_for(config.lanes, setup.processes)
        self._link.send(Loaded(url=app.runtime.settings.url, processes=there_are))
        try:
            if setup.number < there_are:
                run_to_end(self._run(app, config), loop_factory())
            else:  # the settings have changed since this process was started
                self._link.send(Left(why="stopped"))
        except CannotStart as refusal:
            return self._refuse(refusal.error)
        except BaseException as error:  # noqa: BLE001 - the process ends, and its foreman starts another
            log.error("this worker's engine failed\n%s", format_traceback(error))  # noqa: TRY400 - without secrets
            self._link.announce("broken")
            code = BROKEN
        self._link.flush(FLUSH_S)
        return code

    def _application(self) -> Fairlane:
        if self._setup.profile is not None:
            use_profile(self._setup.profile)
        app = load_application(self._setup.app)
        gc.collect()
        gc.freeze()  # loaded code stays: collections need not scan it again
        configure_logging(self._setup.log_level)
        return app

    def _refuse(self, error: FairlaneError) -> int:
        self._link.send(StartRefusal(code=error.code, message=str(error)))
        self._link.flush(FLUSH_S)
        return REFUSED

    async def _run(self, app: Fairlane, command: WorkerConfig) -> None:
        setup, link, loop = self._setup, self._link, asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._receive, Stop())
        link.watch(setup.config.lease_s, self._forward(loop), self._is_busy, partial(self._show_loop, loop))
        try:
            await self._wait_for_store(app)
        except FairlaneError as error:
            raise CannotStart(error) from error
        if self._is_stopped:
            link.send(Left(why="stopped"))
            await app.aclose()
            return
        share = command.share(setup.number, setup.processes)
        self._engine = engine = Engine(app, share, setup.worker, link.board)
        config, state = engine.state.config, engine.state
        link.board.reserve(state.board_lines)
        state.on_child_crash = lambda lease: link.send(ChildCrash(kind=JobKind(lease.type, lease.tenant)))
        self._receive(self._setup.suspects)
        link.send(
            Hello(
                store=store_address(app),
                queues=known_queues(app, tuple(queue for lane in config.lanes for queue in lane.queues)),
                types=tuple(sorted(state.tasks)),
                slots=state.board_lines,
                poll_s=state.poll_s,
                introduction=introduction(app, command, setup.processes),
                files=loaded_files() if setup.reports_files else (),
            )
        )
        await self._begin.wait()
        ticker = Ticker(engine, app.runtime.clock)
        ticking = engine.keep("ticker", partial(self._tick, ticker))
        try:
            if not self._is_stopped:
                await engine.run()
        finally:
            ticking.cancel()
            link.send(Left(why=self._why(engine)))
            await app.aclose()

    def _is_busy(self) -> bool:
        return self._engine is not None and self._engine.state.busy()

    def _show_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._engine is not None:
            self._engine.show_loop(loop)

    async def _wait_for_store(self, app: Fairlane) -> None:
        """Return when a worker can use the store, or is asked to stop; raise what waiting does not mend."""
        monotonic, wait = app.runtime.clock.monotonic, app.runtime.settings.wait_for_store
        until_s = monotonic() + (math.inf if wait is True or self._setup.waits else wait)
        outage = OutageLog(log, monotonic)
        alert = StoreOutage(app, outage)
        while not self._is_stopped:
            asked_s = monotonic()
            try:
                await asyncio.to_thread(check_store, app)
            except StoreUnavailable as error:
                if isinstance(error, NotAdmitted) or monotonic() >= until_s:
                    raise
                if not outage.is_on:
                    self._link.send(StoreAway(why=str(error)))
                outage.failed(error, asked_s)
            else:
                outage.answered()
            await alert.step()
            if not outage.is_on:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._begin.wait()

    async def _tick(self, ticker: Ticker) -> None:
        while True:
            self._link.send(ticker.tick())
            if (successes := ticker.successes()) is not None:
                self._link.send(successes)
            await asyncio.sleep(TICK_S)

    def _forward(self, loop: asyncio.AbstractEventLoop) -> Callable[[ToWorker], object]:
        return lambda message: loop.call_soon_threadsafe(self._receive, message)

    def _receive(self, message: ToWorker) -> None:
        match message:
            case Registered():
                self._begin.set()
            case Stop(now=now):
                self._is_stopped = True
                self._begin.set()
                if self._engine is not None:
                    self._engine.stop_now() if now else self._engine.stop()
            case Suspects(isolated=isolated, watched=watched):
                if self._engine is None:
                    self._setup = replace(self._setup, suspects=message)
                    return
                self._engine.state.isolated = frozenset(isolated)
                self._engine.state.watched = {kind: self._engine.state.watched.get(kind, 0) for kind in watched}
            case Dump():
                log.info("heap dump written to %s", write_dump())
            case Setup():
                pass

    def _why(self, engine: Engine) -> Literal["stopped", "drained", "used_up"]:
        if self._is_stopped:
            return "stopped"
        return "used_up" if engine.state.jobs_left() <= 0 else "drained"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's factory where it is installed: a third less time per job."""
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


if __name__ == "__main__":
    sys.exit(main())
