"""What one engine does with jobs: run them, stop them, settle them, give them back."""

from __future__ import annotations

import asyncio
from itertools import permutations

import pytest

from fairlane.core.fairness import plan
from fairlane.core.ids import WorkerId
from fairlane.core.job import Job
from fairlane.core.ops import ALL_TENANTS, Renew, Reset, Turn
from fairlane.core.profiles import ANY, Lane
from fairlane.errors import JobFailed
from tests.worker.conftest import Works, eventually


def attempts_of(works: Works, handle: object) -> list[tuple[str, str | None]]:
    detail = works.app.jobs.detail(handle.id)  # type: ignore[attr-defined]
    return [(attempt.outcome, attempt.error_type) for attempt in detail.attempts]


@pytest.mark.requirement("L6")
def test_coroutines_and_plain_functions_run_and_their_results_are_kept(works: Works) -> None:
    added, blocked = works.task("add").enqueue(2, 3), works.task("block").enqueue(0.0)
    works.drain()
    assert added.result(timeout=0) == 5
    assert blocked.result(timeout=0) == "blocked"


@pytest.mark.requirement("W5")
def test_a_worker_whose_looks_are_slow_finds_every_tenant_before_it_is_done(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "SLOW_S", -1.0)
    monkeypatch.setattr(plan, "PAUSE_PER_LOOK", 1e9)
    handles = [works.task("add").using(tenant=f"tenant-{n}").enqueue(n, n) for n in range(5) for _ in range(3)]
    works.drain(Lane("one", 1))
    assert [handle.status() for handle in handles] == ["completed"] * 15


@pytest.mark.requirement("I6", "I14", "W8")
def test_a_job_that_keeps_failing_is_tried_again_and_then_buried(works: Works) -> None:
    handle = works.task("fail").enqueue()
    works.drain()
    assert handle.status() == "dead"
    assert attempts_of(works, handle) == [
        ("failed", "ConnectionError"),
        ("failed", "ConnectionError"),
        ("dead", "ConnectionError"),
    ]


@pytest.mark.requirement("W8")
def test_a_failure_that_no_retry_can_mend_is_buried_at_once(works: Works) -> None:
    handle = works.task("refuse").enqueue()
    works.drain()
    assert attempts_of(works, handle) == [("dead", "NonRetryable")]


def test_a_snoozed_job_runs_again_uncharged(works: Works) -> None:
    handle = works.task("later").enqueue(times=3)
    works.drain()
    assert handle.result(timeout=0) == "done"
    assert handle.job().attempts == 0


def test_a_task_may_end_its_own_job_as_cancelled(works: Works) -> None:
    handle = works.task("quit").enqueue()
    works.drain()
    assert handle.status() == "cancelled"


@pytest.mark.requirement("W9")
def test_a_rate_limit_is_waited_out(works: Works) -> None:
    handle = works.task("limited").enqueue()
    works.drain()
    job = handle.job()
    assert job.status == "failed"
    assert 4.0 < (job.run_at - job.enqueued_at).total_seconds() < 7.0


@pytest.mark.requirement("L9", "I1")
def test_a_job_past_its_timeout_is_cancelled_where_it_waits(works: Works) -> None:
    handle = works.task("hurry").enqueue()
    works.drain()
    with pytest.raises(JobFailed, match=r"ran longer than its timeout of 0\.2 s"):
        handle.result(timeout=0)
    assert handle.job().error_class == "transient"


def test_a_job_that_ignores_its_timeout_may_still_return(works: Works) -> None:
    handle = works.task("stubborn").using(timeout=0.4).enqueue(seconds=0.6)  # past twice its timeout it is buried
    works.drain()
    assert handle.result(timeout=0) == "stubborn"


def test_the_slot_of_a_job_that_was_stopped_serves_the_next_one_unharmed(works: Works) -> None:
    one = Lane("one", 1, (ANY,))
    handles = [works.task("hurry").enqueue(), works.task("slow").enqueue(0.05), works.task("add").enqueue(1, 1)]
    works.drain(one)
    assert [handle.status() for handle in handles] == ["dead", "completed", "completed"]


@pytest.mark.parametrize("name", ["wide", "odd"])
def test_a_result_that_cannot_be_stored_exactly_fails_its_job(works: Works, name: str) -> None:
    handle = works.task(name).enqueue()
    works.drain()
    job = handle.job()
    assert (job.status, job.error_type, job.result) == ("dead", "unstorable_result", None)


