"""Hooks around jobs: when they run, what they get, and what an exception in each kind means."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane import (
    Cancel,
    CurrentJob,
    FailedAttempt,
    Fairlane,
    InvalidOption,
    NonRetryable,
    Retry,
    Snooze,
    current_job,
)
from fairlane.core.profiles import ANY, Lane
from fairlane.testing import run_due
from fairlane.worker import runner
from fairlane.worker.attempts import PreparedTask
from tests.worker import hooked
from tests.worker.conftest import Works, eventually

ONE = Lane("one", 1, (ANY,))
ONCE = Retry(max_attempts=1)
TWICE = Retry(max_attempts=2, delays=(0.0,))

Drain = Callable[[], Any]


@pytest.fixture(params=["worker", "run_due"])
def drain(request: pytest.FixtureRequest, works: Works) -> Drain:
    """Each way of running jobs in this process."""
    return (lambda: works.drain(ONE)) if request.param == "worker" else (lambda: run_due(works.app))


def tasks_of(app: Fairlane, body: Callable[[], Any], **options: Any) -> list[Any]:
    """The same task as a plain function and as a coroutine."""

    @app.task(name="plain", **options)
    def plain() -> Any:
        return body()

    @app.task(name="async", **options)
    async def on_loop() -> Any:
        return body()

    return [plain, on_loop]


def test_hooks_run_in_the_documented_order(works: Works, drain: Drain) -> None:
    seen: list[str] = []

    def add(owner: Any, name: str) -> None:
        @owner.around_job
        def around(job: CurrentJob) -> Iterator[None]:
            seen.append(f"enter {name}")
            yield
            seen.append(f"leave {name}")

        owner.before_job(lambda job: seen.append(f"before {name}"))
        owner.after_job(lambda job, result: seen.append(f"after {name} {result}"))
        owner.on_failure(lambda job, failed: seen.append(f"failed {name}"))

    for task in tasks_of(works.app, lambda: seen.append("run") or 1):  # type: ignore[func-returns-value]
        add(task, "task")
    add(works.app, "first")
    add(works.app, "second")

    @works.app.task(name="other")
    def other() -> None:
        seen.append("other")

    expected = ["enter first", "enter second", "enter task", "before first", "before second", "before task", "run"]
    expected += ["leave task", "leave second", "leave first", "after task 1", "after second 1", "after first 1"]
    for name in ("plain", "async"):
        seen.clear()
        works.app.tasks[name].enqueue()
        drain()
        assert seen == expected
    seen.clear()
    other.enqueue()
    drain()
    assert not any("task" in line for line in seen)


def test_async_hooks_surround_the_plain_ones_of_a_plain_task_and_share_its_context(works: Works, drain: Drain) -> None:
    seen: list[tuple[str, bool]] = []
    trace: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="")

    def note(what: str) -> None:
        seen.append((f"{what} {trace.get()}".strip(), threading.current_thread() is threading.main_thread()))

    @works.app.around_job
    def plain_span(job: CurrentJob) -> Iterator[None]:
        note("plain")
        token = trace.set(trace.get() + "p")
        yield
        trace.reset(token)

    @works.app.around_job
    async def span(job: CurrentJob) -> AsyncIterator[None]:
        token = trace.set(trace.get() + "a")
        await asyncio.sleep(0)
        yield
        await asyncio.sleep(0)
        trace.reset(token)
        note("left")

    @works.app.before_job
    async def before(job: CurrentJob) -> None:
        await asyncio.sleep(0)
        note("before")

    plain, on_loop = tasks_of(works.app, lambda: note("run"), retry=ONCE)
    handle = plain.enqueue()
    drain()
    assert handle.status() == "completed"
    assert [what for what, _ in seen] == ["before a", "plain a", "run ap", "left"]
    assert [is_main for _, is_main in seen] == [True, False, False, True]
    seen.clear()
    handle = on_loop.enqueue()
    drain()
    assert handle.status() == "completed"
    assert [what for what, _ in seen] == ["plain", "before pa", "run pa", "left p"]


def test_the_job_is_there_in_every_hook(works: Works, drain: Drain) -> None:
    seen: list[Any] = []

    def see(job: CurrentJob, *_: Any) -> None:
        assert current_job() is job
        job.log("seen")
        seen.append((job.tenant, job.arguments, job.headers, job.attempt))

    @works.app.around_job
    def around(job: CurrentJob) -> Iterator[None]:
        see(job)
        yield
        see(job)

    works.app.before_job(see)
    works.app.after_job(see)

    @works.app.task(name="greet")
    def greet(name: str) -> None:
        pass

    greet.using(tenant="acme", headers={"traceparent": "00-1"}).enqueue("Ann")
    drain()
    assert seen == [("acme", {"name": "Ann"}, {"traceparent": "00-1"}, 1)] * 4


@pytest.mark.parametrize("kind", ["before", "around", "leave"])
def test_an_exception_before_or_around_fails_the_attempt(works: Works, drain: Drain, kind: str) -> None:
    ran: list[int] = []
    failures: list[FailedAttempt] = []

    @works.app.before_job
    def before(job: CurrentJob) -> None:
        if kind == "before":
            raise NonRetryable("not today")

    @works.app.around_job
    def around(job: CurrentJob) -> Iterator[None]:
        if kind == "around":
            raise NonRetryable("not today")
        yield
        if kind == "leave":
            raise NonRetryable("not today")

    works.app.on_failure(lambda job, failed: failures.append(failed))
    handles = [task.enqueue() for task in tasks_of(works.app, lambda: ran.append(1))]
    drain()
    for handle in handles:
        assert (handle.job().status, handle.job().last_error) == ("dead", "not today")
    assert len(ran) == (2 if kind == "leave" else 0)
    assert [(str(failed.exception), failed.is_dead) for failed in failures] == [("not today", True)] * 2


def test_an_around_hook_may_replace_an_exception_but_not_swallow_it(works: Works, drain: Drain) -> None:
    seen: list[str] = []

    @works.app.around_job
    def swallow(job: CurrentJob) -> Iterator[None]:
        try:
            yield
        except ConnectionError as error:
            seen.append(str(error))

    def body() -> None:
        raise ConnectionError("gone")

    tasks = tasks_of(works.app, body, retry=ONCE)
    handles = [task.enqueue() for task in tasks]
    drain()
    assert seen == ["gone", "gone"]
    assert [handle.job().last_error for handle in handles] == ["gone", "gone"]

    @works.app.around_job
    async def replace(job: CurrentJob) -> AsyncIterator[None]:
        try:
            yield
        except ConnectionError:
            raise Cancel("nobody needs it") from None

    handles = [task.enqueue() for task in tasks]
    drain()
    assert [handle.status() for handle in handles] == ["cancelled", "cancelled"]


def test_on_failure_learns_whether_the_job_runs_again(works: Works, drain: Drain) -> None:
    seen: list[tuple[str, float | None, bool, bool, str]] = []

    async def plain(job: CurrentJob, failed: FailedAttempt) -> None:
        error = failed.exception
        seen.append((str(error), failed.retry_in_s, failed.will_retry, failed.is_dead, failed.error_class))
        assert error.__traceback__ is not None

    works.app.on_failure(plain)

    def body() -> None:
        raise ConnectionError(f"attempt {current_job().attempt}")

    tasks_of(works.app, body, retry=TWICE)[0].enqueue()
    drain()
    assert seen == [("attempt 1", 0.0, True, False, "transient"), ("attempt 2", None, False, True, "transient")]


@pytest.mark.parametrize("raised", [Snooze(3600), Cancel("no")])
def test_an_attempt_that_neither_returned_nor_failed_calls_neither(works: Works, drain: Drain, raised: Any) -> None:
    seen: list[Any] = []
    works.app.after_job(lambda job, result: seen.append(result))
    works.app.on_failure(lambda job, failed: seen.append(failed))

    def body() -> None:
        raise raised

    for task in tasks_of(works.app, body):
        task.enqueue()
    drain()
    assert seen == []


def test_a_job_that_cannot_begin_or_whose_result_cannot_be_kept_has_failed(works: Works, drain: Drain) -> None:
    before, failures = [], []
    works.app.before_job(before.append)
    works.app.on_failure(lambda job, failed: failures.append(failed))

    @works.app.task(name="read")
    def read(number: int) -> Any:
        return object()

    read.enqueue(1)
    works.app.tasks.enqueue("read", {"number": "one"})
    drain()
    assert len(before) == 1
    assert sorted(type(failed.exception).__name__ for failed in failures) == ["UnreadablePayload", "ValueError"]
    assert all(failed.is_dead for failed in failures)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_exception_in_after_job_or_on_failure_is_logged_and_changes_nothing(
    works: Works, drain: Drain, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def bad(job: CurrentJob, ended: Any) -> None:
        raise SystemExit("hook")

    async def abad(job: CurrentJob, ended: Any) -> None:
        raise SystemExit("hook")

    works.app.after_job(lambda job, result: seen.append("after"))
    works.app.on_failure(lambda job, failed: seen.append("failed"))
    works.app.after_job(abad if is_async else bad)
    works.app.on_failure(abad if is_async else bad)

    def body() -> str:
        if len(seen):
            raise NonRetryable("no")
        return "done"

    task = tasks_of(works.app, body)[is_async]
    good = task.enqueue()
    with caplog.at_level(logging.ERROR, "fairlane.jobs"):
        drain()
        bad_job = task.enqueue()
        drain()
    assert (good.result(timeout=0), bad_job.job().last_error) == ("done", "no")
    assert seen == ["after", "failed"]
    logged = [record for record in caplog.records if "the outcome of the job stands" in record.getMessage()]
    assert len(logged) == 2
    assert "bad of job" in logged[0].getMessage()
    assert "SystemExit: hook" in caplog.text


@pytest.mark.parametrize("is_async", [False, True])
def test_a_hook_that_hangs_loses_no_outcome(works: Works, monkeypatch: pytest.MonkeyPatch, is_async: bool) -> None:
    monkeypatch.setattr(runner, "HOOKS_S", 0.6)
    release = threading.Event()

    def hang(job: CurrentJob, ended: Any) -> None:
        release.wait(30)

    async def ahang(job: CurrentJob, ended: Any) -> None:
        await asyncio.sleep(30)

    works.app.after_job(ahang if is_async else hang)

    @works.app.task(name="quick", timeout=0.5)
    def quick() -> str:
        return "done"

    handles = [quick.enqueue(), quick.enqueue()]
    works.drain(ONE)
    release.set()
    assert [(handle.result(timeout=0), handle.job().attempts) for handle in handles] == [("done", 0)] * 2


@pytest.mark.parametrize("name", ["shop.hurry", "stuck"])
def test_a_timeout_is_a_failure_whose_hook_may_still_write_to_the_job(works: Works, name: str) -> None:
    seen: list[BaseException] = []
    release = threading.Event()

    @works.app.task(name="stuck", timeout=0.2, max_attempts=1)
    def stuck() -> None:
        release.wait(30)

    @works.app.on_failure
    async def failed(job: CurrentJob, failed: FailedAttempt) -> None:
        await asyncio.sleep(0.01)
        job.log("it was too slow")
        seen.append(failed.exception)

    handle = works.app.tasks[name].enqueue()
    works.drain(ONE)
    release.set()
    assert [str(error) for error in seen] == ["ran longer than its timeout of 0.2 s"]
    detail = works.app.jobs.detail(handle)
    assert detail is not None
    assert [line.message for line in detail.log] == ["it was too slow"]
    assert handle.job().error_type == "TimeoutError"


def test_a_shutdown_during_hooks_keeps_the_outcome(works: Works) -> None:
    async def story() -> None:
        engine = works.engine(ONE, grace_s=0.0)
        loop = asyncio.create_task(engine.run())
        await eventually(begun.is_set)
        engine.stop_now()
        await loop

    begun = threading.Event()

    @works.app.after_job
    async def slow(job: CurrentJob, result: Any) -> None:
        begun.set()
        await asyncio.sleep(30)

    handle = works.task("add").enqueue(1, 2)
    asyncio.run(story())
    assert handle.result(timeout=0) == 3


def test_hooks_use_resources(works: Works, drain: Drain) -> None:
    opened: list[str] = []

    @works.app.resource
    def session() -> Iterator[list[str]]:
        opened.append("open")
        yield opened
        opened.append("close")

    @works.app.around_job
    def around(job: CurrentJob) -> Iterator[None]:
        session().append("around")
        yield

    works.app.after_job(lambda job, result: session().append("after"))
    plain, on_loop = tasks_of(works.app, lambda: session().append("run"))
    for task in (plain, on_loop):
        opened.clear()
        task.enqueue()
        drain()
        assert opened == ["open", "around", "run", "close", "open", "after", "close"]


def test_without_hooks_a_worker_calls_the_function_itself(works: Works) -> None:
    task = PreparedTask(works.app, works.task("add"))
    assert task.function is works.task("add").definition.function
    assert (task.outer, task.after, task.on_failure) == (None, (), ())


def test_a_hook_of_the_wrong_shape_is_refused_where_it_is_registered(works: Works) -> None:
    app: Any = works.app

    def generator(job: CurrentJob) -> Iterator[None]:
        yield

    for register, hook in [
        (app.before_job, lambda: None),
        (app.before_job, generator),
        (app.after_job, lambda job: None),
        (app.on_failure, 5),
        (app.around_job, lambda job: None),
        (works.task("add").around_job, lambda: (yield)),
    ]:
        with pytest.raises(InvalidOption, match="a function, plain or async, that takes"):
            register(hook)
    assert PreparedTask(works.app, works.task("add")).function is works.task("add").definition.function


@pytest.fixture
def diary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "diary"
    path.touch()
    monkeypatch.setenv("SHOP_DIARY", str(path))
    return path


def test_hooks_of_an_isolated_task_run_in_its_process_and_lose_no_outcome(
    diary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "HOOKS_S", 0.5)
    works = Works()
    works.app.close()
    works.app = hooked.app
    handles = {how: hooked.alone.enqueue(how) for how in ("fine", "fail")}
    handles["loop"] = hooked.alone.using(timeout=0.5, max_attempts=1).enqueue("loop")
    handles |= {how: hooked.alone.enqueue(how) for how in ("hang", "die")}
    works.drain(ONE, app="tests.worker.hooked:app")
    lines = diary.read_text().splitlines()
    begin = ["enter async", "enter", "before", "run"]
    assert {how: [" ".join(line.split()[1:-1]) for line in lines if line.startswith(how)] for how in handles} == {
        "fine": [*begin, "leave", "after fine"],
        "fail": [*begin, "failed ConnectionError retried", *begin, "failed ConnectionError dead"],
        "loop": [*begin, "failed TimeoutError dead"],
        "hang": [*begin, "leave", "after hang"],
        "die": [*begin, "leave", "after die"],
    }
    # Only the failure of an attempt whose process was killed is reported by the worker.
    assert [line for line in lines if line.endswith(f" {os.getpid()}")] == [
        f"loop: failed TimeoutError dead {os.getpid()}"
    ]
    assert [handles[how].result(timeout=0) for how in ("fine", "hang", "die")] == ["fine", "hang", "die"]
    assert [handle.job().crashes for handle in handles.values()] == [0] * 5
