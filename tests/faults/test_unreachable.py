"""What a caller hears when the server cannot be reached or used: one typed error, in time, with the reason in one line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from fairlane.core.clock import FakeClock, SystemClock
from fairlane.core.ops import ALL_TENANTS, Cancel, Enqueue, GetStats
from fairlane.errors import SchemaOutOfDate, StoreRefused, StoreUnavailable
from fairlane.stores.postgres import PostgresStore
from fairlane.stores.postgres.connection import parameters
from fairlane.stores.postgres.listener import PROBE_EVERY_S, PostgresListener
from fairlane.testing.conformance.samples import Making
from tests.faults.conftest import Stores
from tests.faults.places import Place
from tests.servers.ports import free_port
from tests.servers.proxy import BLACKHOLE, PASS, Proxy
from tests.support.stores import Face

QUICK = {"statement_timeout_s": 0.2}
"""An answer is waited for 1 s longer than this."""
both_colours = pytest.mark.parametrize("colour", ["sync", "async"])


@contextmanager
def ends_within(seconds: float) -> Iterator[None]:
    clock = SystemClock()
    began = clock.monotonic()
    yield
    assert clock.monotonic() - began < seconds


def one_job() -> Enqueue:
    return Enqueue(jobs=(Making().job(),))


@both_colours
def test_a_call_on_a_frozen_connection_goes_on_over_a_new_one(place: Place, proxy: Proxy, colour: str) -> None:
    face = Face(_open(place, proxy), colour)
    face.run(GetStats(scope=ALL_TENANTS))
    proxy.cut_all("silent")
    with ends_within(6):
        [receipt] = face.run(one_job()).receipts
    assert receipt.disposition == "created"
    assert place.jobs() == 1
    assert face.run(one_job()).receipts[0].disposition == "replayed"
    face.close()


@pytest.mark.parametrize(("colour", "op"), [("sync", "enqueue"), ("async", "enqueue"), ("sync", "cancel")])
def test_a_call_into_a_black_hole_ends_and_tells_whether_it_may_have_been_done(
    place: Place, proxy: Proxy, colour: str, op: str
) -> None:
    face = Face(_open(place, proxy), colour)
    face.run(GetStats(scope=ALL_TENANTS))
    proxy.plan = BLACKHOLE
    proxy.cut_all("silent")
    with ends_within(6), pytest.raises(StoreUnavailable) as caught:
        face.run(one_job() if op == "enqueue" else Cancel(scope=ALL_TENANTS, id=Making().job_id(), by="ada"))
    # An act is sent only on a connection that has just answered: this one never went out.
    assert ("may or may not have taken effect" in str(caught.value)) == (op == "enqueue")
    assert "\n" not in str(caught.value)
    proxy.plan = PASS
    assert face.run(one_job()).receipts[0].disposition == "created"
    face.close()


def test_a_listener_that_cannot_hear_any_more_finds_out_and_comes_back(
    place: Place, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.stores.postgres.listener.PROBE_WITHIN_S", 0.3)
    clock = FakeClock()
    params = parameters(place.through(proxy.port), statement_timeout_s=1, lock_timeout_s=1)
    listener = PostgresListener(params, "fairlane_wake", clock)
    proxy.cut_all("silent")
    assert not listener.wait(0.01)
    assert proxy.connections == 1
    clock.advance(PROBE_EVERY_S + 1)
    assert not listener.wait(0.01)  # asks, hears nothing, gives the connection up
    assert listener.wait(0.01)  # listens anew
    place.rows("notify fairlane_wake")
    assert listener.wait(10)
    listener.close()


@both_colours
def test_no_server_at_all_is_told_at_once_and_in_one_line(colour: str) -> None:
    face = Face(PostgresStore(f"postgresql://ada:s3cret@127.0.0.1:{free_port()}/jobs"), colour)
    with ends_within(5), pytest.raises(StoreUnavailable, match="refused") as caught:
        face.run(one_job())
    assert "\n" not in str(caught.value)
    assert "s3cret" not in str(caught.value)
    face.close()


def test_a_listener_without_a_server_says_so(stores: Stores) -> None:
    store = stores.open(f"postgresql://127.0.0.1:{free_port()}/jobs")
    with pytest.raises(StoreUnavailable, match="refused"):
        store.listener(Making().worker_id())


def test_a_server_that_never_speaks_is_given_up_after_the_connect_timeout(
    place: Place, proxy: Proxy, stores: Stores
) -> None:
    proxy.plan = BLACKHOLE
    store = stores.open(place.through(proxy.port, "connect_timeout=2"))
    with ends_within(6), pytest.raises(StoreUnavailable, match="timeout"):
        store.run(one_job())


def test_a_wrong_password_is_told_without_showing_it(place: Place, stores: Stores) -> None:
    rules = place.server.data / "pg_hba.conf"
    place.rows("create role locked_out login password 'right'")
    before = rules.read_text()
    rules.write_text("host all locked_out 127.0.0.1/32 scram-sha-256\n" + before)
    try:
        place.rows("select pg_reload_conf()")
        dsn = place.dsn.replace("postgres@", "locked_out:wr0ng@")
        with pytest.raises(StoreUnavailable, match="password authentication failed") as caught:
            stores.open(dsn).run(one_job())
        assert "wr0ng" not in str(caught.value)
    finally:
        rules.write_text(before)
        place.rows("select pg_reload_conf()")
        place.rows("drop role locked_out")


def test_a_database_that_is_not_there_is_named(place: Place, stores: Stores) -> None:
    with pytest.raises(StoreUnavailable, match='database "nowhere" does not exist'):
        stores.open(place.server.dsn("nowhere")).run(one_job())


@both_colours
@pytest.mark.parametrize("op", [one_job(), GetStats(scope=ALL_TENANTS)], ids=["enqueue", "stats"])
def test_a_database_without_the_schema_names_the_command_that_makes_it(
    place: Place, colour: str, op: Enqueue | GetStats
) -> None:
    place.rows("drop schema fairlane cascade")
    face = Face(PostgresStore(place.dsn), colour)
    with pytest.raises(SchemaOutOfDate, match="run `fairlane migrate up`"):
        face.run(op)
    face.close()


def test_a_schema_of_the_future_is_left_alone(place: Place, stores: Stores) -> None:
    newer = "insert into fairlane.schema_version (version, phase, name) values (999, '{}', 'from the future')"
    place.rows(newer.format("expand"))
    migrator = stores.open(place.dsn).migrator()
    assert migrator.up() == ()
    migrator.require()
    place.rows(newer.format("contract"))
    for act in (migrator.up, migrator.require, migrator.contract):
        with pytest.raises(SchemaOutOfDate, match=r"version 999.*upgrade the fairlane package"):
            act()


def test_a_read_only_server_is_told_apart_from_one_that_is_away(place: Place, stores: Stores) -> None:
    place.rows(f'alter database "{place.name}" set default_transaction_read_only = on')
    store = stores.open(place.dsn)
    with pytest.raises(StoreUnavailable, match="read-only: connect to the primary"):
        store.run(one_job())
    assert store.run(GetStats(scope=ALL_TENANTS)).queues == ()


def test_a_role_without_rights_is_told_what_it_lacks(place: Place, stores: Stores) -> None:
    place.rows("create role stranger login")
    with pytest.raises(StoreUnavailable, match=r"store cannot be used.*grant this role"):
        stores.open(place.dsn.replace("postgres@", "stranger@")).run(one_job())
    place.rows("drop role stranger")


def test_a_lock_held_too_long_ends_the_call_and_leaves_nothing(place: Place, stores: Stores) -> None:
    store = stores.open(place.dsn, lock_timeout_s=0.1)
    with psycopg.connect(place.dsn) as busy:
        busy.execute("lock fairlane.job in access exclusive mode")
        with pytest.raises(StoreUnavailable, match="lock timeout") as caught:
            store.run(one_job())
    assert "the postgresql store is busy" in str(caught.value), "it was reached"
    assert "CONTEXT" not in str(caught.value)
    assert "SQL" not in str(caught.value).replace("postgresql", "")
    assert place.jobs() == 0
    assert store.run(one_job()).receipts[0].disposition == "created"


def test_data_the_server_refuses_is_told_as_such_and_the_store_goes_on(place: Place, stores: Stores) -> None:
    store = stores.open(place.dsn)
    with pytest.raises(StoreRefused, match="smallint"):
        store.run(Enqueue(jobs=(Making().job(priority=70_000),)))
    assert store.run(one_job()).receipts[0].disposition == "created"
    assert place.jobs() == 1


def test_a_cancelled_asynchronous_call_leaves_the_store_usable(place: Place) -> None:
    async def story() -> None:
        store = PostgresStore(place.dsn, max_connections=1)
        with psycopg.connect(place.dsn) as busy:
            busy.execute("lock fairlane.job in access exclusive mode")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(store.arun(one_job()), 0.2)
        assert (await store.arun(one_job())).receipts[0].disposition == "created"
        await store.aclose()

    asyncio.run(story())
    assert place.jobs() == 1


def _open(place: Place, proxy: Proxy) -> PostgresStore:
    return PostgresStore(place.through(proxy.port, "connect_timeout=2"), **QUICK)
