"""Batch tasks: one call takes several jobs of one tenant, and each of them ends on its own."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from fairlane import (
    Breaker,
    Cancel,
    CurrentJob,
    FailedAttempt,
    Fairlane,
    NonRetryable,
    Retry,
    Snooze,
    astep,
    current_job,
)
from fairlane.client.context import job_in_force
from fairlane.client.signature import Batch
from fairlane.core.job import Lease
from fairlane.core.ops import Lapse, Start, Turn, Want
from fairlane.core.profiles import Lane
from fairlane.errors import BadInput, InvalidOption, InvalidState, PermissionDenied
from fairlane.worker import watchdog
from fairlane.worker.attempts import BreakerGuard
from tests.worker.conftest import Works, eventually

ONE = Lane("one", 1)


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Counter:
    """An application with batch tasks, and the calls that they got."""

    def __init__(self, works: Works) -> None:
        self.works, self.app = works, works.app
        self.calls: list[list[int]] = []
        self.began, self.gate = threading.Event(), asyncio.Event()
        app = self.app

        @app.task(name="double", batch=4, within=0.05, retry=Retry(max_attempts=2, base_s=0))
        async def double(numbers: list[int]) -> list[int | Exception]:
            self.calls.append(numbers)
            return [number * 2 if number >= 0 else NonRetryable(f"negative: {number}") for number in numbers]

        @app.task(name="plain", batch=4, within=0.05)
        def plain(numbers: list[int]) -> None:
            self.calls.append(numbers)

        @app.task(name="breaks", batch=4, within=0.05, retry=Retry(max_attempts=2, base_s=0))
        def breaks(numbers: list[int]) -> list[int]:
            self.calls.append(numbers)
            if len(self.calls) == 1:
                raise ConnectionError("away")
            return numbers

        @app.task(name="waits", batch=4, within=0.05, timeout=30, retry=Retry(max_attempts=1))
        async def waits(numbers: list[int]) -> list[int]:
            self.calls.append(numbers)
            self.began.set()
            await self.gate.wait()
            return numbers

        self.double, self.plain, self.breaks, self.waits = double, plain, breaks, waits

    def statuses(self, *handles: Any) -> list[str]:
        return [handle.status() for handle in handles]


@pytest.fixture
def counter(works: Works) -> Counter:
    return Counter(works)


@pytest.mark.requirement("L18")
def test_jobs_of_one_tenant_run_in_one_call_and_each_has_its_result(counter: Counter) -> None:
    handles = [counter.double.enqueue(number) for number in range(6)]
    counter.works.drain(ONE)
    assert [handle.result(timeout=0) for handle in handles] == [0, 2, 4, 6, 8, 10]
    assert counter.calls == [[0, 1, 2, 3], [4, 5]]  # the second waited for others in vain


def test_jobs_of_two_tenants_never_meet_in_a_call(counter: Counter) -> None:
    for number in range(6):
        counter.plain.using(tenant=f"tenant-{number % 2}").enqueue(number)
    counter.works.drain()
    assert sorted(counter.calls) == [[0, 2, 4], [1, 3, 5]]


def test_one_fails_while_the_others_complete(counter: Counter) -> None:
    handles = [counter.double.enqueue(number) for number in (1, -1, 2)]
    counter.works.drain()
    assert counter.statuses(*handles) == ["completed", "dead", "completed"]
    assert "negative: -1" in str(counter.app.jobs.detail(handles[1].id).attempts[-1].error_message)


def test_a_call_that_raises_fails_each_job_which_follows_its_own_policy(counter: Counter) -> None:
    patient, hasty = counter.breaks.enqueue(1), counter.breaks.using(max_attempts=1).enqueue(2)
    counter.works.drain()
    assert counter.statuses(patient, hasty) == ["completed", "dead"]
    assert counter.calls == [[1, 2], [1]]


def test_a_list_of_another_length_ends_every_job_and_says_why(works: Works) -> None:
    @works.app.task(batch=3, name="short")
    def short(numbers: list[int]) -> list[int]:
        return numbers[1:]

    handles = [short.enqueue(number) for number in range(3)]
    works.drain()
    assert [handle.status() for handle in handles] == ["dead"] * 3
    attempt = works.app.jobs.detail(handles[0].id).attempts[-1]
    assert "returned 2 entries for 3 jobs" in str(attempt.error_message)


def test_a_payload_that_cannot_be_read_fails_alone(counter: Counter) -> None:
    good = counter.double.enqueue(1)
    bad = counter.app.tasks.enqueue("double", {"numbers": "x"})
    counter.works.drain()
    assert counter.statuses(good, bad) == ["completed", "dead"]
    assert counter.calls == [[1]]


def test_verdicts_count_for_the_job_that_has_them(works: Works) -> None:
    @works.app.task(batch=3, name="verdicts", within=0.05)
    def verdicts(numbers: list[int]) -> list[int | Exception]:
        return [Snooze(3600), Cancel("no longer wanted"), 7]

    handles = [verdicts.enqueue(number) for number in range(3)]
    works.drain()
    assert [handle.status() for handle in handles] == ["pending", "cancelled", "completed"]


def test_a_plain_function_runs_in_a_thread_with_its_jobs_in_force(works: Works) -> None:
    seen: list[Any] = []

    @works.app.task(batch=3, name="seen", within=0.05)
    def look(numbers: list[int]) -> None:
        jobs = current_job().batch
        for number, job in zip(numbers, jobs, strict=True):
            job.log(f"number {number}")
        seen.append((threading.current_thread() is threading.main_thread(), [job.id for job in jobs]))
        with pytest.raises(PermissionDenied):
            child.using(tenant="other").enqueue(1)
        child.enqueue(1)

    @works.app.task(name="child")
    def child(number: int) -> None: ...

    handles = [look.using(tenant="acme").enqueue(number) for number in range(3)]
    works.drain()
    assert seen == [(False, [handle.id for handle in handles])]
    assert [note.message for note in works.app.jobs.detail(handles[2].id).log] == ["number 2"]
    (enqueued,) = works.app.jobs.list(type="child").jobs
    assert (enqueued.tenant, enqueued.parent_id) == ("acme", None)  # of three jobs none is its parent
    assert job_in_force.get() is None


def test_steps_are_refused_in_a_call_of_several_jobs(works: Works) -> None:
    refused: list[str] = []

    @works.app.task(batch=2, name="stepping")
    async def stepping(numbers: list[int]) -> None:
        try:
            await astep("charge", int)
        except InvalidState as error:
            refused.append(str(error))

    stepping.enqueue(1)
    works.drain()
    assert "run by a batch task" in refused[0]


def test_hooks_around_run_once_for_the_call_and_those_behind_it_for_each_job(works: Works) -> None:
    said: list[str] = []

    @works.app.task(batch=3, name="hooked", within=0.05, retry=Retry(max_attempts=1))
    async def hooked(numbers: list[int]) -> list[int | Exception]:
        return [ValueError("odd") if number % 2 else number for number in numbers]

    @hooked.before_job
    def before(job: CurrentJob) -> None:
        said.append(f"before {len(job.batch)}")

    @hooked.after_job
    async def after(job: CurrentJob, result: Any) -> None:
        said.append(f"after {result}")

    @hooked.on_failure
    def failed(job: CurrentJob, failure: FailedAttempt) -> None:
        said.append(f"failed {failure.exception}")

    for number in range(3):
        hooked.enqueue(number)
    works.drain()
    assert said == ["before 3", "after 0", "failed odd", "after 2"]


@on_loop
async def test_a_job_cancelled_while_it_is_gathered_is_not_called(works: Works) -> None:
    calls: list[list[int]] = []

    @works.app.task(batch=3, name="slow", within=5.0)
    async def slow(numbers: list[int]) -> None:
        calls.append(numbers)

    handles = [slow.enqueue(number) for number in range(2)]
    engine = works.engine(poll_s=0.05)
    running = asyncio.create_task(engine.run())
    await eventually(lambda: sum(lane.gathered for lane in engine.state.lanes) == 2)
    await works.app.jobs.acancel(handles[0].id)
    await eventually(lambda: works.app.jobs.get(handles[0].id).status == "cancelled")
    await slow.aenqueue(2)
    await slow.aenqueue(3)
    await eventually(lambda: calls)
    assert calls == [[1, 2, 3]]
    engine.stop()
    await running


@on_loop
async def test_jobs_that_are_gathered_go_back_when_the_worker_leaves(works: Works) -> None:
    @works.app.task(batch=3, name="slow", within=30.0)
    async def slow(numbers: list[int]) -> None:
        raise AssertionError("never called")

    handles = [slow.enqueue(number) for number in range(2)]
    engine = works.engine()
    running = asyncio.create_task(engine.run())
    await eventually(lambda: engine.state.lanes[0].gathered == 2)
    engine.stop()
    await asyncio.wait_for(running, 5)
    assert [handle.status() for handle in handles] == ["pending"] * 2
    assert [works.app.jobs.get(handle.id).attempts for handle in handles] == [0, 0]
    assert engine.state.lanes[0].gathered == 0


@on_loop
async def test_one_that_is_cancelled_in_the_call_is_told_and_the_others_go_on(counter: Counter) -> None:
    told: list[Any] = []

    @counter.app.task(batch=2, name="told", within=0.05)
    async def look(numbers: list[int]) -> list[int | Exception]:
        jobs = current_job().batch
        counter.began.set()
        await eventually(lambda: jobs[0].stopping == "cancel")
        told.append([job.stopping for job in jobs])
        return [Cancel("as asked"), 1]

    handles = [look.enqueue(number) for number in range(2)]
    engine = counter.works.engine(poll_s=0.05)
    running = asyncio.create_task(engine.run())
    await eventually(counter.began.is_set)
    await counter.app.jobs.acancel(handles[0].id)
    engine.turns._state.kick.set()
    await eventually(lambda: handles[1].status() == "completed")
    assert told == [["cancel", None]]
    engine.stop()
    await running
    assert counter.statuses(*handles) == ["cancelled", "completed"]


@on_loop
async def test_one_that_is_cancelled_while_hooks_run_behind_the_call_ends_as_it_was_decided(counter: Counter) -> None:
    @counter.app.task(batch=2, name="hooked", within=0.05)
    async def hooked(numbers: list[int]) -> list[int]:
        return numbers

    @hooked.after_job
    async def after(job: CurrentJob, result: int) -> None:
        counter.began.set()
        await counter.gate.wait()

    handles = [hooked.enqueue(number) for number in range(2)]
    engine = counter.works.engine(poll_s=0.05)
    running = asyncio.create_task(engine.run())
    await eventually(counter.began.is_set)
    await counter.app.jobs.acancel(handles[1].id)
    engine.turns._state.kick.set()
    await eventually(lambda: any(slot.stopping == "cancel" for slot in engine.state.slots))
    counter.gate.set()
    await eventually(lambda: counter.statuses(*handles) == ["completed"] * 2)
    engine.stop()
    await running


@on_loop
@pytest.mark.parametrize("cancelled", [1, 2])
async def test_those_that_are_cancelled_while_their_call_waits_for_its_breaker(
    counter: Counter, cancelled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is told in the call; a call that nobody wants any more does not begin."""
    told: list[Any] = []

    @counter.app.task(batch=2, name="guarded", within=0.05, breaker=Breaker("smtp", threshold=9))
    async def guarded(numbers: list[int]) -> list[int | Exception]:
        told.extend(job.stopping for job in current_job().batch)
        return [Cancel("as asked") if job.stopping else 1 for job in current_job().batch]

    handles = [guarded.enqueue(number) for number in range(2)]
    engine = counter.works.engine(poll_s=0.05)
    entering = BreakerGuard.run_all

    async def late(*args: Any) -> Any:
        counter.began.set()
        await counter.gate.wait()
        return await entering(*args)

    monkeypatch.setattr(BreakerGuard, "run_all", late)
    running = asyncio.create_task(engine.run())
    await eventually(counter.began.is_set)
    for handle in handles[:cancelled]:
        await counter.app.jobs.acancel(handle.id)
    engine.turns._state.kick.set()
    await eventually(lambda: sum(slot.stopping == "cancel" for slot in engine.state.slots) == cancelled)
    counter.gate.set()
    await eventually(lambda: counter.statuses(*handles[:cancelled]) == ["cancelled"] * cancelled)
    await eventually(lambda: not engine.state.busy())
    assert told == ([] if cancelled == 2 else ["cancel", None])
    assert engine.state.lanes[0].gathered == 0
    engine.stop()
    await running


