"""Workers inside the application's own process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TypeVar

import pytest

from fairlane import Fairlane
from fairlane.core.ops import ListWorkers, Op
from fairlane.errors import StoreUnavailable, UnknownTask
from fairlane.stores.sqlite import MemoryStore
from fairlane.worker import engine

T = TypeVar("T")


@pytest.fixture
def app() -> Iterator[Fairlane]:
    with Fairlane("memory://", profile="development") as app:

        @app.task(name="add")
        def add(a: int, b: int) -> int:
            return a + b

        @app.task(name="wait")
        async def wait(seconds: float) -> str:
            await asyncio.sleep(seconds)
            return "waited"

        yield app


def test_jobs_run_while_the_block_lasts_and_nobody_is_left_behind(app: Fairlane) -> None:
    with app.running(slots=2):
        assert app.tasks["add"].enqueue(1, 2).result(timeout=10) == 3
        assert len(app.runtime.store.run(ListWorkers()).workers) == 1
    assert app.runtime.store.run(ListWorkers()).workers == ()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("fairlane-")]
    assert app.tasks["add"].enqueue(1, 2).status() == "pending"


def test_a_coroutine_runs_jobs_on_its_own_loop(app: Fairlane) -> None:
    async def serve() -> object:
        async with app.running(slots=2):
            return await (await app.tasks["add"].aenqueue(3, 4)).aresult(timeout=10)

    assert asyncio.run(serve()) == 7
    assert app.runtime.store.run(ListWorkers()).workers == ()


@pytest.mark.requirement("Q8")
def test_draining_leaves_when_nothing_is_left_to_do(app: Fairlane) -> None:
    handles = [app.tasks["add"].enqueue(n, n) for n in range(20)]
    with app.running(drain=True):
        pass
    assert [handle.result(timeout=0) for handle in handles] == [2 * n for n in range(20)]


def test_draining_begins_when_the_block_is_left_so_that_late_jobs_run(app: Fairlane) -> None:
    with app.running(drain=True):
        early = app.tasks["add"].enqueue(1, 1)
        assert early.result(timeout=10) == 2
        time.sleep(0.2)  # long enough to find nothing to do, several times
        late = app.tasks["add"].enqueue(2, 2)
    assert late.result(timeout=0) == 4


def test_draining_begins_when_the_block_is_left_on_a_loop(app: Fairlane) -> None:
    async def serve() -> object:
        async with app.running(drain=True):
            await asyncio.sleep(0.2)
            late = await app.tasks["add"].aenqueue(2, 2)
        return await late.aresult(timeout=0)

    assert asyncio.run(serve()) == 4


def test_leaving_interrupts_after_the_grace_and_gives_back_uncharged(app: Fairlane) -> None:
    handle = app.tasks["wait"].enqueue(60.0)
    with app.running(slots=1, grace=0.0):
        while handle.status() == "pending":
            pass
    assert handle.status() == "pending"
    assert handle.job().attempts == 0


def test_a_task_that_does_not_exist_is_named(app: Fairlane) -> None:
    with pytest.raises(UnknownTask, match='Nearest: "add"'):
        app.running(types=["ad"])


@pytest.mark.parametrize("drain", [False, True])
def test_a_store_that_cannot_be_reached_is_told_at_once_where_a_worker_does_not_wait(drain: bool) -> None:
    url = "postgresql://nobody@127.0.0.1:9/none"
    with (
        Fairlane(url, wait_for_store=drain) as app,
        pytest.raises(StoreUnavailable),
        app.running(drain=drain),
    ):
        pass


class Leaving(MemoryStore):
    """A store that goes away when told to."""

    is_away = False

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        if self.is_away:
            raise StoreUnavailable("memory", "it went away")
        return super().run(op, on=on)

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        return self.run(op, on=on)


@pytest.mark.requirement("Q8")
def test_a_store_that_went_away_keeps_nobody_from_leaving(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine, "LAST_S", 0.2)
    store = Leaving()
    with Fairlane(store=store, profile="development") as app:
        begun = threading.Event()

        @app.task
        async def wait() -> None:
            begun.set()
            await asyncio.sleep(60)

        wait.enqueue()
        running = app.running(grace=0.1)
        running.__enter__()
        assert begun.wait(10)
        store.is_away = True
        leaving = threading.Thread(target=running.__exit__, args=(None, None, None), daemon=True)
        leaving.start()
        leaving.join(20)
        assert not leaving.is_alive()
        assert "jobs held here stay leased until their leases expire" in caplog.text


@pytest.mark.requirement("L17")
def test_a_task_that_swallows_its_cancellation_for_ever_does_not_keep_the_application_from_leaving(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Fairlane(store=MemoryStore(), profile="development")
    let_go = threading.Event()

    @app.task(name="deaf")
    async def deaf() -> None:
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    handle = deaf.enqueue()
    worker = app.running(slots=1, grace=0.1)
    with worker:
        while handle.status() != "processing":
            let_go.wait(0.01)
        began_s = app.runtime.clock.monotonic()
    assert app.runtime.clock.monotonic() - began_s < 10.0
    let_go.set()
    assert "does not end although it was cancelled" in caplog.text
    assert (handle.status(), handle.job().attempts) == ("pending", 0)
    app.close()
