"""What a worker tells of its work: always what needs somebody, the rest only while somebody watches, and never without bound."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from fairlane import Breaker, Retry
from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import ALL_TENANTS, Event, ReadEvents, Renew, Scope, Turn, Want
from fairlane.core.outcome import Completed, Died, Failure
from fairlane.core.profiles import ANY, Lane
from fairlane.errors import StoreUnavailable
from fairlane.worker import events as buffer
from tests.worker.conftest import Works, eventually

ONE = Lane("one", 1, (ANY,))


def events(works: Works, *kinds: str, **reading: Any) -> list[Event]:
    return list(works.app.runtime.store.run(ReadEvents(scope=ALL_TENANTS, kinds=kinds, limit=1000, **reading)).events)


def watch(works: Works) -> None:
    works.app.runtime.store.run(ReadEvents(scope=ALL_TENANTS, watch=True))


@pytest.mark.requirement("W10")
def test_dead_jobs_and_workers_that_come_and_go_are_told_whether_or_not_anybody_watches(works: Works) -> None:
    handle = works.task("refuse").using(tenant="acme").enqueue()
    works.task("add").enqueue(1, 2)
    engine = works.drain()
    [dead] = events(works, "job_dead")
    assert (dead.tenant, dead.data["id"], dead.data["error_type"]) == ("acme", str(handle.id), "NonRetryable")
    assert [event.kind for event in events(works)] == ["worker_started", "job_dead", "worker_stopped"]
    assert events(works, "worker_started")[0].data == {"lanes": {"general": 4}, "worker": str(engine.state.worker)}


def test_a_tenant_reads_of_its_own_jobs_alone(works: Works) -> None:
    for tenant in ("acme", "beta"):
        works.task("refuse").using(tenant=tenant).enqueue()
    works.drain()
    seen = works.app.runtime.store.run(ReadEvents(scope=Scope("acme"))).events
    assert [event.tenant for event in seen] == ["acme"]


@pytest.mark.requirement("W10")
def test_while_somebody_watches_ended_jobs_are_told_as_sums_and_some_by_name(works: Works) -> None:
    async def story() -> None:
        engine = works.engine(drain=True)
        watch(works)
        await engine.state.events.flush()
        for n in range(80):
            works.task("add").using(tenant="acme").enqueue(n, n)
        await engine.run()

    asyncio.run(story())
    assert sum(event.data["completed"] for event in events(works, "jobs")) == 80
    assert events(works, "jobs")[0].data.keys() >= {"queue", "type", "tenant", "completed", "failed"}
    assert len(events(works, "job_completed")) == buffer.SINGLE


def test_events_that_could_not_be_written_are_written_later_up_to_a_bound(
    works: Works, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "KEPT", 3)

    async def story() -> None:
        buffered = works.engine().state.events
        for n in range(5):
            buffered.add("breaker_opened", breaker=f"b{n}")
        told, run = works.app.runtime.access.arun, works.app.runtime.access

        async def away(op: Any, *, on: object | None = None) -> Any:
            raise StoreUnavailable("memory", "away")

        monkeypatch.setattr(run, "arun", away)
        with pytest.raises(StoreUnavailable):
            await buffered.flush()
        monkeypatch.setattr(run, "arun", told)
        await buffered.flush()

    asyncio.run(story())
    assert [event.data["breaker"] for event in events(works, "breaker_opened")] == ["b2", "b3", "b4"]


@pytest.mark.requirement("Q13")
def test_the_worker_that_opens_a_breaker_and_the_one_that_closes_it_tell_of_it_once(works: Works) -> None:
    is_down = True

    @works.app.task(name="call", breaker=Breaker("api", threshold=2, cooldown=0.05), retry=Retry(max_attempts=1))
    async def call() -> None:
        if is_down:
            raise ConnectionError("down")

    for _ in range(4):
        call.enqueue()
    works.drain(ONE)
    [opened] = events(works, "breaker_opened")
    assert (opened.data["breaker"], opened.data["failures"]) == ("api", 2)
    is_down = False

    async def story() -> None:
        engine = works.engine(ONE)
        running = asyncio.create_task(engine.run())
        await eventually(lambda: works.app.breakers.list()[0].state == "closed")
        call.enqueue()
        engine.stop()
        await running

    asyncio.run(story())
    assert [event.data["breaker"] for event in events(works, "breaker_closed")] == ["api"]


def test_what_happened_to_a_job_is_told_in_order_whether_or_not_anybody_watches(works: Works) -> None:
    @works.app.task(name="flaky", retry=Retry(max_attempts=3, delays=(0.0, 0.0)))
    def flaky() -> None:
        raise ConnectionError("down")

    handles = [flaky.using(tenant="acme").enqueue() for _ in range(5)]
    works.drain()
    told = [event for event in events(works) if event.kind.startswith("job_")]
    for handle in handles:
        of_job = [(event.kind, event.data["attempt"]) for event in told if event.data["id"] == str(handle.id)]
        assert of_job == [("job_failed", 1), ("job_failed", 2), ("job_dead", 3)]


def test_events_that_rates_leave_out_are_counted_by_tenant_and_kind(works: Works) -> None:
    async def story() -> None:
        engine = works.engine(drain=True)
        watch(works)
        await engine.state.events.flush()
        for n in range(80):
            works.task("add").using(tenant="acme" if n % 2 else "beta").enqueue(n, n)
        await engine.run()

    asyncio.run(story())
    named, left_out = events(works, "job_completed"), events(works, "events_left_out")
    assert len(named) + sum(event.data["events"] for event in left_out) == 80
    for tenant in ("acme", "beta"):
        theirs = [event.data["kinds"]["job_completed"] for event in left_out if event.tenant == tenant]
        assert sum(theirs) + sum(event.tenant == tenant for event in named) == 40
    assert len(events(works, "watch_started")) == 1


def test_nothing_is_told_of_an_attempt_that_the_store_refused_to_settle(works: Works) -> None:
    buffered = works.engine().state.events
    lease = next(iter_leases(works))
    died = Died(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, failure=FAILURE)
    buffered.attempt_ended(lease, died, 0.1)
    buffered.settled((died,), [lease.key])
    assert not buffered.has_unwritten
    buffered.attempt_ended(lease, died, 0.1)
    buffered.settled((died,))
    assert buffered.has_unwritten


def test_a_result_that_cannot_be_stored_is_told_as_the_death_it_is(works: Works) -> None:
    buffered = works.engine().state.events
    buffered.is_watched = True
    lease = next(iter_leases(works))
    buffered.attempt_ended(lease, Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no), 0.1)
    buffered.unstorable(Died(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, failure=FAILURE))
    buffered.settled((Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no),))
    asyncio.run(buffered.flush())
    assert [event.kind for event in events(works)] == ["job_dead", "jobs"]


def test_failures_are_written_within_a_moment(works: Works) -> None:
    @works.app.task(name="flaky", retry=Retry(max_attempts=2, delays=(600.0,)))
    async def flaky() -> None:
        raise ConnectionError("down")

    async def story() -> None:
        engine = works.engine()
        running = asyncio.create_task(engine.run())
        flaky.enqueue()
        await eventually(lambda: events(works, "job_failed"), 2.0)
        engine.stop()
        await running

    asyncio.run(story())


FAILURE = Failure(error_class="retryable", error_type="E", message="m", fingerprint="f")


def iter_leases(works: Works) -> Iterator[Lease]:
    works.task("add").enqueue(1, 2)
    worker = WorkerId(works.app.runtime.new_job_id())
    works.app.runtime.store.run(Renew(worker=worker, lease_s=60))
    want = Want(lane="one", queues=("default",), limit=1, start=1, types=("shop.add",))
    yield from works.app.runtime.store.run(Turn(worker=worker, claim_no=1, wants=(want,))).leases
