"""Jobs claimed ahead of a slot: they do not wait behind a long one, and never begin once they may be somebody else's."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.client.handle import Handle
from fairlane.core.clock import SystemClock
from fairlane.core.ops import Reclaim
from fairlane.core.profiles import ANY, Lane
from fairlane.worker import watchdog
from fairlane.worker.engine import Engine
from tests.worker.conftest import Works, eventually

ONE = Lane("one", 1, (ANY,))


class Clogged:
    """A lane whose only slot is taken by a long job, with quick ones held behind it."""

    def __init__(self, works: Works) -> None:
        self.ran, self.go_on, self.time = list[int](), asyncio.Event(), works.time

        @works.app.task(name="quick")
        async def quick(n: int) -> None:
            self.ran.append(n)

        @works.app.task(name="slow")
        async def slow() -> None:
            await self.go_on.wait()

        # Quick ones first, so that the lane learns to claim ahead; then one that keeps its only slot.
        for n in range(20):
            quick.enqueue(n)
        self.long: Handle[None] = slow.enqueue()
        self.later: list[Handle[None]] = [quick.enqueue(n) for n in range(20, 23)]
        self.engine: Engine = works.engine(ONE)
        self.engine.state.monotonic = self.time.monotonic
        [self.state] = self.engine.state.lanes

    async def start(self) -> asyncio.Task[None]:
        running = asyncio.create_task(self.engine.run())
        await eventually(lambda: len(self.ran) == 20 and self.state.running == 1 and self.state.held)
        return running


@pytest.mark.requirement("I4")
def test_jobs_claimed_ahead_go_back_when_no_slot_gets_free_and_another_worker_runs_them(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "HELD_S", 0.1)

    async def story() -> None:
        lane = Clogged(works)
        running = await lane.start()
        await eventually(lambda: not lane.state.held)
        await works.engine(ONE, drain=True).run()
        assert sorted(lane.ran) == list(range(23))
        lane.go_on.set()
        lane.engine.stop()
        await running
        assert {handle.job().attempts for handle in lane.later} == {0}

    asyncio.run(story())


@pytest.mark.requirement("W5")
def test_a_job_held_so_long_that_others_may_have_it_does_not_begin_here(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "HELD_S", 3600.0)

    async def story() -> None:
        lane = Clogged(works)
        running = await lane.start()
        await eventually(lambda: lane.long.status() == "processing")
        lane.state.is_clogged = True  # so that it does not claim them anew
        lane.time.ahead_s = 61.0
        works.app.runtime.store.run(Reclaim())
        await works.engine(ONE, drain=True).run()
        assert len(lane.ran) == 23
        lane.go_on.set()
        await eventually(lambda: not lane.engine.state.busy())
        lane.engine.stop()
        await running
        assert sorted(lane.ran) == list(range(23))

    asyncio.run(story())


@pytest.mark.requirement("W5")
def test_jobs_claimed_ahead_go_back_when_the_stores_clock_is_set_back(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By that clock their leases last for an hour; the store lets them begin anew, and gives them to others sooner."""
    monkeypatch.setattr(watchdog, "HELD_S", 3600.0)

    async def story() -> None:
        works.time.ahead_s = 3600.0
        lane = Clogged(works)
        lane.engine.state.monotonic = SystemClock().monotonic
        running = await lane.start()
        lane.state.is_clogged = True  # so that it does not claim them anew
        works.time.ahead_s = 0.0
        await eventually(lambda: not lane.state.held)
        await works.engine(ONE, drain=True).run()
        lane.go_on.set()
        lane.engine.stop()
        await running
        assert sorted(lane.ran) == list(range(23))

    asyncio.run(story())
