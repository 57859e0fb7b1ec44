"""Handles: status, result, cancel."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from fairlane import (
    Fairlane,
    FakeClock,
    InvalidOption,
    InvalidState,
    JobFailed,
    JobNotFound,
    ResultTimeout,
    Retry,
    SyncTask,
)
from fairlane.core.job import Lease
from fairlane.core.outcome import Completed, Outcome
from fairlane.testing import run_due
from tests.client.conftest import MovingPause


@pytest.fixture
def add(app: Fairlane) -> SyncTask[[int, int], int]:
    @app.task(name="add", max_attempts=1)
    def add(a: int, b: int) -> int:
        return a + b

    return add


def test_a_result_is_awaited_with_pauses_that_grow(
    app: Fairlane, add: SyncTask[[int, int], int], pause: MovingPause
) -> None:
    handle = add.enqueue(1, 2)
    pause.before = lambda: None if len(pause.pauses) < 15 else drop(run_due(app))
    assert handle.result() == 3
    assert len(pause.pauses) == 15
    assert pause.pauses == sorted(pause.pauses)
    assert pause.pauses[0] < 0.01
    assert pause.pauses[-1] == 0.5


def drop(_: object) -> None: ...


def test_a_result_that_does_not_come_times_out_with_the_status(
    add: SyncTask[[int, int], int], pause: MovingPause, clock: FakeClock
) -> None:
    handle = add.enqueue(1, 2)
    began = clock.monotonic()
    with pytest.raises(ResultTimeout, match=r"is still pending after 5 s; is a worker running") as raised:
        handle.result(timeout=5)
    assert (raised.value.status, raised.value.waited_s) == ("pending", 5)
    assert clock.monotonic() - began == pytest.approx(5)
    with pytest.raises(TimeoutError):
        asyncio.run(handle.aresult(timeout=0))


@pytest.mark.requirement("W7")
def test_an_async_caller_awaits_the_same_result(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    handle = add.enqueue(1, 2)
    run_due(app)
    assert asyncio.run(handle.aresult(timeout=1)) == 3
    assert asyncio.run(handle.astatus()) == "completed"
    assert asyncio.run(handle.ajob()).result == "3"


def test_a_job_that_died_or_was_cancelled_raises_what_it_ended_with(app: Fairlane) -> None:
    @app.task(name="fall", max_attempts=1)
    def fall() -> None:
        raise ValueError("no ground")

    dead, cancelled = fall.enqueue(), fall.using(delay=60).enqueue()
    cancelled.cancel(by="ada", notes="not needed")
    run_due(app)
    with pytest.raises(JobFailed, match=r"is dead: .*ValueError: no ground") as raised:
        dead.result()
    assert raised.value.status == "dead"
    with pytest.raises(JobFailed, match="is cancelled"):
        asyncio.run(cancelled.aresult())


def test_a_job_waiting_for_its_retry_is_not_the_end(app: Fairlane, pause: MovingPause) -> None:
    tries: list[int] = []

    @app.task(name="shaky", max_attempts=2)
    def shaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError
        return "up"

    handle = shaky.enqueue()
    run_due(app)
    assert handle.status() == "failed"
    pause.before = lambda: drop(run_due(app))
    assert handle.result(timeout=3600) == "up"


def test_cancelling_ends_a_waiting_job_and_is_refused_for_an_ended_one(
    app: Fairlane, add: SyncTask[[int, int], int]
) -> None:
    waiting, ended = add.enqueue(1, 2), add.enqueue(3, 4)
    assert waiting.cancel().status == "cancelled"
    assert asyncio.run(waiting.acancel()).status == "cancelled"
    run_due(app)
    with pytest.raises(InvalidState, match=r"cannot cancel job .*: it is completed"):
        ended.cancel()
    assert [record.by for record in app.audit.list().records] == ["application"]


def test_a_handle_by_id_reads_plain_values_and_tells_of_unknown_jobs(
    app: Fairlane, add: SyncTask[[int, int], int]
) -> None:
    handle = add.using(tenant="acme").enqueue(1, 2)
    run_due(app)
    assert app.jobs.handle(str(handle.id)).result(timeout=0) == 3
    assert app.jobs.handle(handle.job()).result(timeout=0) == 3
    with pytest.raises(JobNotFound):
        app.jobs.handle(handle.id, tenant="other").status()
    with pytest.raises(JobNotFound):
        app.jobs.handle("00000000-0000-7000-8000-000000000000").cancel()


def test_a_result_of_another_shape_is_reported_not_guessed(app: Fairlane) -> None:
    def old() -> Any:
        return {"not": "an int"}

    old.__annotations__ = {}
    app.task(name="count")(old)
    handle = app.tasks["count"].using(idempotency_key="k").enqueue()
    run_due(app)
    app.runtime.tasks.clear()

    @app.task(name="count")
    def count() -> int:
        return 1

    again = count.using(idempotency_key="k").enqueue()
    assert again.id == handle.id
    with pytest.raises(JobFailed, match="UnreadableResult"):
        again.result()


def test_a_handle_shows_what_it_stands_for(add: SyncTask[[int, int], int]) -> None:
    first = add.using(idempotency_key="k").enqueue(1, 2)
    assert repr(first) == f"<Handle add {first.id}>"
    assert repr(add.using(idempotency_key="k").enqueue(1, 2)) == f"<Handle add {first.id} (duplicate)>"


def test_handles_of_one_job_are_equal(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    handles = app.enqueue_many([add.bind(1, 2), add.bind(3, 4)])
    assert handles[0] == handles[0]
    assert {*handles} == {handles[1], handles[0]}
    assert handles.index(handles[1]) == 1
    assert handles[0] != handles[1]
    assert handles[0] != handles[0].id


def test_what_ran_is_told(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    add.enqueue(1, 2)
    [(lease, outcome, error)] = run_due(app)
    assert error is None
    kinds: tuple[Lease, Outcome] = (lease, outcome)
    assert (kinds[0].type, type(kinds[1])) == ("add", Completed)
    assert run_due(app) == ()


def test_waiting_for_a_result_on_an_event_loop_is_refused(app: Fairlane) -> None:
    handle = app.task(name="t")(lambda: None).enqueue()

    async def story() -> None:
        with pytest.raises(RuntimeError, match=r"would block the event loop .* use await handle\.aresult\(\)"):
            handle.result(timeout=1)
        with pytest.raises(ResultTimeout):
            handle.result(timeout=0)  # does not wait
        await asyncio.to_thread(run_due, app)
        await handle.aresult(timeout=1)
        await asyncio.to_thread(handle.result, 1)

    asyncio.run(story())


def test_a_timeout_says_when_a_job_that_waits_runs_next(app: Fairlane, clock: FakeClock) -> None:
    @app.task(name="t", retry=Retry(delays=(90.0,)))
    def task() -> None:
        raise ConnectionError("no line")

    handle, later = task.enqueue(), task.using(delay=60).enqueue()
    with pytest.raises(ResultTimeout, match="is a worker running that knows its task"):
        handle.result(timeout=0)
    run_due(app)
    next_at = clock.now() + timedelta(seconds=90)
    with pytest.raises(
        ResultTimeout, match=r"last attempt failed \(ConnectionError: no line\) and it runs next at"
    ) as told:
        handle.result(timeout=0)
    assert told.value.next_at == next_at
    with pytest.raises(ResultTimeout, match="it is scheduled and it runs next at"):
        later.result(timeout=0)


def test_a_result_that_its_task_keeps_for_an_hour_is_gone_after_it(app: Fairlane, clock: FakeClock) -> None:
    task = app.task(name="t", result_expires=timedelta(hours=1))(lambda: 7)
    handle = task.enqueue()
    run_due(app)
    clock.advance(3599)
    assert handle.result(timeout=0) == 7
    clock.advance(2)
    with pytest.raises(JobFailed, match="its result was kept for 3600 s"):
        handle.result(timeout=0)
    assert handle.status() == "completed"
    with pytest.raises(InvalidOption, match="result_expires"):
        app.task(name="u", result_expires=-1)(lambda: None)
