"""Enqueues made at the same time share a round trip."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from fairlane import Fairlane, SyncTask
from fairlane.client.enqueue import round_trips
from fairlane.core.job import Job
from fairlane.core.ops import Enqueue, Op
from fairlane.errors import (
    DuplicateJob,
    IdConflict,
    QueueFull,
    QueuePaused,
    StoreRefused,
    StoreUnavailable,
    TenantLimitReached,
)
from fairlane.stores.base import Store
from tests.faults.eventually import eventually
from tests.support.stores import Ground, ground, open_at

__all__ = ["ground"]

T = TypeVar("T")
Task = SyncTask[[int], None]


async def until(look: Callable[[], bool]) -> None:
    while not look():  # noqa: ASYNC110 - what is looked at belongs to threads, too
        await asyncio.sleep(0.0005)


class Gate:
    """A store whose enqueues wait until the gate opens. It notes how many jobs each of them carries."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.name, self.capabilities = store.name, store.capabilities
        self.sizes: list[int] = []
        self.opened = threading.Event()
        self.opened.set()
        self.refused: Callable[[Enqueue], Exception | None] = lambda op: None

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        self._note(op)
        if isinstance(op, Enqueue):
            assert self.opened.wait(10)
        return self._store.run(op, on=on)

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        self._note(op)
        await until(lambda: not isinstance(op, Enqueue) or self.opened.is_set())
        return await self._store.arun(op, on=on)

    def _note(self, op: Op[Any]) -> None:
        if isinstance(op, Enqueue):
            self.sizes.append(len(op.jobs))
            if (problem := self.refused(op)) is not None:
                raise problem

    def close(self) -> None:
        self._store.close()

    async def aclose(self) -> None:
        await self._store.aclose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture(params=["memory", "sqlite-apsw", "postgres", "redis"])
def gate(request: pytest.FixtureRequest, ground: Ground) -> Iterator[Gate]:
    store = open_at(request.param, ground.address(request.param))
    yield Gate(store)
    store.close()


