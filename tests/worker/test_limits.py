"""Limits in a worker: what is claimed ahead, when it asks again, and that nothing passes a limit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.core.limits import Limit, Rate
from fairlane.core.ops import SetLimit, Turn
from fairlane.core.profiles import ANY, Lane
from tests.worker.conftest import Works, eventually

QUEUES = ("critical", "default", "bulk")


def running_limit(kind: str, name: str, queue: str = "", running: int = 1) -> Limit:
    return Limit(kind=kind, name=name, queue=queue, running=running)  # type: ignore[arg-type]


def test_a_turn_carries_only_limits_that_bear_on_its_claims() -> None:
    waiting = Limit(kind="tenant", name="*", queue="default", waiting=500)
    elsewhere, here = running_limit("queue", "bulk"), running_limit("queue", "default")
    queues = frozenset({"default"})
    assert [limit for limit in (waiting, elsewhere, here) if limit.is_for_claims_from(queues)] == [here]


@pytest.mark.requirement("I3")
def test_a_task_limited_to_two_at_once_never_runs_three_and_all_of_its_jobs_run(works: Works) -> None:
    running, most, done = 0, 0, 0

    @works.app.task(name="narrow", running=2)
    async def narrow() -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1
        done += 1

    for _ in range(60):
        narrow.enqueue()
    works.drain(Lane("general", 8, (ANY,)))
    assert (most, done) == (2, 60)


@pytest.mark.requirement("I3")
def test_beside_a_saturated_tenant_the_others_have_every_slot_that_is_left(works: Works) -> None:
    async def story() -> None:
        release = asyncio.Event()

        @works.app.task(name="wait")
        async def wait() -> None:
            await release.wait()

        works.app.runtime.store.run(SetLimit(limit=running_limit("tenant", "greedy"), by="ops"))
        greedy = [wait.using(tenant="greedy").enqueue() for _ in range(50)]
        modest = [wait.using(tenant="modest").enqueue() for _ in range(3)]
        engine = works.engine(Lane("general", 4, (ANY,)))
        loop = asyncio.create_task(engine.run())
        await eventually(lambda: all(handle.status() == "processing" for handle in modest))
        assert sum(handle.status() == "processing" for handle in greedy) == 1
        release.set()
        await eventually(lambda: all(handle.status() == "completed" for handle in greedy))
        engine.stop()
        await loop

    asyncio.run(story())


@pytest.mark.requirement("I3")
def test_a_worker_that_found_a_rate_used_up_asks_again_when_it_lets_the_next_one_through(works: Works) -> None:
    async def story() -> None:
        ran = 0

        @works.app.task(name="slowly", rate=Rate(2, 0.4))
        async def slowly() -> None:
            nonlocal ran
            ran += 1

        handles = [slowly.enqueue() for _ in range(5)]
        engine = works.engine(poll_s=60.0)
        began_s = works.app.runtime.clock.monotonic()
        loop = asyncio.create_task(engine.run())
        await eventually(lambda: all(handle.status() == "completed" for handle in handles))
        took_s = works.app.runtime.clock.monotonic() - began_s
        assert ran == 5
        assert 0.8 <= took_s < 10.0
        engine.stop()
        await loop

    asyncio.run(story())


def test_a_worker_that_drains_leaves_nothing_in_queues_with_limits(works: Works) -> None:
    works.app.limits.set(queue="bulk", rate=Rate(2, 0.2))
    limited = [works.task("add").using(queue="bulk").enqueue(n, n) for n in range(3)]
    others = [works.task("add").enqueue(n, n) for n in range(40)]
    engine = works.engine(Lane("general", 2, ("default", "bulk")), drain=True)
    asyncio.run(engine.run())
    assert {handle.status() for handle in (*limited, *others)} == {"completed"}


@pytest.mark.requirement("I2")
def test_urgent_work_starts_at_once_in_a_free_lane_although_others_are_busy_with_long_jobs(works: Works) -> None:
    async def story() -> None:
        release = asyncio.Event()

        @works.app.task(name="long")
        async def long() -> None:
            await release.wait()

        slow = [long.enqueue() for _ in range(2)]
        engine = works.engine(
            Lane("fast", 1, ("critical",), prompt=True), Lane("general", 2, ("default",)), poll_s=60.0
        )
        loop = asyncio.create_task(engine.run())
        await eventually(lambda: all(handle.status() == "processing" for handle in slow))
        await eventually(lambda: any(worker.waiting for worker in works.app.workers.list().workers))
        urgent = await asyncio.to_thread(works.task("urgent").enqueue)
        await eventually(lambda: urgent.status() == "completed")  # long before the next poll
        release.set()
        engine.stop()
        await loop

    asyncio.run(story())


@pytest.mark.requirement("I4")
def test_an_urgent_queue_under_a_limit_does_not_wait_behind_what_is_claimed_ahead(works: Works) -> None:
    began: list[str] = []

    @works.app.task(name="urgent", queue="critical")
    async def urgent() -> None:
        began.append("urgent")

    @works.app.task(name="flood")
    async def flood() -> None:
        began.append("flood")
        await asyncio.sleep(0.001)

    works.app.limits.set(queue="critical", running=2)

    async def run() -> None:
        works.app.enqueue_many([flood.bind() for _ in range(4000)])
        engine = works.engine(Lane("general", 4, ("critical", "default")))
        running = asyncio.create_task(engine.run())
        await eventually(lambda: began.count("flood") > 200)
        works.app.enqueue_many([urgent.bind() for _ in range(4)])
        await eventually(lambda: began.count("urgent") == 4)
        assert began.count("flood") < 4000
        engine.stop()
        await running

    asyncio.run(run())


def sent_turns(works: Works, monkeypatch: pytest.MonkeyPatch) -> list[Turn]:
    """Filled with the Turns that are sent from now on."""
    turns: list[Turn] = []
    send = type(works.app.runtime.store).arun

    async def sent(store: Any, op: Any, **parts: Any) -> Any:
        if isinstance(op, Turn):
            turns.append(op)
        return await send(store, op, **parts)

    monkeypatch.setattr(type(works.app.runtime.store), "arun", sent)
    return turns


@pytest.mark.requirement("I3", "W5")
def test_a_worker_that_takes_its_places_again_does_not_ask_each_time_for_more(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    @works.app.task(name="narrow", running=2)
    async def narrow() -> None:
        await asyncio.sleep(0.002)

    works.app.enqueue_many([narrow.bind() for _ in range(100)])
    turns = sent_turns(works, monkeypatch)
    works.drain(Lane("general", 8, (ANY,)))
    settling = sum(1 for turn in turns if turn.outcomes)
    assert settling >= 50
    assert len(turns) <= 1.7 * settling