@on_loop
async def test_a_call_all_of_whose_jobs_are_cancelled_is_interrupted(counter: Counter) -> None:
    handles = [counter.waits.enqueue(number) for number in range(2)]
    engine = counter.works.engine(poll_s=0.05)
    running = asyncio.create_task(engine.run())
    await eventually(counter.began.is_set)
    for handle in handles:
        await counter.app.jobs.acancel(handle.id)
    await eventually(lambda: counter.statuses(*handles) == ["cancelled"] * 2)
    after = counter.double.enqueue(5)  # its slot runs on
    await eventually(lambda: after.status() == "completed")
    engine.stop()
    await running


@on_loop
async def test_one_whose_lease_is_lost_settles_nothing_and_the_others_complete(counter: Counter) -> None:
    handles = [counter.waits.enqueue(number) for number in range(2)]
    engine = counter.works.engine()
    running = asyncio.create_task(engine.run())
    await eventually(lambda: counter.statuses(*handles) == ["processing"] * 2)
    member = next(slot for slot in engine.state.slots if slot.lease is not None)
    assert isinstance(member.lease, Lease)
    engine.state.lease_lost(member.lease.key)
    counter.gate.set()
    await eventually(lambda: handles[1].status() == "completed")
    assert handles[0].status() == "processing"  # whoever has its lease now settles it
    engine.stop()
    await running


