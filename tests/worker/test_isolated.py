"""Attempts in processes of their own: what they do to themselves stays with them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from fairlane.core.profiles import ANY, Lane
from fairlane.worker import runner
from fairlane.worker.isolated.children import STARTING, Child, ChildNotStarted, Children
from tests.worker.conftest import Works, eventually

APP = "tests.worker.shop:app"


@pytest.fixture
def diary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "diary"
    path.touch()
    monkeypatch.setenv("SHOP_DIARY", str(path))
    return path


@pytest.mark.requirement("Q13")
def test_an_isolated_task_runs_in_another_process_which_serves_again(works: Works) -> None:
    handles = [works.task("alone").enqueue() for _ in range(3)]
    works.drain(Lane("one", 1, (ANY,)), app=APP)
    pids = {handle.result(timeout=0) for handle in handles}
    assert len(pids) == 1
    assert pids != {os.getpid()}
    assert not psutil.pid_exists(pids.pop())


@pytest.mark.requirement("Q17")
@pytest.mark.parametrize("how", ["exit", "segfault"])
def test_a_job_that_kills_its_process_is_tried_alone_and_buried_after_three_crashes(
    works: Works, how: str, diary: Path
) -> None:
    killer, others = works.task("alone").enqueue(how), [works.task("add").enqueue(n, n) for n in range(5)]
    works.drain(app=APP)
    job = killer.job()
    assert (job.status, job.error_type, job.crashes, job.attempts) == ("dead", "Crashed", 3, 0)
    assert len(diary.read_text().splitlines()) == 3 + len(others)
    assert {handle.status() for handle in others} == {"completed"}


@pytest.mark.requirement("I9", "L9")
def test_an_endless_loop_is_killed_at_its_timeout(works: Works, diary: Path) -> None:
    handle = works.task("alone").using(timeout=2.0, max_attempts=1).enqueue("loop")
    works.drain(app=APP)
    assert handle.job().error_type == "TimeoutError"
    [line] = diary.read_text().splitlines()
    assert not psutil.pid_exists(int(line.split()[-1]))


@pytest.mark.requirement("L21")
def test_a_memory_hog_meets_its_cap_and_fails_alone(works: Works) -> None:
    handle = works.task("alone").using(max_attempts=1).enqueue("memory")
    works.drain(app=APP, isolated_memory_mb=2048)
    assert handle.job().error_type == "MemoryError"


def test_a_cancelled_isolated_job_takes_its_process_with_it(works: Works, diary: Path) -> None:
    async def story() -> int:
        handle = works.task("alone").enqueue("loop")
        engine = works.engine(app=APP)
        loop = asyncio.create_task(engine.run())
        await eventually(lambda: "loop" in diary.read_text(), within_s=20)
        handle.cancel()
        engine.state.wake()
        await eventually(lambda: handle.status() == "cancelled")
        engine.stop()
        await loop
        return int(diary.read_text().split()[-1])

    assert not psutil.pid_exists(asyncio.run(story()))


def test_an_application_that_cannot_be_imported_says_so_and_runs_nothing(
    capfd: pytest.CaptureFixture[str], works: Works
) -> None:
    handle = works.task("alone").enqueue()
    lease = works.engine()

    async def story() -> None:
        children = Children("tests.worker.nowhere:app")
        with pytest.raises(ChildNotStarted, match="exited with code"):
            await children._start()
        await children.close()

    asyncio.run(story())
    assert "nowhere" in capfd.readouterr().err
    assert lease is not None
    assert handle.status() == "pending"


def test_a_job_whose_process_cannot_be_started_is_put_off_uncharged(works: Works) -> None:
    handle = works.task("alone").enqueue()
    works.drain(app="tests.worker.nowhere:app")
    job = handle.job()
    assert (job.status, job.attempts, job.crashes) == ("pending", 0, 0)
    assert job.run_at > job.enqueued_at
    detail = works.app.jobs.detail(handle)
    assert detail is not None
    assert detail.attempts == ()


class Ready(Child):
    """One that is there without a process."""

    def __init__(self) -> None:
        self.jobs = 0

    async def run(self, lease: Any, notes: Any, decided: Any, steps: Any) -> Any:
        await asyncio.sleep(0.01)
        return lease

    async def kill(self) -> None:
        pass


class Nursery(Children):
    """Children that are ready, or not, when a test says so."""

    def __init__(self) -> None:
        super().__init__(APP)
        self.starts: list[asyncio.Future[Child]] = []

    async def _start(self) -> Child:
        self.starts.append(asyncio.get_running_loop().create_future())
        return await self.starts[-1]


def running(children: Children, count: int) -> list[asyncio.Task[Any]]:
    def run(number: Any) -> Any:
        return children.run(number, None, lambda: None, lambda: None, None)  # type: ignore[arg-type]

    return [asyncio.create_task(run(number)) for number in range(count)]


def test_only_some_processes_start_at_once_and_the_first_that_is_ready_serves_the_others() -> None:
    async def story() -> None:
        children = Nursery()
        runs = running(children, 9)
        await asyncio.sleep(0.01)
        assert len(children.starts) == STARTING
        for ready in children.starts:
            ready.set_result(Ready())
        assert await asyncio.gather(*runs) == list(range(9))
        assert len(children.starts) == 2 * STARTING
        await children.close()

    asyncio.run(story())


def test_a_start_that_comes_to_nothing_is_told_to_one_who_waits() -> None:
    async def story() -> None:
        children = Nursery()
        runs = running(children, STARTING + 1)
        await asyncio.sleep(0.01)
        for ready in children.starts:
            ready.set_exception(ChildNotStarted("no"))
        await eventually(lambda: len(children.starts) == STARTING + 1)
        children.starts[-1].set_result(Ready())
        came_to = await asyncio.gather(*runs, return_exceptions=True)
        assert sum(isinstance(one, ChildNotStarted) for one in came_to) == STARTING
        assert sum(isinstance(one, int) for one in came_to) == 1

    asyncio.run(story())


def test_whatever_keeps_a_process_from_starting_is_told_once_and_to_nobody_who_comes_later() -> None:
    async def story() -> None:
        children = Nursery()
        gone, told = running(children, 2)
        await asyncio.sleep(0.01)
        gone.cancel()
        for ready in children.starts:
            ready.set_exception(RuntimeError("no more threads"))
        with pytest.raises(ChildNotStarted, match="RuntimeError: no more threads"):
            await asyncio.wait_for(told, 5)
        [later] = running(children, 1)
        await eventually(lambda: len(children.starts) == STARTING + 1)
        children.starts[-1].set_result(Ready())
        assert await asyncio.wait_for(later, 5) == 0

    asyncio.run(story())


def test_who_gives_up_waiting_leaves_the_process_that_starts_to_the_next() -> None:
    async def story() -> None:
        children = Nursery()
        *stopped, last = running(children, 6)
        await asyncio.sleep(0.01)
        for run in stopped:
            run.cancel()
        children.starts[0].set_result(Ready())
        assert await asyncio.wait_for(last, 5) == 5
        assert len(children.starts) == STARTING
        await children.close()

    asyncio.run(story())


def test_waiting_for_a_process_is_not_an_attempts_time(works: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    """Started too late for its timeout it is put off, uncharged, and the process that was started for it is there when it comes back."""
    start, put_off_s = Children._start, 0.3

    async def start_slowly(children: Children) -> Child:
        child = await start(children)
        await asyncio.sleep(1.0)
        return child

    monkeypatch.setattr(Children, "_start", start_slowly)
    monkeypatch.setattr(runner, "PUT_OFF_S", put_off_s)
    handle = works.task("alone").using(timeout=0.5).enqueue()

    async def story() -> None:
        engine = works.engine(app=APP)
        run = asyncio.create_task(engine.run())
        await eventually(lambda: handle.status() in ("completed", "dead"), within_s=30.0)
        engine.stop()
        await run

    asyncio.run(story())
    job = handle.job()
    assert (job.status, job.attempts) == ("completed", 0)
    detail = works.app.jobs.detail(handle)
    assert detail is not None
    assert [attempt.outcome for attempt in detail.attempts] == ["completed"]
