"""Internal tasks and threads of a worker that end before they should."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fairlane import Fairlane
from fairlane.client.logs import GuardedLogger
from fairlane.core.ops import ListWorkers
from fairlane.worker.foreman.health import STALLED_S, recycle_reason
from fairlane.worker.foreman.messages import Tick
from fairlane.worker.services import keep, keep_thread
from fairlane.worker.turns import TurnLoop
from fairlane.worker.watchdog import Watchdog

log = GuardedLogger("fairlane.worker")


@pytest.fixture
def app() -> Iterator[Fairlane]:
    with Fairlane("memory://", profile="development") as app:

        @app.task(name="add")
        def add(a: int, b: int) -> int:
            return a + b

        @app.task(name="hurry", timeout=0.2, max_attempts=1)
        async def hurry() -> None:
            await asyncio.sleep(60)

        yield app


@pytest.fixture
def ctrl_c(request: pytest.FixtureRequest) -> Iterator[None]:
    """Handled as in a program that a person has started, whatever the tests run under."""
    before = signal.signal(signal.SIGINT, getattr(request, "param", signal.default_int_handler))
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("ctrl_c", [signal.SIG_IGN], indirect=True)
@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("how", ["return", RuntimeError, SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_task_that_ends_before_it_should_is_logged_and_started_again(
    how: Any, caplog: pytest.LogCaptureFixture
) -> None:
    runs = []

    async def run() -> None:
        runs.append(1)
        if len(runs) < 3:
            if how == "return":
                return
            raise how

    async def main() -> None:
        await asyncio.create_task(keep("the thing", run, is_ending=lambda: len(runs) == 3, log=log))

    asyncio.run(main())
    assert len(runs) == 3
    assert caplog.text.count("the thing ended unexpectedly and is started again") == 2


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_what_is_kept_and_passes_a_log_handler() -> None:
    class Interrupted(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            signal.raise_signal(signal.SIGINT)
            return True

    async def run() -> None:
        log.warning("something to be written")

    async def main() -> None:
        await asyncio.create_task(keep("the thing", run, is_ending=lambda: False, log=log))

    log.logger.addHandler(handler := Interrupted())
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(main())
    finally:
        log.logger.removeHandler(handler)
        loop.close()


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_a_job_on_the_callers_own_loop_ends_the_program(app: Fairlane) -> None:
    @app.task(name="long")
    async def long() -> None:
        signal.raise_signal(signal.SIGINT)

    async def serve() -> None:
        async with app.running(slots=2):
            await long.aenqueue()
            await asyncio.sleep(20)

    loop = asyncio.new_event_loop()
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(serve())
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.close()


def test_a_task_that_is_cancelled_at_its_end_ends() -> None:
    async def main() -> bool:
        task = asyncio.create_task(keep("the thing", asyncio.Event().wait, is_ending=lambda: True, log=log))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})
        return task.cancelled()

    assert asyncio.run(main())


def test_a_thread_is_kept_the_same_way(caplog: pytest.LogCaptureFixture) -> None:
    runs = []

    def run() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise SystemExit

    keep_thread("the thread", run, is_ending=lambda: len(runs) == 3, log=log)
    assert caplog.text.count("the thread ended unexpectedly") == 2


def test_a_watchdog_that_ends_is_started_again_and_ends_what_runs_too_long(
    app: Fairlane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_once, calls = Watchdog.run_once, []

    def fails_first(self: Watchdog, now_s: float) -> None:
        calls.append(now_s)
        if len(calls) < 3:
            raise ZeroDivisionError
        run_once(self, now_s)

    monkeypatch.setattr(Watchdog, "run_once", fails_first)
    with app.running(slots=1):
        handle = app.tasks["hurry"].enqueue()
        assert app.tasks["add"].enqueue(1, 2).result(timeout=10) == 3
    assert (handle.status(), handle.job().error_type) == ("dead", "TimeoutError")
    assert "watchdog ended unexpectedly" in caplog.text


def test_an_embedded_engine_that_fails_is_replaced_and_its_jobs_run(
    app: Fairlane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wants, fails = TurnLoop._wants, threading.Event()

    def may_fail(self: TurnLoop) -> Any:
        if fails.is_set():
            fails.clear()
            raise ZeroDivisionError
        return wants(self)

    monkeypatch.setattr(TurnLoop, "_wants", may_fail)
    with app.running(slots=2):
        assert app.tasks["add"].enqueue(1, 2).result(timeout=10) == 3
        fails.set()
        handles = [app.tasks["add"].enqueue(n, 1) for n in range(20)]
        assert [handle.result(timeout=20) for handle in handles] == [n + 1 for n in range(20)]
        assert len(app.runtime.store.run(ListWorkers()).workers) == 1
    assert app.runtime.store.run(ListWorkers()).workers == ()
    assert "the worker ended unexpectedly and is started again" in caplog.text


def test_a_worker_whose_slots_or_turn_loop_make_no_progress_is_replaced() -> None:
    assert recycle_reason(Tick(running=3, held=4, stepped_ago_s=20.0), poll_s=5.0) is None
    assert recycle_reason(Tick(ended_slots=2), poll_s=5.0) == "2 of its slots have ended"
    stalled = recycle_reason(Tick(stepped_ago_s=STALLED_S + 6), poll_s=5.0)
    assert stalled is not None
    assert "turn loop" in stalled


def test_a_guarded_logger_names_its_caller(caplog: pytest.LogCaptureFixture) -> None:
    log.warning("here %d", 1, extra={"job_id": "7"})
    [record] = caplog.records
    assert (record.filename, record.name, record.levelno) == ("test_services.py", "fairlane.worker", logging.WARNING)
    assert (record.getMessage(), record.__dict__["job_id"]) == ("here 1", "7")
