"""What is no connection of this store is refused, with the reason, before anything is done."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import apsw
import asyncpg
import psycopg
import psycopg_pool
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from fairlane.core.ops import ALL_TENANTS, Enqueue, GetStats
from fairlane.errors import SchemaOutOfDate, SqliteLibraryMismatch, StoreError, StoreUnavailable, UnsupportedConnection
from fairlane.stores.postgres import PostgresStore
from fairlane.stores.sqlite import SqliteStore
from fairlane.testing.conformance.samples import Making
from tests.borrowing.callers import POSTGRES, Kind
from tests.support.stores import Ground


class Place:
    def __init__(self, dsn: str) -> None:
        self.dsn, self.store = dsn, PostgresStore(dsn)

    def jobs(self) -> int:
        with psycopg.connect(self.dsn) as conn:
            row = conn.execute("select count(*) from fairlane.job").fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture(scope="module")
def place(ground: Ground) -> Iterator[Place]:
    place = Place(ground.address("postgres"))
    yield place
    place.store.close()


def one_job() -> Enqueue:
    return Enqueue(jobs=(Making(seed=5).job(),))


def test_what_is_no_connection_is_refused_by_name(place: Place) -> None:
    engine = sqlalchemy.create_engine("postgresql+psycopg://127.0.0.1/none")
    pool = psycopg_pool.ConnectionPool(place.dsn, open=False)
    for other in (7, "postgresql://", object(), engine, pool, sqlite3.connect(":memory:"), apsw.Connection(":memory:")):
        with pytest.raises(UnsupportedConnection) as caught:
            place.store.run(one_job(), on=other)
        assert type(other).__qualname__ in str(caught.value)
        assert "psycopg, asyncpg, SQLAlchemy or Django" in str(caught.value)
        with pytest.raises(UnsupportedConnection):
            asyncio.run(place.store.arun(one_job(), on=other))
        if isinstance(other, sqlite3.Connection | apsw.Connection):
            other.close()
    assert place.jobs() == 0


def test_sqlalchemy_on_another_database_system_is_refused(place: Place) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as conn, pytest.raises(UnsupportedConnection, match="this one is on sqlite"):
        place.store.run(one_job(), on=conn)
    engine.dispose()


@pytest.mark.parametrize("kind", [kind for kind in POSTGRES if kind.is_async], ids=str)
def test_an_asynchronous_connection_in_a_blocking_call_is_told_about_aenqueue(place: Place, kind: Kind) -> None:
    async def story() -> None:
        async with kind.open(place.dsn) as caller:
            await caller.begin()
            with pytest.raises(UnsupportedConnection, match="asynchronous: use aenqueue"):
                place.store.run(one_job(), on=caller.conn)
            await caller.rollback()

    asyncio.run(story())
    assert place.jobs() == 0


def test_only_enqueueing_is_done_on_a_callers_connection(place: Place) -> None:
    with (
        psycopg.connect(place.dsn) as conn,
        pytest.raises(UnsupportedConnection, match="for enqueueing and emitting only"),
    ):
        place.store.run(GetStats(scope=ALL_TENANTS), on=conn)


@pytest.mark.parametrize("kind", POSTGRES, ids=str)
def test_a_database_without_the_schema_is_told_and_the_callers_transaction_lives(
    ground: Ground, place: Place, kind: Kind
) -> None:
    async def story() -> None:
        async with kind.open(ground.server.dsn("postgres")) as caller:
            await caller.begin()
            await caller.execute("create temporary table mine (number integer)")
            with pytest.raises(SchemaOutOfDate, match="run `fairlane migrate up`"):
                await place.store.arun(one_job(), on=caller.conn)
            await caller.execute("insert into mine values (1)")
            await caller.commit()

    asyncio.run(story())


def test_another_database_that_has_the_schema_gets_the_job(ground: Ground, place: Place) -> None:
    elsewhere = Place(ground.address("postgres"))
    with psycopg.connect(elsewhere.dsn) as conn:
        place.store.run(one_job(), on=conn)
    assert (place.jobs(), elsewhere.jobs()) == (0, 1)
    elsewhere.store.close()


def test_a_role_without_rights_is_told_and_its_transaction_lives(place: Place) -> None:
    with psycopg.connect(place.dsn, autocommit=True) as owner:
        owner.execute("create role order_clerk login")
    with psycopg.connect(place.dsn.replace("postgres@", "order_clerk@")) as conn:
        with pytest.raises(StoreUnavailable, match='the role "order_clerk" of this connection may not enqueue'):
            place.store.run(one_job(), on=conn)
        assert conn.execute("select 1").fetchone() == (1,)
    with psycopg.connect(place.dsn, autocommit=True) as owner:
        owner.execute("drop role order_clerk")


@pytest.mark.parametrize("kind", POSTGRES, ids=str)
def test_a_transaction_that_has_failed_already_is_named_as_the_reason(place: Place, kind: Kind) -> None:
    async def story() -> None:
        async with kind.open(place.dsn) as caller:
            await caller.begin()
            with pytest.raises(Exception, match="no_such_table"):
                await caller.execute("select * from no_such_table")
            with pytest.raises(StoreError, match="has failed before; roll it back first"):
                await place.store.arun(one_job(), on=caller.conn)
            await caller.rollback()

    asyncio.run(story())
    assert place.jobs() == 0


@pytest.mark.parametrize("kind", POSTGRES, ids=str)
def test_a_connection_that_broke_is_not_tried_again(place: Place, kind: Kind) -> None:
    async def story() -> None:
        async with kind.open(place.dsn) as caller:
            await caller.begin()
            await caller.execute("select 1")
            with psycopg.connect(place.dsn, autocommit=True) as admin:
                admin.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
                    "and pid <> pg_backend_pid() and state = 'idle in transaction'"
                )
            with pytest.raises(StoreUnavailable) as caught:
                await place.store.arun(one_job(), on=caller.conn)
            assert "\n" not in str(caught.value)
            with suppress(Exception):  # some drivers say so again, some do not
                await caller.rollback()

    asyncio.run(story())
    assert place.jobs() == 0


def test_a_transaction_the_server_wants_repeated_is_told_so(place: Place) -> None:
    with psycopg.connect(place.dsn) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("select 1")
        key = {"idempotency_key": "taken meanwhile"}
        place.store.run(Enqueue(jobs=(Making(seed=61).job(**key),)))
        with pytest.raises(StoreUnavailable, match="so that you may run it again") as caught:
            place.store.run(Enqueue(jobs=(Making(seed=62).job(**key),)), on=conn)
        assert isinstance(caught.value.__cause__, psycopg.errors.SerializationFailure)
        conn.rollback()
    assert place.jobs() == 1


def test_a_role_that_may_not_call_all_that_enqueueing_calls_is_told_before(ground: Ground) -> None:
    place = Place(ground.address("postgres"))
    with psycopg.connect(place.dsn, autocommit=True) as owner:
        owner.execute("create role order_taker login; grant usage on schema fairlane to order_taker")
        owner.execute("revoke execute on function fairlane.enqueue_one_v1 from public")
    with psycopg.connect(place.dsn.replace("postgres@", "order_taker@")) as conn:
        with pytest.raises(StoreUnavailable, match='the role "order_taker" of this connection may not enqueue'):
            place.store.run(one_job(), on=conn)
        assert conn.execute("select 1").fetchone() == (1,)
    place.store.close()


def test_an_older_schema_is_told_and_the_callers_transaction_lives(ground: Ground) -> None:
    place = Place(ground.address("postgres"))
    with psycopg.connect(place.dsn, autocommit=True) as owner:
        owner.execute("drop function fairlane.enqueue_one_v1")
    with psycopg.connect(place.dsn) as conn:
        with pytest.raises(SchemaOutOfDate, match="run `fairlane migrate up`"):
            place.store.run(one_job(), on=conn)
        assert conn.execute("select 1").fetchone() == (1,)
    place.store.close()


def test_two_sqlite_libraries_on_one_file_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    for library, theirs in (("apsw", sqlite3.connect), ("stdlib", apsw.Connection)):
        store = SqliteStore(path, library=library)  # type: ignore[arg-type]
        conn = theirs(":memory:")
        with pytest.raises(SqliteLibraryMismatch, match="can corrupt it"):
            store.run(one_job(), on=conn)
        conn.close()
        assert store.run(GetStats(scope=ALL_TENANTS)).queues == ()
        store.close()


def test_a_sqlite_connection_to_another_file_is_refused(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    for other in (apsw.Connection(str(tmp_path / "other.db")), apsw.Connection(":memory:")):
        with pytest.raises(UnsupportedConnection, match=r"jobs\.db"):
            store.run(one_job(), on=other)
        other.close()
    with pytest.raises(UnsupportedConnection):
        store.run(one_job(), on=asyncpg)
    assert store.run(GetStats(scope=ALL_TENANTS)).queues == ()
    store.close()


def test_an_engine_is_no_connection_either(place: Place) -> None:
    engine = create_async_engine("postgresql+asyncpg://127.0.0.1/none")
    with pytest.raises(UnsupportedConnection):
        asyncio.run(place.store.arun(one_job(), on=engine))