@on_loop
async def test_a_call_beyond_its_timeout_fails_each_of_its_jobs(counter: Counter) -> None:
    handles = [counter.waits.using(timeout=0.3).enqueue(number) for number in range(2)]
    engine = counter.works.engine()
    running = asyncio.create_task(engine.run())
    await eventually(counter.began.is_set)
    await eventually(lambda: counter.statuses(*handles) == ["dead"] * 2)
    assert counter.app.jobs.detail(handles[0].id).attempts[-1].error_type == "TimeoutError"
    engine.stop()
    await running


@on_loop
async def test_jobs_with_other_timeouts_do_not_share_a_call(counter: Counter) -> None:
    counter.gate.set()
    for number in range(4):
        await counter.waits.using(timeout=20 + number % 2).aenqueue(number)
    await counter.works.engine(drain=True).run()
    assert sorted(counter.calls) == [[0, 2], [1, 3]]


@on_loop
async def test_a_call_that_outlasts_the_grace_is_interrupted_and_its_jobs_go_back(counter: Counter) -> None:
    handles = [counter.waits.enqueue(number) for number in range(2)]
    engine = counter.works.engine(grace_s=0.1)
    running = asyncio.create_task(engine.run())
    await eventually(counter.began.is_set)
    engine.stop()
    await asyncio.wait_for(running, 10)
    assert counter.statuses(*handles) == ["pending"] * 2
    assert counter.app.jobs.get(handles[0].id).attempts == 0


