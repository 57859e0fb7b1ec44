"""Resources of jobs and workers: fresh or shared, and always closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from fairlane import NonRetryable, Retry
from fairlane.core.profiles import ANY, Lane
from tests.worker.conftest import Works, eventually

ONCE = Retry(max_attempts=1)
FOUR = Lane("four", 4, (ANY,), prompt=True)


class Diary:
    """What was opened and closed, and where."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed: list[str] = []

    def open(self) -> int:
        self.opened += 1
        return self.opened


@pytest.mark.requirement("Q9", "L6")
def test_every_job_has_a_session_of_its_own_and_it_is_always_closed(works: Works) -> None:
    diary = Diary()

    @works.app.resource
    async def session() -> AsyncIterator[int]:
        try:
            yield diary.open()
        except BaseException as error:
            diary.closed.append(type(error).__name__)
            raise
        else:
            diary.closed.append("ok")

    @works.app.task(name="use", retry=ONCE)
    async def use(how: str) -> tuple[int, int]:
        first, again = await session(), await session()
        if how == "fail":
            raise NonRetryable("no")
        if how == "hang":
            await asyncio.Event().wait()
        return first, again

    timeouts = {"return": 60.0, "fail": 60.0, "hang": 0.2}
    handles = [use.using(timeout=timeouts[how]).enqueue(how) for how in ("return", "fail", "hang", "return")]
    works.drain(Lane("one", 1, (ANY,)))
    assert [handle.status() for handle in handles] == ["completed", "dead", "dead", "completed"]
    assert diary.closed == ["ok", "NonRetryable", "CancelledError", "ok"]
    assert (handles[0].result(), handles[3].result()) == ((1, 1), (4, 4))


@pytest.mark.requirement("Q9", "Q13")
def test_plain_functions_open_and_close_theirs_in_their_own_thread(works: Works) -> None:
    threads: list[set[str]] = []

    @works.app.resource
    def session() -> Iterator[int]:
        seen = {threading.current_thread().name}
        try:
            yield 1
        finally:
            seen.add(threading.current_thread().name)
            threads.append(seen)

    @works.app.task(name="use", retry=ONCE)
    def use(fails: bool) -> int:
        value = session()
        if fails:
            raise ConnectionError
        return value

    use.enqueue(False)
    use.enqueue(True)
    works.drain()
    assert len(threads) == 2
    assert all(len(seen) == 1 and "MainThread" not in seen for seen in threads)


@pytest.mark.requirement("Q9")
def test_a_thread_past_its_timeout_closes_its_resources_when_it_returns(works: Works) -> None:
    closed, go_on = threading.Event(), threading.Event()

    @works.app.resource
    def session() -> Iterator[int]:
        try:
            yield 1
        finally:
            closed.set()

    @works.app.task(name="use", retry=ONCE, timeout=0.1)
    def use() -> None:
        session()
        go_on.wait(10)

    handle = use.enqueue()
    works.drain()
    assert (handle.status(), closed.is_set()) == ("dead", False)
    go_on.set()
    assert closed.wait(10)


@pytest.mark.requirement("L6")
def test_a_workers_resource_is_opened_once_and_closed_at_its_end(works: Works) -> None:
    diary = Diary()

    @works.app.resource(scope="worker")
    async def engine() -> AsyncIterator[str]:
        diary.open()
        task = asyncio.current_task()
        await asyncio.sleep(0.01)
        yield "engine"
        assert asyncio.current_task() is task
        diary.closed.append("engine")

    @works.app.resource(scope="worker")
    def client() -> Iterator[str]:
        yield "client"
        diary.closed.append("client")

    @works.app.resource
    async def session() -> AsyncIterator[str]:
        name = await engine()
        yield f"session of {name}"
        diary.closed.append("session")

    @works.app.task(name="use")
    async def use() -> tuple[str, str]:
        return await session(), client()

    @works.app.task(name="block")
    def block() -> str:
        return client()

    handles = [use.enqueue() for _ in range(5)]
    block.enqueue()
    works.drain(FOUR)
    assert {handle.result(timeout=0) for handle in handles} == {("session of engine", "client")}
    assert diary.opened == 1
    assert diary.closed[:5] == ["session"] * 5
    assert sorted(diary.closed[5:]) == ["client", "engine"]


def test_a_job_stopped_while_a_shared_resource_opens_does_not_take_it_from_the_others(works: Works) -> None:
    diary = Diary()
    is_ready = asyncio.Event()

    @works.app.resource(scope="worker")
    async def engine() -> AsyncIterator[int]:
        diary.open()
        await is_ready.wait()
        yield diary.opened

    @works.app.task(name="hurry", retry=ONCE, timeout=0.05)
    async def hurry() -> int:
        return await engine()

    @works.app.task(name="patient", timeout=30)
    async def patient() -> int:
        return await engine()

    async def story() -> None:
        running = works.engine(FOUR)
        engine_task = asyncio.create_task(running.run())
        stopped, waiting = hurry.enqueue(), patient.enqueue()
        await eventually(lambda: stopped.status() == "dead")
        is_ready.set()
        await eventually(lambda: waiting.status() == "completed")
        running.stop()
        await engine_task
        assert await waiting.aresult() == 1

    asyncio.run(story())
    assert diary.opened == 1


def test_a_shared_resource_that_failed_to_open_is_tried_again(works: Works) -> None:
    diary = Diary()

    @works.app.resource(scope="worker")
    async def engine() -> AsyncIterator[int]:
        if diary.open() == 1:
            raise ConnectionError("not up yet")
        yield diary.opened

    @works.app.task(name="use", retry=Retry(delays=(0.0,)))
    async def use() -> int:
        return await engine()

    handle = use.enqueue()
    works.drain()
    assert (handle.result(timeout=0), handle.job().attempts) == (2, 1)


def test_a_shared_resource_does_not_see_the_job_that_asked_first(works: Works) -> None:
    @works.app.resource
    async def session() -> AsyncIterator[int]:
        yield 1

    @works.app.resource(scope="worker")
    async def engine() -> AsyncIterator[int]:
        yield await session()

    @works.app.task(name="use", retry=ONCE)
    async def use() -> int:
        return await engine()

    handle = use.enqueue()
    works.drain()
    assert (handle.status(), handle.job().error_type) == ("dead", "NoCurrentJob")


def test_a_worker_whose_resource_will_not_close_still_leaves(works: Works, caplog: pytest.LogCaptureFixture) -> None:
    @works.app.resource(scope="worker")
    def engine() -> Iterator[int]:
        yield 1
        raise ConnectionError("gone")

    @works.app.task(name="use")
    def use() -> int:
        return engine()

    use.enqueue()
    works.drain()
    assert "could not be closed" in caplog.text
