"""Calls of the PostgreSQL store in event loops: whatever ends a call or the store, no connection is left open."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Iterator

import psycopg
import pytest

from fairlane.core.ops import Check, PauseClaims
from fairlane.stores.postgres import PostgresStore
from tests.faults.eventually import eventually
from tests.faults.places import Place


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """A connection that is collected while it is open warns; which test it would meet is chance."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield
        gc.collect()
    assert [str(warning.message) for warning in warned] == []


def test_a_store_closed_outside_its_loop_leaves_no_connection(place: Place) -> None:
    store = PostgresStore(place.dsn)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(store.arun(Check()))
    store.close()
    loop.close()


def test_a_store_closed_while_another_loop_lives_leaves_no_connection(place: Place) -> None:
    store, used, closed = PostgresStore(place.dsn), threading.Event(), threading.Event()

    async def use() -> None:
        await store.arun(Check())
        used.set()
        await asyncio.to_thread(closed.wait, 20)

    elsewhere = threading.Thread(target=asyncio.run, args=(use(),))
    elsewhere.start()
    assert used.wait(20)
    asyncio.run(store.aclose())
    closed.set()
    elsewhere.join()


def test_a_call_cancelled_at_any_step_leaves_no_connection(place: Place) -> None:
    """An act is sent on a connection that has just answered: it may be cancelled while it asks."""
    store = PostgresStore(place.dsn)

    async def cancel_at_every_step() -> None:
        await store.arun(Check())
        for steps in range(30):
            task = asyncio.create_task(store.arun(PauseClaims(kind="queue", name="mail", by="ann")))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        await store.aclose()

    asyncio.run(cancel_at_every_step())


def test_a_connection_whose_call_was_cancelled_twice_is_not_used_again(place: Place) -> None:
    """The first cancellation asks the server to end the call, the second does not await that."""
    store, pause = PostgresStore(place.dsn), PauseClaims(kind="queue", name="mail", by="ann")

    async def cancel_twice() -> None:
        await store.arun(pause)
        with psycopg.connect(place.dsn) as other:
            other.execute("lock table fairlane.pause")
            task = asyncio.create_task(store.arun(pause))
            await asyncio.to_thread(eventually, place.sessions_waiting)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            sessions = "select count(*) from pg_stat_activity where datname = current_database() and pid <> %s"
            assert task.cancelled()
            eventually(lambda: place.number(sessions, other.info.backend_pid) == 1)  # that of this look
        await store.aclose()

    asyncio.run(cancel_twice())
