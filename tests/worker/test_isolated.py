"""Attempts in processes of their own: what they do to themselves stays with them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import psutil
import pytest

from fairlane.worker.isolated.children import ChildNotStarted, Children
from fairlane.worker.lanes import ANY, Lane
from tests.worker.conftest import Works, eventually

APP = "tests.worker.shop:app"


@pytest.fixture
def diary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "diary"
    path.touch()
    monkeypatch.setenv("SHOP_DIARY", str(path))
    return path


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
    handle = works.task("alone").using(timeout=0.5, max_attempts=1).enqueue("loop")
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
        engine.desk.wake()
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
    detail = works.app.detail(handle)
    assert detail is not None
    assert detail.attempts == ()