@on_loop
async def test_calls_that_find_no_slot_for_long_leave_their_jobs_to_others(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lane's only slot is free while the second is claimed and gathered, and taken when its call is ready."""
    monkeypatch.setattr(watchdog, "HELD_S", 0.1)
    counter.app.tasks["double"].definition.batch = Batch(4, 0.3)
    other = counter.double.using(tenant="b").enqueue(1)
    engine = counter.works.engine(ONE)
    running = asyncio.create_task(engine.run())
    await eventually(lambda: engine.state.lanes[0].gathered == 1)
    held = counter.waits.using(tenant="a").enqueue(0)
    await eventually(counter.began.is_set)
    await eventually(lambda: engine.state.lanes[0].calls)
    await eventually(lambda: counter.app.jobs.get(other.id).worker is None)
    assert engine.state.lanes[0].gathered == 0
    counter.gate.set()
    await eventually(lambda: counter.statuses(held, other) == ["completed"] * 2)
    engine.stop()
    await running


def test_a_limit_on_running_jobs_counts_jobs_and_not_calls(works: Works) -> None:
    calls: list[int] = []

    @works.app.task(batch=10, name="limited", within=0.02, running=3)
    async def limited(numbers: list[int]) -> None:
        calls.append(len(numbers))

    handles = [limited.enqueue(number) for number in range(7)]
    works.drain()
    assert [handle.status() for handle in handles] == ["completed"] * 7
    assert sum(calls) == 7
    assert max(calls) <= 3


def test_a_breaker_counts_the_call_and_snoozes_its_jobs_while_it_is_open(works: Works) -> None:
    @works.app.task(batch=3, name="guarded", within=0.05, breaker=Breaker("smtp", threshold=1, cooldown=60))
    async def guarded(numbers: list[int]) -> None:
        raise ConnectionError("away")

    handles = [guarded.enqueue(number) for number in range(3)]
    works.drain()
    assert [(record.name, record.failures) for record in works.app.breakers.list()] == [("smtp", 1)]
    assert [handle.status() for handle in handles] == ["failed"] * 3


def test_a_node_of_a_workflow_may_be_a_job_of_a_batch_task(counter: Counter) -> None:
    flow = counter.app.workflow("doubles")
    first = flow.add(counter.double.bind(1))
    second = [flow.add(counter.double.bind(first.result), after=[first]) for _ in range(2)]
    handle = flow.enqueue()
    counter.works.drain()
    assert handle.result(second[0]) == 4
    assert [2, 2] in counter.calls


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch": 0}, "batch"),
        ({"batch": 10_001}, "batch"),
        ({"batch": True}, "batch"),
        ({"batch": 2.5}, "batch"),
        ({"batch": 2, "within": -1}, "within"),
        ({"batch": 2, "within": 61}, "within"),
        ({"batch": 2, "within": "soon"}, "within"),
        ({"within": 1}, "batch="),
        ({"batch": 2, "isolated": True}, "isolated"),
    ],
)
def test_bad_options_are_refused_and_named(options: dict[str, Any], says: str) -> None:
    def some(numbers: list[int]) -> None: ...

    with pytest.raises(InvalidOption, match=says):
        Fairlane("memory://").task(name="some", **options)(some)


