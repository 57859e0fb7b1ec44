"""What a running job may say, and time limits around a block of its code."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fairlane import AttemptCancelled, CurrentJob, Fairlane, InvalidOption, LeaseLost, current_job, timeout
from fairlane.core.job import Lease
from fairlane.errors import AttemptInterrupted
from fairlane.testing import run_due


class Notes:
    def __init__(self) -> None:
        self.taken: list[float | str | None] = []

    def take(self, lease: Lease, *, progress: float | None = None, line: str | None = None) -> None:
        self.taken.append(progress if line is None else line)


@pytest.fixture
def job(app: Fairlane) -> CurrentJob:
    @app.task(name="t")
    def t() -> None: ...

    t.enqueue()
    [ran] = run_due(app)
    return CurrentJob(ran.lease, Notes())


def taken(job: CurrentJob) -> list[Any]:
    notes = job._notes
    assert isinstance(notes, Notes)
    return notes.taken


@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan"), float("inf"), "0.5", True, None])
def test_progress_is_a_number_from_0_to_1(job: CurrentJob, bad: Any) -> None:
    with pytest.raises(InvalidOption, match="a number from 0 to 1"):
        job.progress(bad)
    job.progress(0)
    job.progress(1)
    job.progress(0.5)
    assert taken(job) == [0.0, 1.0, 0.5]


def test_whatever_a_job_logs_can_be_kept(job: CurrentJob) -> None:
    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError

    for message in ("plain", "nul \x00 and \ud800", 5, Hostile(), "x" * 10_000):
        job.log(message)
    lines = taken(job)
    assert lines[:3] == ["plain", "nul \ufffd and \ufffd", "5"]
    assert all(len(line) <= 1_000 for line in lines)


@pytest.mark.requirement("L9")
def test_a_job_that_should_stop_hears_it_when_it_speaks(job: CurrentJob) -> None:
    job.check()
    job.stopping = "cancel"
    for speak in (job.check, lambda: job.progress(0.5), lambda: job.log("x")):
        with pytest.raises(AttemptCancelled, match="cancel"):
            speak()
    job.stopping = "lease_lost"
    with pytest.raises(LeaseLost):
        job.check()
    assert taken(job) == []


def test_without_a_worker_what_a_job_says_goes_nowhere(app: Fairlane) -> None:
    @app.task(name="say")
    def say() -> str:
        current_job().progress(0.5)
        current_job().log("hello")
        return "said"

    handle = say.enqueue()
    run_due(app)
    assert handle.result(timeout=0) == "said"


def spin() -> None:
    while True:
        pass


@pytest.mark.requirement("L9")
def test_a_block_of_a_plain_function_is_interrupted() -> None:
    with pytest.raises(TimeoutError, match=r"the block took longer than its 0\.05 s"), timeout(0.05):
        spin()
    with timeout(timedelta(seconds=60)):
        pass


@pytest.mark.requirement("L9")
def test_a_block_of_a_coroutine_is_interrupted() -> None:
    async def wait() -> str:
        async with timeout(60):
            pass
        try:
            async with timeout(0.02):
                await asyncio.Event().wait()
        except TimeoutError as error:
            return str(error)
        return "not interrupted"

    assert asyncio.run(wait()) == "the block took longer than its 0.02 s"


@pytest.mark.requirement("L9")
def test_a_block_is_interrupted_in_any_thread_though_it_catches_every_exception() -> None:
    ended: list[BaseException] = []

    def work() -> None:
        try:
            with timeout(0.05):
                while True:
                    with contextlib.suppress(Exception):
                        spin()
        except TimeoutError as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)
    assert len(ended) == 1


def test_the_shorter_of_nested_limits_ends_its_own_block_only() -> None:
    reached: list[str] = []
    with timeout(60):
        with pytest.raises(TimeoutError, match=r"0\.02"), timeout(0.02):
            spin()
        reached.append("behind the inner block")
    with pytest.raises(TimeoutError, match=r"0\.02"), timeout(0.02), timeout(60):
        spin()
    assert reached == ["behind the inner block"]


def test_an_error_of_the_block_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), timeout(60):
        raise ZeroDivisionError

    async def fail() -> None:
        async with timeout(60):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(fail())


def test_no_interruption_comes_after_its_block() -> None:
    late = 0
    for _ in range(300):
        try:
            with timeout(0.001):
                for _ in range(2_000):
                    pass
        except (TimeoutError, AttemptInterrupted):
            late += 1
        for _ in range(50):
            pass
    assert 0 <= late <= 300


async def _sync_block_in_a_coroutine() -> None:
    with timeout(1):
        pass


def _twice_at_once() -> None:
    limit = timeout(1)
    with limit, limit:
        pass


@pytest.mark.parametrize(
    ("use", "problem"),
    [
        (lambda: timeout(0), "timeout"),
        (lambda: timeout("5"), "timeout"),  # type: ignore[arg-type]
        (lambda: asyncio.run(_sync_block_in_a_coroutine()), "async with"),
        (_twice_at_once, "of its own"),
    ],
)
def test_a_limit_that_cannot_work_is_refused(use: Callable[[], object], problem: str) -> None:
    with pytest.raises(InvalidOption, match=problem):
        use()
