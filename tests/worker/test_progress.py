"""What running jobs say, what they hear, and what they leave behind."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from fairlane import AttemptCancelled, Fairlane, LeaseLost, Retry, current_job
from fairlane.core.ids import JobId
from fairlane.core.job import JobSpec
from fairlane.core.ops import LOG_LINES, Enqueue, Note, Op
from fairlane.core.profiles import ANY, Lane
from fairlane.stores.sqlite import MemoryStore
from fairlane.worker import progress
from tests.worker import studio
from tests.worker.conftest import Works, eventually

ONCE = Retry(max_attempts=1)


@pytest.mark.requirement("L6")
def test_progress_and_log_of_a_job_can_be_read_while_it_runs_and_afterwards(works: Works) -> None:
    go_on = asyncio.Event()

    @works.app.task(name="export")
    async def export() -> None:
        current_job().progress(0.25)
        current_job().log("first page")
        await go_on.wait()
        current_job().progress(1)
        current_job().log("last page")

    handle = export.enqueue()

    def said() -> tuple[float | None, list[str]]:
        detail = works.app.jobs.detail(handle)
        assert detail is not None
        return detail.progress, [line.message for line in detail.log]

    async def story() -> None:
        engine = works.engine()
        running = asyncio.create_task(engine.run())
        await eventually(lambda: said() == (0.25, ["first page"]))
        go_on.set()
        await eventually(lambda: handle.status() == "completed")
        engine.stop()
        await running

    asyncio.run(story())
    assert said() == (1.0, ["first page", "last page"])


@pytest.mark.requirement("D17")
def test_a_job_that_leaves_its_attempts_to_the_policy_sees_those_of_its_task(works: Works) -> None:
    @works.app.task(name="export", max_attempts=7)
    async def export() -> int:
        return current_job().max_attempts

    for retry, shown in ((b'{"by_policy":true}', "7"), (b'{"max_attempts":3}', "3")):
        made = JobId(works.app.runtime.new_job_id())
        spec = JobSpec(id=made, type="export", payload=Raw(b"{}"), max_attempts=3, retry=Raw(retry))
        works.app.runtime.store.run(Enqueue(jobs=(spec,)))
        works.drain()
        job = works.app.jobs.get(made)
        assert job is not None
        assert job.result == shown


def test_a_chatty_job_is_written_down_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[Note] = []

    class Counted(MemoryStore):
        async def arun(self, op: Op[Any], *, on: object | None = None) -> Any:
            if isinstance(op, Note):
                notes.append(op)
            return await super().arun(op, on=on)

    works = Works()
    works.app = Fairlane(store=Counted(), profile="development")

    @works.app.task(name="chat")
    async def chat() -> None:
        for n in range(500):
            current_job().progress(n / 500)
            current_job().log(f"line {n}")
            await asyncio.sleep(0)

    handle = chat.enqueue()
    works.drain()
    detail = works.app.jobs.detail(handle)
    assert detail is not None
    assert len(notes) <= 3
    assert [line.message for line in detail.log] == [f"line {n}" for n in range(500 - LOG_LINES, 500)]
    assert detail.progress == 499 / 500


def test_a_job_in_a_thread_speaks_too_and_what_failing_jobs_said_is_kept(works: Works) -> None:
    @works.app.task(name="block", retry=ONCE)
    def block() -> None:
        current_job().log("about to fail")
        current_job().progress(0.5)
        raise ConnectionError

    handle = block.enqueue()
    works.drain()
    detail = works.app.jobs.detail(handle)
    assert detail is not None
    assert (detail.job.status, detail.progress, [line.message for line in detail.log]) == (
        "dead",
        0.5,
        ["about to fail"],
    )


@pytest.mark.requirement("L6", "Q9")
def test_an_isolated_job_speaks_and_has_resources_like_any_other(works: Works) -> None:
    works.app.runtime.tasks.update({name: works._moved(task) for name, task in studio.app.tasks.items()})
    works.app.runtime.has_resources = True
    handles = [works.app.tasks["studio.recite"].enqueue(f"song {n}") for n in range(2)]
    works.drain(Lane("one", 1, (ANY,)), app="tests.worker.studio:app")
    for n, handle in enumerate(handles):
        detail = works.app.jobs.detail(handle)
        assert detail is not None
        assert [line.message for line in detail.log] == ["the booth is open", f"song {n}", "the booth is closed"]
        assert detail.progress == 1.0
        assert 15 < handle.result(timeout=0) <= 20
    [breaker] = works.app.breakers.list()
    assert (breaker.name, breaker.state, breaker.failures) == ("smtp", "closed", 0)


def test_an_attempt_that_lost_its_lease_writes_nothing_and_stops(works: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "WRITE_S", 0.01)
    stopped: list[str] = []

    @works.app.task(name="linger", max_attempts=5)
    async def linger() -> None:
        if current_job().attempt > 1:
            return
        try:
            while True:
                current_job().log("still here")
                await asyncio.sleep(0.02)
        except BaseException as error:
            stopped.append(type(error).__name__)
            raise

    handle = linger.enqueue()

    async def story() -> None:
        engine = works.engine()
        running = asyncio.create_task(engine.run())
        await eventually(lambda: handle.job().started_at is not None)
        works.app.jobs.reset(handle, by="ada")
        await eventually(lambda: handle.status() == "completed")
        await eventually(lambda: bool(stopped))
        engine.stop()
        await running

    asyncio.run(story())
    detail = works.app.jobs.detail(handle)
    assert detail is not None
    assert stopped == ["CancelledError"]
    assert [attempt.outcome for attempt in detail.attempts] == ["released", "completed"]


@pytest.mark.requirement("L9")
def test_a_plain_function_learns_between_steps_that_it_should_stop(works: Works) -> None:
    heard: list[BaseException] = []
    ended = threading.Event()

    @works.app.task(name="grind", retry=ONCE, timeout=0.1)
    def grind() -> None:
        try:
            while not ended.wait(0.01):
                current_job().progress(0.5)
        except (AttemptCancelled, LeaseLost) as error:
            heard.append(error)
            raise

    handle = grind.enqueue()

    async def story() -> None:
        engine = works.engine()
        running = asyncio.create_task(engine.run())
        await eventually(lambda: handle.status() == "dead" and heard)
        ended.set()
        engine.stop()
        await running

    asyncio.run(story())
    assert str(heard[0]) == "timeout"
    assert handle.job().error_type == "TimeoutError"


def test_a_coroutine_that_swallows_its_cancellation_is_stopped_at_its_next_word(works: Works) -> None:
    @works.app.task(name="deaf", retry=ONCE, timeout=0.1)
    async def deaf() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            current_job().log("so what")

    handle = deaf.enqueue()
    works.drain()
    assert (handle.status(), handle.job().error_type) == ("dead", "TimeoutError")


@pytest.mark.requirement("L6")
def test_a_job_knows_its_deadline_and_its_fence(works: Works) -> None:
    @works.app.task(name="look", timeout=100)
    async def look() -> tuple[float, int]:
        job = current_job()
        return (job.deadline_at - works.app.runtime.clock.now()).total_seconds(), job.fence[1]

    # Slots are few: most of these are claimed ahead, with a lease that only says when they have to start.
    handles = [look.enqueue() for _ in range(50)]
    works.drain(Lane("one", 1, (ANY,)))
    assert all(99 < handle.result()[0] <= 100 and handle.result()[1] == 1 for handle in handles)


@pytest.mark.requirement("Q7")
def test_the_last_exceptions_are_kept_and_logged_with_structure(works: Works, caplog: pytest.LogCaptureFixture) -> None:
    @works.app.task(name="fail", retry=Retry(max_attempts=2, delays=(0.0,)))
    async def fail(n: int) -> None:
        raise ConnectionError(f"call {n}")

    handle = fail.using(tenant="acme").enqueue(0)
    works.drain()
    first, last = works.app.runtime.last_exceptions
    assert (first.id, first.type, first.error, first.is_final) == (handle.id, "ConnectionError", "call 0", False)
    assert (last.attempt, last.is_final, last.task, last.tenant) == (2, True, "fail", "acme")
    [record] = [record for record in caplog.records if record.name == "fairlane.jobs" and record.levelname == "ERROR"]
    assert (record.job_id, record.error_class, record.attempt) == (str(handle.id), "transient", 2)  # type: ignore[attr-defined]

    for n in range(120):
        fail.using(max_attempts=1).enqueue(n)
    works.drain()
    assert (len(works.app.runtime.last_exceptions), works.app.runtime.last_exceptions.total) == (100, 122)
    assert works.app.runtime.last_exceptions[-1].error == "call 119"


@pytest.mark.requirement("Q7")
def test_the_last_exceptions_are_read_from_outside_the_worker_without_secrets(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with Fairlane(url) as inside, Fairlane(url) as outside:

        @inside.task(name="fail", retry=Retry(max_attempts=2, delays=(0.0,)))
        async def fail(n: int) -> None:
            raise ConnectionError(f"call {n} with password=hunter2-canary")

        handles = [fail.using(tenant="acme").enqueue(n) for n in range(2)]
        with inside.running():
            asyncio.run(eventually(lambda: len(outside.workers.exceptions()) == 4, 30.0))
            found = outside.workers.exceptions()
            assert outside.workers.exceptions(tenant="globex") == ()
        assert {one.caught.id for one in found} == {handle.id for handle in handles}
        assert {(one.caught.type, one.caught.attempt, one.caught.is_final) for one in found} == {
            ("ConnectionError", 1, False),
            ("ConnectionError", 2, True),
        }
        assert all("call" in one.caught.error and "hunter2" not in one.caught.error for one in found)
        assert outside.workers.exceptions() == (), "they go with the worker's row"
