"""Restarted servers and ended sessions: a store goes on by itself, without anybody restarting the application."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from fairlane.core.ops import ALL_TENANTS, Cancel, Enqueue, Fail, GetStats, Turn
from fairlane.stores.postgres import PostgresStore
from fairlane.testing.conformance.samples import Making
from fairlane.testing.conformance.scene import Scene
from tests.faults.conftest import Stores
from tests.faults.eventually import eventually
from tests.faults.places import Place

CONNECTIONS = 8


def restart(place: Place) -> None:
    place.server.restart()


def end_sessions(place: Place) -> None:
    assert place.end_sessions() > 0


both_ways = pytest.mark.parametrize("strike", [restart, end_sessions])
Strike = Callable[[Place], None]


def fill(store: PostgresStore) -> None:
    """Leave as many idle connections as the store may have."""
    together = threading.Barrier(CONNECTIONS)

    def ask() -> None:
        together.wait(20)
        store.run(GetStats(scope=ALL_TENANTS))

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        for asked in [threads.submit(ask) for _ in range(CONNECTIONS)]:
            asked.result(20)


@both_ways
def test_the_next_call_works_however_many_connections_were_ended(
    own_place: Place, stores: Stores, strike: Strike
) -> None:
    store = stores.open(own_place.dsn)
    fill(store)
    strike(own_place)
    making = Making()
    for number in range(1, 4):
        assert store.run(Enqueue(jobs=(making.job(),))).receipts[0].disposition == "created"
        assert own_place.jobs() == number


@both_ways
def test_the_next_asynchronous_call_works_however_many_connections_were_ended(own_place: Place, strike: Strike) -> None:
    making = Making()

    async def story() -> None:
        store = PostgresStore(own_place.dsn)
        await asyncio.gather(*(store.arun(GetStats(scope=ALL_TENANTS)) for _ in range(CONNECTIONS)))
        await asyncio.to_thread(strike, own_place)
        jobs = [making.job() for _ in range(CONNECTIONS)]
        results = await asyncio.gather(*(store.arun(Enqueue(jobs=(job,))) for job in jobs))
        assert [result.receipts[0].id for result in results] == [job.id for job in jobs]
        await store.aclose()

    asyncio.run(story())
    assert own_place.jobs() == CONNECTIONS


@both_ways
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_person_acts_as_if_nothing_had_happened(
    own_place: Place, stores: Stores, strike: Strike, colour: str
) -> None:
    # An act is never sent twice, so it must not be lost on a connection that was dead before.
    store = stores.open(own_place.dsn)
    receipt = Scene(store).put()
    fill(store)
    fail = Fail(scope=ALL_TENANTS, id=receipt.id, by="ada", reason="wrong", retry_delay_s=60)
    cancel = Cancel(scope=ALL_TENANTS, id=receipt.id, by="ada")

    async def act() -> None:
        ours = PostgresStore(own_place.dsn)
        await ours.arun(GetStats(scope=ALL_TENANTS))
        await asyncio.to_thread(strike, own_place)
        assert (await ours.arun(fail)).refused is None
        assert (await ours.arun(cancel)).refused is None
        await ours.aclose()

    if colour == "async":
        asyncio.run(act())
    else:
        strike(own_place)
        assert store.run(fail).refused is None
        assert store.run(cancel).refused is None
    assert own_place.rows("select action from fairlane.audit order by id") == [("job_fail",), ("job_cancel",)]


@pytest.mark.requirement("Q3")
@both_ways
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_listener_comes_back_and_is_woken_again(
    own_place: Place, stores: Stores, strike: Strike, colour: str
) -> None:
    store = stores.open(own_place.dsn)
    scene = Scene(store)
    worker = scene.hire()
    store.run(Turn(worker=worker, claim_no=1, waiting=True, now=scene.now))
    listener = store.listener(worker)

    def wait(timeout_s: float) -> bool:
        if colour == "async":
            return asyncio.run(listener.await_(timeout_s))
        return listener.wait(timeout_s)

    try:
        scene.put()
        assert wait(10)
        strike(own_place)
        # A wake-up may have been missed, so coming back counts as one.
        eventually(lambda: wait(0.05))
        assert not wait(0.05)
        scene.put()
        assert wait(10)
    finally:
        listener.close()