@pytest.fixture
def quick_gate(ground: Ground) -> Iterator[Gate]:
    """Where it is the client alone that is tried."""
    store = open_at("memory", "")
    yield Gate(store)
    store.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However loaded the machine is, nobody goes beside the call in flight."""
    monkeypatch.setattr(round_trips, "PATIENCE_S", 10.0)


def note_in(app: Fairlane) -> Task:
    @app.task(name="note")
    def note(number: int) -> None: ...

    app.tenants.list()  # opens the store
    note.enqueue(-1)
    return note


def number_of(job: Job) -> int:
    found: int = json.loads(job.payload)["number"]
    return found


def numbers(app: Fairlane) -> list[int]:
    """What was enqueued, but for the first."""
    return sorted(number_of(job) for job in app.jobs.list(limit=200).jobs)[1:]


async def hold_one(gate: Gate, task: Task) -> asyncio.Task[Any]:
    """An enqueue that has been sent and is not answered."""
    gate.opened.clear()
    gate.sizes.clear()
    held = asyncio.create_task(task.aenqueue(0))
    await until(lambda: bool(gate.sizes))
    return held


def test_coroutines_that_enqueue_at_once_share_a_round_trip(gate: Gate) -> None:
    app = Fairlane(store=gate)
    note = note_in(app)

    async def main() -> None:
        first = await hold_one(gate, note)
        others = [asyncio.create_task(note.aenqueue(n)) for n in range(1, 40)]
        await asyncio.sleep(0.002)
        gate.opened.set()
        handles = [await first, *[await other for other in others]]
        assert gate.sizes[0] == 1
        assert sum(gate.sizes) == 40
        assert len(gate.sizes) <= 3
        assert [number_of(await handle.ajob()) for handle in handles] == list(range(40))

    asyncio.run(main())


def test_threads_that_enqueue_at_once_share_a_round_trip(gate: Gate) -> None:
    app = Fairlane(store=gate)
    note = note_in(app)
    gate.opened.clear()
    gate.sizes.clear()
    with ThreadPoolExecutor(20) as threads:
        calls = [threads.submit(note.enqueue, n) for n in range(20)]
        eventually(lambda: bool(gate.sizes))
        gate.opened.set()
        handles = [call.result(10) for call in calls]
    assert sum(gate.sizes) == 20
    assert len(gate.sizes) < 20
    assert [number_of(handle.job()) for handle in handles] == list(range(20))


def test_calls_one_after_another_each_go_at_once(quick_gate: Gate) -> None:
    note = note_in(Fairlane(store=quick_gate))
    quick_gate.sizes.clear()

    async def main() -> int:
        for n in range(5):
            await note.aenqueue(n)
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1
    note.enqueue(5)
    assert quick_gate.sizes == [1] * 6


@pytest.fixture
def app(quick_gate: Gate) -> Fairlane:
    return Fairlane(store=quick_gate)


async def outcomes(gate: Gate, held: Task, *others: tuple[Task, int]) -> list[Any]:
    """What callers get that share one call, each its handle or its error."""
    first = await hold_one(gate, held)
    calls = [asyncio.create_task(task.aenqueue(number)) for task, number in others]
    await asyncio.sleep(0)
    gate.opened.set()
    found = await asyncio.gather(first, *calls, return_exceptions=True)
    return found[1:]


def in_threads(gate: Gate, held: Task, *others: tuple[Task, int]) -> list[Any]:
    """The same, by threads."""

    def outcome(task: Task, number: int) -> Any:
        try:
            return task.enqueue(number)
        except Exception as error:
            return error

    gate.opened.clear()
    gate.sizes.clear()
    with ThreadPoolExecutor(len(others) + 1) as threads:
        first = threads.submit(held.enqueue, 0)
        eventually(lambda: bool(gate.sizes))
        calls = [threads.submit(outcome, *other) for other in others]
        line = next(iter(held._enqueuer._round_trips._threads.values()))
        eventually(lambda: len(line._waiting) == len(others))
        gate.opened.set()
        first.result(10)
        return [call.result(10) for call in calls]


Shared = Callable[..., list[Any]]


@pytest.fixture(params=["async", "threads"])
def shared(request: pytest.FixtureRequest) -> Shared:
    if request.param == "threads":
        return in_threads
    return lambda *given: asyncio.run(outcomes(*given))


def test_a_job_that_is_refused_fails_its_own_caller_alone(gate: Gate, shared: Shared) -> None:
    app = Fairlane(store=gate)
    note = note_in(app)
    app.queues.pause("closed", refuse=True, notes="moving house")
    taken = note.using(id="0190163d-8694-739b-aea5-966c26f8ad91")
    taken.enqueue(-1)
    found = shared(gate, note, (note, 1), (note.using(queue="closed"), 2), (note, 3), (taken, 4))
    assert [type(one) for one in found[1::2]] == [QueuePaused, IdConflict]
    assert [number_of(one.job()) for one in found[::2]] == [1, 3]


def test_a_shared_call_that_the_store_refuses_is_sent_again_job_by_job(quick_gate: Gate, shared: Shared) -> None:
    app = Fairlane(store=quick_gate)
    note = note_in(app)

    def refused(op: Enqueue) -> Exception | None:
        return StoreRefused("memory", "no such thing") if any(job.tenant == "bad" for job in op.jobs) else None

    quick_gate.refused = refused
    found = shared(quick_gate, note, (note, 1), (note.using(tenant="bad"), 2), (note, 3))
    assert type(found[1]) is StoreRefused
    assert [number_of(one.job()) for one in found[::2]] == [1, 3]
    assert quick_gate.sizes == [1, 3, 1, 1, 1]


def test_a_tenant_at_its_limit_and_a_full_store_refuse_their_own_callers_alone(gate: Gate, shared: Shared) -> None:
    app = Fairlane(store=gate, capacity=8)
    note = note_in(app)
    app.limits.set(tenant="small", waiting=2, when_full="reject")
    small = note.using(tenant="small")
    app.enqueue_many([small.bind(1), small.bind(2)])
    found = shared(gate, note, (small, 3), (note, 4), (small, 5), (note, 6))
    assert [type(one) for one in found[::2]] == [TenantLimitReached] * 2
    assert [number_of(one.job()) for one in found[1::2]] == [4, 6]
    note.enqueue(7)
    found = shared(gate, note, (note, 8), (note, 9))
    assert [type(one) for one in found] == [QueueFull] * 2
    assert numbers(app) == [0, 0, 1, 2, 4, 6, 7]


def test_callers_of_a_store_that_is_away_all_hear_of_it_at_once(quick_gate: Gate, shared: Shared) -> None:
    app = Fairlane(store=quick_gate)
    note = note_in(app)
    quick_gate.refused = lambda op: StoreUnavailable("memory", "no route") if len(op.jobs) > 1 else None
    found = shared(quick_gate, note, (note, 1), (note, 2), (note, 3))
    assert [type(one) for one in found] == [StoreUnavailable] * 3
    assert quick_gate.sizes == [1, 3]
    note.enqueue(4)
    assert numbers(app) == [0, 4]


def test_keyed_jobs_and_calls_of_several_go_by_themselves(app: Fairlane, quick_gate: Gate) -> None:
    note = note_in(app)

    async def main() -> None:
        first = await hold_one(quick_gate, note)
        keyed = [
            asyncio.create_task(note.using(idempotency_key="7").aenqueue(1)),
            asyncio.create_task(note.using(dedup_key="8").aenqueue(2)),
            asyncio.create_task(app.aenqueue_many([note.bind(3), note.bind(4)])),
        ]
        await asyncio.sleep(0)
        assert quick_gate.sizes == [1, 1, 1, 2]
        quick_gate.opened.set()
        await asyncio.gather(first, *keyed)
        with pytest.raises(DuplicateJob):
            await note.using(idempotency_key="7", on_duplicate="raise").aenqueue(5)

    asyncio.run(main())
    assert numbers(app) == [0, 1, 2, 3, 4]


def test_a_cancelled_caller_takes_no_other_along(gate: Gate) -> None:
    app = Fairlane(store=gate)
    note = note_in(app)

    async def main() -> list[int]:
        first = await hold_one(gate, note)
        calls = [asyncio.create_task(note.aenqueue(n)) for n in range(1, 7)]
        await asyncio.sleep(0)
        calls[1].cancel()  # before it is sent
        first.cancel()  # while it is in flight: the others go now
        await until(lambda: len(gate.sizes) == 2)
        assert gate.sizes == [1, 5]
        calls[3].cancel()  # with the others in flight: it may or may not have been done
        gate.opened.set()
        found = await asyncio.gather(first, *calls, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in found] == [
            True,
            False,
            True,
            False,
            True,
            *[False] * 2,
        ]
        return [number_of(await one.ajob()) for one in found if not isinstance(one, BaseException)]

    assert asyncio.run(main()) == [1, 3, 5, 6]
    assert set(numbers(app)) - {4} == {1, 3, 5, 6}


def test_a_call_that_hangs_holds_the_others_up_for_a_moment_only(
    quick_gate: Gate, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_trips, "PATIENCE_S", 0.001)
    app = Fairlane(store=quick_gate)
    note = note_in(app)
    hanging = threading.Event()

    def refused(op: Enqueue) -> Exception | None:
        if len(quick_gate.sizes) == 3:  # the first and then others beside it
            hanging.set()
            quick_gate.opened.set()
        return None

    quick_gate.refused = refused

    async def main() -> None:
        first = await hold_one(quick_gate, note)
        second = asyncio.create_task(note.aenqueue(1))
        await until(lambda: len(quick_gate.sizes) == 2)
        await asyncio.gather(first, second, note.aenqueue(2))

    def main_of_threads() -> None:
        quick_gate.opened.clear()
        quick_gate.sizes.clear()
        with ThreadPoolExecutor(3) as threads:
            calls = []
            for _ in range(3):
                calls.append(threads.submit(note.enqueue, len(calls)))
                eventually(lambda: len(quick_gate.sizes) == len(calls))
            for call in calls:
                call.result(10)

    main_of_threads() if shared is in_threads else asyncio.run(main())
    assert hanging.is_set()
    assert numbers(app) == [0, 1, 2]


def test_event_loops_and_threads_enqueue_side_by_side(gate: Gate) -> None:
    app = Fairlane(store=gate)
    note = note_in(app)

    def loop(first: int) -> None:
        async def main() -> None:
            await asyncio.gather(*(note.aenqueue(n) for n in range(first, first + 20)))

        asyncio.run(main())

    with ThreadPoolExecutor(6) as threads:
        calls = [threads.submit(loop, first) for first in (0, 20)]
        calls += [threads.submit(note.enqueue, n) for n in range(40, 60)]  # type: ignore[arg-type]
        for call in calls:
            call.result(20)
    assert numbers(app) == list(range(60))


def test_a_loop_that_ends_in_the_middle_leaves_nothing_behind_for_the_next(app: Fairlane, quick_gate: Gate) -> None:
    note = note_in(app)
    left = []

    async def ends() -> None:
        await hold_one(quick_gate, note)
        left.append(asyncio.create_task(note.aenqueue(1)))
        await asyncio.sleep(0)

    async def goes_on() -> None:
        await asyncio.gather(note.aenqueue(2), note.aenqueue(3))

    asyncio.run(ends())
    quick_gate.opened.set()
    asyncio.run(goes_on())
    assert numbers(app) == [2, 3]


def test_an_interrupted_thread_leaves_the_line(
    app: Fairlane, quick_gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_trips, "PATIENCE_S", 0.01)  # a thread notices an interrupt when it wakes
    monkeypatch.setattr(round_trips, "MOST_IN_FLIGHT", 1)
    note = note_in(app)
    quick_gate.opened.clear()
    quick_gate.sizes.clear()
    interrupted = threading.Event()

    def waits() -> None:
        try:
            note.enqueue(1)
        except KeyboardInterrupt:
            interrupted.set()

    first = threading.Thread(target=note.enqueue, args=(0,))
    first.start()
    eventually(lambda: bool(quick_gate.sizes))
    second = threading.Thread(target=waits)
    second.start()
    line = next(iter(app.runtime.enqueuer._round_trips._threads.values()))
    eventually(lambda: bool(line._waiting))
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(second.ident or 0), ctypes.py_object(KeyboardInterrupt))
    assert interrupted.wait(10)
    quick_gate.opened.set()
    first.join(10)
    second.join(10)
    note.enqueue(2)
    assert numbers(app) == [0, 2]


def test_a_forked_child_waits_for_no_call_of_its_parent(app: Fairlane, quick_gate: Gate) -> None:
    note = note_in(app)
    quick_gate.opened.clear()
    quick_gate.sizes.clear()
    held = threading.Thread(target=note.enqueue, args=(0,))
    held.start()
    eventually(lambda: bool(quick_gate.sizes))
    child = os.fork()
    if child == 0:
        quick_gate.opened = threading.Event()
        quick_gate.opened.set()
        note.enqueue(1)
        os._exit(0 if numbers(app) == [1] else 1)
    quick_gate.opened.set()
    held.join(10)
    assert os.waitpid(child, 0)[1] == 0
