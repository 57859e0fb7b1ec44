"""Limits in a worker: what is claimed ahead, when it asks again, and that nothing passes a limit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.core.ids import WorkerId
from fairlane.core.limits import Limit, Rate
from fairlane.core.ops import Renew, SetLimit, Turn, Want
from fairlane.core.profiles import ANY, Lane
from fairlane.worker.state import KnownLimits
from tests.worker.conftest import Works, eventually

QUEUES = ("critical", "default", "bulk")


def running_limit(kind: str, name: str, queue: str = "", running: int = 1) -> Limit:
    return Limit(kind=kind, name=name, queue=queue, running=running)  # type: ignore[arg-type]


@pytest.mark.requirement("I3")
@pytest.mark.parametrize(
    ("limit", "free"),
    [
        (running_limit("queue", "bulk"), ("critical", "default")),
        (running_limit("tenant", "*", "default"), ("critical", "bulk")),
        (running_limit("tenant", "acme"), ()),
        (running_limit("type", "mail"), ()),
        (Limit(kind="named", name="smtp", rate=Rate(5, 1.0), types=("mail",)), ()),
    ],
)
def test_jobs_are_claimed_ahead_only_from_queues_no_limit_counts(limit: Limit, free: tuple[str, ...]) -> None:
    watch = KnownLimits((limit,), QUEUES)
    assert watch.free(QUEUES) == QUEUES
    watch.in_force = True
    assert watch.free(QUEUES) == free


def test_limits_in_force_that_are_not_known_here_stop_claiming_ahead() -> None:
    watch = KnownLimits((), QUEUES)
    watch.in_force = True
    assert watch.free(QUEUES) == ()


def test_a_turn_carries_only_limits_that_bear_on_its_claims() -> None:
    waiting = Limit(kind="tenant", name="*", queue="default", waiting=500)
    elsewhere, here = running_limit("queue", "bulk"), running_limit("queue", "default")
    assert KnownLimits((waiting, elsewhere, here), ("default",)).given == (here,)


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
    engine.state.limits.learn(works.app.limits.list())
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
        engine.state.limits.learn(works.app.limits.list())
        running = asyncio.create_task(engine.run())
        await eventually(lambda: began.count("flood") > 200)
        works.app.enqueue_many([urgent.bind() for _ in range(4)])
        await eventually(lambda: began.count("urgent") == 4)
        assert began.count("flood") < 4000
        engine.stop()
        await running

    asyncio.run(run())


@pytest.mark.parametrize(
    ("queues", "first"), [(QUEUES, False), (("bulk", "default"), True), (("bulk",), False), (("default",), False)]
)
def test_a_limited_queue_that_stands_before_others_is_known(queues: tuple[str, ...], first: bool) -> None:
    watch = KnownLimits((running_limit("queue", "bulk"),), QUEUES)
    watch.in_force = True
    assert watch.precede_free(queues) is first


def test_a_place_is_freed_where_a_limit_may_have_counted_what_ended(works: Works) -> None:
    works.app.enqueue_many([works.task("add").using(queue=queue).bind(1, 2) for queue in ("default", "bulk")])
    worker = WorkerId(works.app.runtime.new_job_id())
    works.app.runtime.store.run(Renew(worker=worker, lease_s=60))
    want = Want(lane="general", queues=("default", "bulk"), limit=2)
    free, counted = works.app.runtime.store.run(Turn(worker=worker, claim_no=1, wants=(want,))).leases
    watch = KnownLimits((running_limit("queue", "bulk"),), QUEUES)
    watch.end(counted)
    assert not watch.frees_places
    watch.in_force = True
    watch.end(free)
    assert not watch.frees_places
    watch.end(counted)
    assert watch.frees_places


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


@pytest.mark.requirement("I3")
def test_limits_are_given_where_limited_queues_are_asked_or_places_under_them_become_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    works = Works("isolation")
    turns = sent_turns(works, monkeypatch)
    done: list[str] = []

    @works.app.task(name="slow", queue="bulk")  # 50 of them may start in a minute
    async def slow() -> None:
        done.append("began")
        await asyncio.sleep(0.05)

    async def run() -> None:
        slow.enqueue()
        engine = works.engine(Lane("general", 20, (ANY,)))
        running = asyncio.create_task(engine.run())
        await eventually(lambda: done)
        works.app.enqueue_many([works.task("add").bind(1, 2) for _ in range(10_000)])
        await eventually(lambda: works.app.statistics.counts().completed == 10_001)
        engine.stop()
        await running

    asyncio.run(run())
    works.app.close()
    claims = [turn for turn in turns if turn.wants]
    for turn in claims:
        asks = any("bulk" in want.queues for want in turn.wants)
        frees = any(outcome.seq == 1 for outcome in turn.outcomes)  # the slow one, enqueued first
        if asks or frees:
            assert turn.limits
    assert any(not turn.limits for turn in claims)