def test_a_function_that_cannot_take_a_batch_is_refused() -> None:
    app = Fairlane("memory://")

    def two(numbers: list[int], others: list[int]) -> None: ...
    def one(number: int) -> None: ...
    def default(numbers: list[int] | None = None) -> None: ...
    def result(numbers: list[int]) -> int: ...
    def generator(numbers: list[int]) -> Iterator[int]:
        yield from numbers

    async def agenerator(numbers: list[int]) -> Any:
        yield numbers

    for function in (two, one, default, result, generator, agenerator):
        with pytest.raises(BadInput) as refused:
            app.task(batch=2)(function)  # type: ignore[call-overload]
        assert "\n" not in str(refused.value)
    assert len(app.tasks) == len(Fairlane("memory://").tasks)


def test_an_ill_typed_job_is_refused_when_it_is_enqueued(counter: Counter) -> None:
    with pytest.raises(BadInput, match="numbers: Expected `int`"):
        counter.double.enqueue("x")  # type: ignore[arg-type]
    assert counter.app.jobs.list().jobs == ()


@on_loop
async def test_a_batch_task_is_still_a_function(counter: Counter) -> None:
    assert await counter.double([1, 2]) == [2, 4]
    assert counter.plain([1]) is None


def test_a_test_runs_what_is_due_in_one_call(counter: Counter) -> None:
    with counter.app.testing() as jobs:
        for number in range(6):
            counter.double.using(tenant=f"t{number % 2}").enqueue(number)
        ran = jobs.run_due()
    assert len(ran) == 6
    assert sorted(counter.calls) == [[0, 2, 4], [1, 3, 5]]


@on_loop
async def test_the_same_on_a_loop_and_inline(counter: Counter) -> None:
    async with counter.app.testing() as jobs:
        for number in range(3):
            await counter.double.aenqueue(number)
        await jobs.arun_due()
    async with counter.app.testing("inline"):
        handle = await counter.double.aenqueue(7)
        assert await handle.aresult(timeout=0) == 14
    assert counter.calls == [[0, 1, 2], [7]]


def test_a_job_whose_kind_has_crashed_a_process_runs_by_itself(counter: Counter) -> None:
    """Where there are no processes to isolate it in, a suspect at least has a call to itself."""
    suspect = counter.plain.enqueue(1)
    counter.plain.enqueue(2)
    worker = counter.works.engine().state.worker
    store = counter.app.runtime.store
    want = Want(lane="x", queues=("default",), limit=1, start=1)
    (lease,) = store.run(Turn(worker=worker, claim_no=1, wants=(want,))).leases
    assert lease.id == suspect.id
    store.run(
        Turn(
            worker=worker,
            claim_no=2,
            starts=(Start(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, timeout_s=5),),
        )
    )
    store.run(Lapse(worker=worker))
    counter.works.drain()
    assert sorted(counter.calls) == [[1], [2]]
