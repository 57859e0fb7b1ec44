"""Code of the application that raises where nobody expects it: in log handlers, in exceptions, in resources, in tasks."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from fairlane import Fairlane

SLOTS = 4
LATER = 20

KINDS: tuple[type[BaseException], ...] = (RuntimeError, SystemExit, KeyboardInterrupt, GeneratorExit)


@pytest.fixture(autouse=True)
def no_ctrl_c() -> Iterator[None]:
    """As in a worker process: a KeyboardInterrupt comes from the application's code alone."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def app() -> Iterator[Fairlane]:
    with Fairlane("memory://", profile="development") as app:

        @app.task(name="add")
        def add(a: int, b: int) -> int:
            return a + b

        yield app


def run_beside(app: Fairlane, *hostile: str) -> None:
    """Run each of these tasks in every slot, then others, which must all run: embedded in a thread, and on a loop."""
    for name in hostile:
        for _ in range(SLOTS):
            app.tasks[name].using(max_attempts=1).enqueue()
    with app.running(slots=SLOTS):
        later = [app.tasks["add"].enqueue(n, 1) for n in range(LATER)]
        assert [handle.result(timeout=20) for handle in later] == [n + 1 for n in range(LATER)]
    run_beside_on_a_loop(app, *hostile)


def run_beside_on_a_loop(app: Fairlane, *hostile: str) -> None:
    async def serve() -> None:
        for name in hostile:
            for _ in range(SLOTS):
                await app.tasks[name].using(max_attempts=1).aenqueue()
        async with app.running(slots=SLOTS):
            later = [await app.tasks["add"].aenqueue(n, 1) for n in range(LATER)]
            assert [await handle.aresult(timeout=20) for handle in later] == [n + 1 for n in range(LATER)]

    asyncio.run(serve())