@pytest.mark.requirement("L16")
def test_a_child_enqueued_by_a_job_inherits_its_tenant_and_trace(works: Works) -> None:
    @works.app.task(name="shop.child")
    async def child() -> None: ...

    @works.app.task(name="shop.parent")
    async def parent() -> str:
        return str((await child.aenqueue()).id)

    handle = parent.using(tenant="acme", correlation_id="c-1").enqueue()
    works.drain()
    job = works.app.jobs.get(handle.result(timeout=0))
    assert (job.tenant, job.correlation_id, job.parent_id, job.status) == (
        "acme",
        "c-1",
        handle.id,
        "completed",
    )


def test_a_running_job_asked_to_cancel_stops(works: Works) -> None:
    async def story() -> str:
        handle = works.task("slow").enqueue(30.0)
        engine = works.engine()
        running = asyncio.create_task(engine.run())
        await eventually(lambda: handle.status() == "processing")
        handle.cancel()
        engine.state.wake()
        await eventually(lambda: handle.status() == "cancelled")
        engine.stop()
        await running
        return handle.status()

    assert asyncio.run(story()) == "cancelled"


@pytest.mark.requirement("Q8", "L17")
def test_leaving_gives_back_what_has_not_begun_and_waits_for_what_runs(works: Works) -> None:
    async def story() -> tuple[Job, list[Job]]:
        running = works.task("slow").enqueue(0.4)
        engine = works.engine(Lane("one", 1, (ANY,)))
        loop = asyncio.create_task(engine.run())
        await eventually(lambda: running.status() == "processing")
        waiting = [works.task("slow").enqueue(0.4) for _ in range(3)]
        engine.stop()
        await loop
        return running.job(), [handle.job() for handle in waiting]

    ran, left = asyncio.run(story())
    assert ran.status == "completed"
    assert {(job.status, job.attempts) for job in left} == {("pending", 0)}


@pytest.mark.requirement("Q8", "L17")
def test_what_still_runs_when_the_grace_is_over_is_interrupted_uncharged(works: Works) -> None:
    async def story() -> Job:
        handle = works.task("slow").enqueue(30.0)
        engine = works.engine(grace_s=0.1)
        loop = asyncio.create_task(engine.run())
        await eventually(lambda: handle.status() == "processing")
        engine.stop()
        await loop
        return handle.job()

    job = asyncio.run(story())
    assert (job.status, job.attempts, job.attempt) == ("pending", 0, 1)


def test_a_worker_that_lost_its_lease_settles_nothing(works: Works) -> None:
    async def story() -> tuple[Job, int]:
        handle = works.task("slow").enqueue(0.3)
        engine = works.engine(Lane("one", 1, ("default",)))
        loop = asyncio.create_task(engine.run())
        await eventually(lambda: handle.status() == "processing")
        works.app.runtime.store.run(Reset(scope=ALL_TENANTS, id=handle.id, by="ops"))
        engine.stop()
        await loop
        return handle.job(), engine.state.ended

    job, ended = asyncio.run(story())
    assert (job.status, job.result, ended) == ("pending", None, 1)


@pytest.mark.requirement("L2", "I4")
def test_slow_work_never_takes_the_slots_of_the_fast_lane(works: Works) -> None:
    async def story() -> None:
        slow = [works.task("slow").enqueue(30.0) for _ in range(10)]
        engine = works.engine(Lane("fast", 1, ("critical",), prompt=True), Lane("general", 2, (ANY,)), grace_s=0.0)
        loop = asyncio.create_task(engine.run())
        await eventually(lambda: sum(handle.status() == "processing" for handle in slow) == 2)
        urgent = works.task("urgent").enqueue()
        await eventually(lambda: urgent.status() == "completed")
        assert sum(handle.status() == "processing" for handle in slow) == 2
        engine.stop()
        await loop

    asyncio.run(story())


@pytest.mark.requirement("Q3")
def test_an_idle_worker_wakes_for_a_new_job_without_waiting_for_its_poll(works: Works) -> None:
    async def story() -> None:
        engine = works.engine(poll_s=60.0)
        loop = asyncio.create_task(engine.run())
        await eventually(lambda: any(worker.waiting for worker in works.app.workers.list().workers))
        handle = await asyncio.to_thread(works.task("add").enqueue, 1, 2)
        await eventually(lambda: handle.status() == "completed")
        engine.stop()
        await loop

    asyncio.run(story())


