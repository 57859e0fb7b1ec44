"""Pauses as a worker heeds them: nothing new begins, what was claimed ahead goes back."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.core.profiles import ANY, Lane
from fairlane.worker import watchdog
from tests.worker.conftest import Works, eventually


@pytest.mark.requirement("L15")
def test_what_was_claimed_ahead_of_a_pause_goes_back(works: Works, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "PAUSES_S", 0.02)
    go_on = asyncio.Event()
    ran: list[int] = []

    @works.app.task(name="quick")
    async def quick(n: int) -> None:
        ran.append(n)

    @works.app.task(name="slow")
    async def slow() -> None:
        await go_on.wait()

    # Quick ones first, so that the lane learns to claim ahead; then one that keeps its only slot.
    for n in range(20):
        quick.enqueue(n)
    slow.enqueue()
    later = [quick.enqueue(n) for n in range(20, 40)]

    async def story() -> None:
        engine = works.engine(Lane("one", 1, (ANY,)))
        [state] = engine.state.lanes
        running = asyncio.create_task(engine.run())
        await eventually(lambda: len(ran) == 20 and state.running == 1 and state.held)
        works.app.tasks.pause("quick", by="ada")
        await eventually(lambda: not state.held)
        go_on.set()
        await eventually(lambda: state.running == 0)
        assert {handle.job().worker for handle in later} == {None}
        works.app.tasks.resume("quick", by="ada")
        await eventually(lambda: len(ran) == 40)
        engine.stop()
        await running

    asyncio.run(story())
    assert {handle.job().attempts for handle in later} == {0}


@pytest.mark.requirement("L15")
def test_a_resumed_queue_wakes_a_waiting_worker(works: Works) -> None:
    @works.app.task(name="send", queue="mail")
    async def send() -> None: ...

    works.app.queues.pause("mail", by="ada")
    handle = send.enqueue()

    async def story() -> None:
        engine = works.engine(Lane("one", 1, (ANY,)), poll_s=60.0)
        running = asyncio.create_task(engine.run())
        await eventually(lambda: works.app.workers.list().workers[0].waiting)
        assert handle.status() == "pending"
        works.app.queues.resume("mail", by="ada")
        await eventually(lambda: handle.status() == "completed")
        engine.stop()
        await running

    asyncio.run(story())