class RaisingHandler(logging.Handler):
    def __init__(self, kind: type[BaseException]) -> None:
        super().__init__()
        self._kind, self.raised = kind, 0

    def handle(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("fairlane"):
            self.raised += 1
            raise self._kind
        return True


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_handler_that_raises_costs_no_slot(
    app: Fairlane, kind: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    @app.task(name="fails")
    async def fails() -> None:
        raise ConnectionError("no")

    @app.task(name="blocks")
    def blocks() -> None:
        raise ConnectionError("no")

    handler = RaisingHandler(kind)
    logging.getLogger().addHandler(handler)
    try:
        run_beside(app, "fails", "blocks")
    finally:
        logging.getLogger().removeHandler(handler)
    assert handler.raised >= 4 * SLOTS
    assert {job.status for job in app.jobs.list(type="fails").jobs} == {"dead"}


def raising(kind: type[BaseException]) -> Callable[..., Any]:
    def method(*_: object) -> Any:
        raise kind

    return method


def hostile_exceptions(kind: type[BaseException]) -> dict[str, BaseException]:
    """Exceptions of which one part cannot be looked at."""
    found: dict[str, BaseException] = {}
    for name in ("__str__", "__repr__", "__eq__", "__hash__", "__bool__", "__len__", "__format__"):
        found[name] = type("Odd", (Exception,), {name: raising(kind)})("odd")
    found["both"] = type("Odd", (Exception,), {"__str__": raising(kind), "__repr__": raising(kind)})("odd")
    for name in ("__cause__", "__context__", "__traceback__", "__suppress_context__", "__class__", "response", "args"):
        found[f"property {name}"] = type("Odd", (Exception,), {name: property(raising(kind))})("odd")
    for name in ("__cause__", "__traceback__"):
        found[f"text as {name}"] = type("Odd", (Exception,), {name: "none of your business"})("odd")
    meta = type("Meta", (type,), {"__module__": property(raising(kind))})
    found["type"] = meta("Odd", (Exception,), {})("odd")
    group = type("OddGroup", (ExceptionGroup,), {"exceptions": property(raising(kind))})
    found["group"] = group("odd", [ValueError()])
    loop = ValueError("itself")
    loop.__cause__ = loop
    found["own cause"] = loop
    return found


@pytest.mark.parametrize("kind", KINDS[:3])
def test_an_exception_that_cannot_be_looked_at_costs_no_slot(app: Fairlane, kind: type[BaseException]) -> None:
    odd = hostile_exceptions(kind)

    @app.task(name="raises")
    async def raises(which: str) -> None:
        raise odd[which]

    @app.task(name="raises_in_thread")
    def raises_in_thread(which: str) -> None:
        raise odd[which]

    handles = [
        app.tasks[name].using(max_attempts=1).enqueue(which) for which in odd for name in ("raises", "raises_in_thread")
    ]
    with app.running(slots=SLOTS):
        later = [app.tasks["add"].enqueue(n, 1) for n in range(LATER)]
        assert [handle.result(timeout=20) for handle in later] == [n + 1 for n in range(LATER)]
    assert {handle.status() for handle in handles} == {"dead"}


@pytest.mark.parametrize("kind", [*KINDS, asyncio.CancelledError, StopIteration, StopAsyncIteration])
def test_what_only_interpreters_raise_fails_the_job_and_costs_no_slot(app: Fairlane, kind: type[BaseException]) -> None:
    @app.task(name="raises")
    async def raises() -> None:
        raise kind

    @app.task(name="raises_in_thread")
    def raises_in_thread() -> None:
        raise kind

    run_beside(app, "raises", "raises_in_thread")
    assert {job.status for job in app.jobs.list(type="raises").jobs} == {"dead"}
    assert {job.status for job in app.jobs.list(type="raises_in_thread").jobs} == {"dead"}


@pytest.mark.parametrize("scope", ["job", "worker"])
@pytest.mark.parametrize("when", ["opens", "closes"])
@pytest.mark.parametrize("kind", KINDS[:3])
def test_a_resource_that_raises_when_it_opens_or_closes_costs_no_slot(
    app: Fairlane, kind: type[BaseException], when: str, scope: Any
) -> None:
    @app.resource(scope=scope)
    def plain() -> Iterator[int]:
        if when == "opens":
            raise kind
        yield 1
        raise kind

    @app.resource(scope=scope)
    async def awaited() -> AsyncIterator[int]:
        if when == "opens":
            raise kind
        yield 1
        raise kind

    @app.task(name="asks")
    async def asks() -> int:
        return await awaited() + plain()

    @app.task(name="asks_in_thread")
    def asks_in_thread() -> int:
        return plain()

    run_beside(app, "asks", "asks_in_thread")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_background_task_that_raises_system_exit_does_not_end_the_worker(
    app: Fairlane, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    left: list[object] = []

    async def later() -> None:
        await asyncio.sleep(0)
        raise kind

    @app.task(name="leaves_one_behind")
    async def leaves_one_behind() -> None:
        left.append(asyncio.create_task(later()))

    app.tasks["leaves_one_behind"].enqueue()
    with app.running(slots=SLOTS):
        handles = [app.tasks["add"].enqueue(n, 1) for n in range(LATER)]
        assert [handle.result(timeout=20) for handle in handles] == [n + 1 for n in range(LATER)]
    assert f"raised {kind.__name__} outside of any job" in caplog.text
    # Its complaint about an exception that nobody fetched belongs here, not into the test that happens to collect it.
    left.clear()
    gc.collect()


def test_a_future_that_holds_a_generator_exit_costs_neither_slot_nor_job(app: Fairlane) -> None:
    @app.task(name="awaits")
    async def awaits() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, GeneratorExit())
        await future

    run_beside(app, "awaits")
    assert {(job.status, job.error_type) for job in app.jobs.list(type="awaits").jobs} == {("dead", "RuntimeError")}


def test_slots_that_were_cancelled_while_they_waited_take_the_next_single_job(app: Fairlane) -> None:
    @app.task(name="cancels")
    async def cancels() -> None:
        for task in asyncio.all_tasks():
            if task.get_name().startswith("slot") and task is not asyncio.current_task():
                task.cancel()

    with app.running(slots=SLOTS):
        app.tasks["cancels"].enqueue()
        for n in range(SLOTS + 1):
            assert app.tasks["add"].enqueue(n, 1).result(timeout=5) == n + 1


def test_application_code_that_cancels_every_task_it_finds_ends_no_slot(app: Fairlane) -> None:
    @app.task(name="cancels")
    async def cancels() -> None:
        for task in asyncio.all_tasks():
            if task.get_name() != "fairlane-worker" and not task.get_name().startswith("Task-"):
                task.cancel()

    app.tasks["cancels"].enqueue()
    with app.running(slots=SLOTS):
        handles = [app.tasks["add"].enqueue(n, 1) for n in range(LATER)]
        assert [handle.result(timeout=20) for handle in handles] == [n + 1 for n in range(LATER)]


def test_code_that_cancels_the_worker_itself_does_not_end_it_silently(
    app: Fairlane, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="cancels")
    async def cancels() -> None:
        for task in asyncio.all_tasks():
            if task.get_name() == "fairlane-worker":
                task.cancel()

    async def serve() -> None:
        async with app.running(slots=SLOTS):
            [worker] = [task for task in asyncio.all_tasks() if task.get_name() == "fairlane-worker"]
            await app.tasks["cancels"].aenqueue()
            await asyncio.wait([worker], timeout=10)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(serve())
    assert "cancelled with its asyncio task: it claims nothing" in caplog.text