@pytest.mark.requirement("Q3", "Q12")
def test_an_idle_worker_wakes_when_a_scheduled_job_is_due(works: Works) -> None:
    async def story() -> None:
        handle = works.task("add").using(delay=0.7).enqueue(1, 2)
        engine = works.engine(poll_s=60.0)
        loop = asyncio.create_task(engine.run())
        await eventually(lambda: handle.status() == "completed")
        engine.stop()
        await loop

    asyncio.run(story())


def test_it_leaves_after_so_many_jobs_when_told_to(works: Works) -> None:
    handles = [works.task("add").enqueue(n, n) for n in range(10)]
    engine = works.engine(Lane("one", 1, (ANY,)), max_jobs=3)
    asyncio.run(engine.run())
    assert sum(handle.status() == "completed" for handle in handles) == 3


@pytest.mark.parametrize("idle_first", [True, False])
def test_an_idle_lane_does_not_keep_the_last_jobs_from_another_one(works: Works, idle_first: bool) -> None:
    idle, busy = Lane("idle", 2, ("bulk",)), Lane("busy", 1, ("default",))
    engine = works.engine(*((idle, busy) if idle_first else (busy, idle)), max_jobs=2)

    async def story() -> None:
        async with asyncio.timeout(5.0):
            run = asyncio.create_task(engine.run())
            await eventually(lambda: engine.turns._idle > 0)  # both have looked in vain
            handles = [works.task("add").enqueue(n, n) for n in range(4)]
            await run
        assert sum(handle.status() == "completed" for handle in handles) == 2

    asyncio.run(story())


@pytest.mark.parametrize("max_jobs", [2, 3])
@pytest.mark.parametrize("order", list(permutations(("bulk", "default", "reports"))))
def test_a_worker_that_drains_looks_into_every_lane_although_it_may_run_few_jobs(
    order: tuple[str, ...], max_jobs: int
) -> None:
    """Whichever lane asks first for all that may still run, with queues that a limit counts (bulk) and others."""
    works = Works("isolation")
    handle = works.task("add").enqueue(1, 2)
    lanes = (Lane(queue, slots, (queue,)) for slots, queue in enumerate(order, start=1))
    asyncio.run(asyncio.wait_for(works.engine(*lanes, drain=True, max_jobs=max_jobs).run(), 20))
    assert handle.status() == "completed"
    works.app.close()


@pytest.mark.requirement("L13")
def test_the_utilisation_of_a_lane_is_the_share_of_its_slot_time_spent_running(works: Works) -> None:
    state = works.engine(Lane("half", 2, (ANY,))).state.lanes[0]
    works.task("add").enqueue(1, 2)
    want = state.planner.want(1, 100.0)
    worker = WorkerId(works.app.runtime.new_job_id())
    works.app.runtime.store.run(Renew(worker=worker))
    answer = works.app.runtime.store.run(Turn(worker=worker, claim_no=1, wants=(want,)))
    state.planner.learn(want, answer, 0.0, 100.0)
    [lease] = answer.leases
    state.utilisation(100.0, running_s=0.0)
    state.begin(lease, 100.0)
    state.end(lease, 100.0, ran_s=5.0)
    assert state.utilisation(110.0, running_s=5.0) == pytest.approx(0.5)
    state.planner.accounts.claim(lease.tenant, 1, 110.0)
    state.begin(lease, 105.0)
    state.end(lease, 105.0, ran_s=5.0)
    assert state.utilisation(120.0, running_s=0.0) == pytest.approx(0.0)


class Unspeakable(Exception):
    """Cannot even be looked at."""

    @property
    def response(self) -> object:
        raise SystemExit(3)


def test_a_task_that_cancels_its_slot_or_raises_what_cannot_be_told_costs_no_slot(works: Works) -> None:
    @works.app.task(name="cancels")
    async def cancels() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    @works.app.task(name="unspeakable")
    async def unspeakable() -> None:
        raise Unspeakable

    ended, failed = cancels.enqueue(), unspeakable.enqueue()
    after = works.task("add").enqueue(1, 2)
    works.drain(Lane("one", 1, (ANY,)))
    assert [handle.status() for handle in (ended, failed, after)] == ["completed", "failed", "completed"]
