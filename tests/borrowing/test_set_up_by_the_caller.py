"""Connections set up the caller's own way: factories, codecs, modes. The job comes through, the set-up stays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row, scalar_row
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from fairlane.core.ops import ALL_TENANTS, Enqueue, PageJobs
from fairlane.errors import StoreRefused
from fairlane.stores.postgres import PostgresStore
from fairlane.testing.conformance.samples import NOON, Making
from tests.support.stores import Ground

PAYLOAD = '{"name":"Zoë 100% \\"quoted\\" $1 :x","at":"\U0001f680"}'


@pytest.fixture(scope="module")
def dsn(ground: Ground) -> str:
    return ground.address("postgres")


@pytest.fixture(scope="module")
def store(dsn: str) -> Iterator[PostgresStore]:
    store = PostgresStore(dsn)
    yield store
    store.close()


_seeds = iter(range(500, 600))


@pytest.fixture
def op() -> Enqueue:
    # With an instant of its own: drivers differ most in how they take those.
    return Enqueue(jobs=(Making(seed=next(_seeds)).job(payload=PAYLOAD),), now=NOON, capacity=10_000)


def assert_there(store: PostgresStore, op: Enqueue) -> None:
    jobs = {job.id: job for job in store.run(PageJobs(scope=ALL_TENANTS)).jobs}
    assert jobs[op.jobs[0].id].payload == PAYLOAD
    assert jobs[op.jobs[0].id].enqueued_at == NOON


@pytest.mark.parametrize("factory", [dict_row, scalar_row], ids=["dict_row", "scalar_row"])
def test_a_psycopg_row_factory_stays_the_callers(dsn: str, store: PostgresStore, op: Enqueue, factory: Any) -> None:
    with psycopg.connect(dsn, row_factory=factory) as conn:
        store.run(op, on=conn)
        assert conn.row_factory is factory
    assert_there(store, op)


@pytest.mark.parametrize("cursor", [psycopg.RawCursor, psycopg.ClientCursor])
def test_a_psycopg_cursor_class_stays_the_callers(dsn: str, store: PostgresStore, op: Enqueue, cursor: Any) -> None:
    with psycopg.connect(dsn, cursor_factory=cursor) as conn:
        store.run(op, on=conn)
    assert_there(store, op)


def test_a_psycopg_pipeline_carries_the_job_with_the_callers_statements(
    dsn: str, store: PostgresStore, op: Enqueue
) -> None:
    with psycopg.connect(dsn) as conn:
        with conn.pipeline():
            conn.execute("create temporary table mine (number integer)")
            [receipt] = store.run(op, on=conn).receipts
            assert receipt.disposition == "created"
            conn.execute("insert into mine values (1)")
        conn.rollback()
        with conn.pipeline():
            store.run(op, on=conn)
    assert_there(store, op)


def test_an_asynchronous_psycopg_pipeline_does_too(dsn: str, store: PostgresStore, op: Enqueue) -> None:
    async def story() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, row_factory=dict_row) as conn, conn.pipeline():
            await conn.execute("select 1")
            await store.arun(op, on=conn)

    asyncio.run(story())
    assert_there(store, op)


def test_a_psycopg_transaction_block_and_its_savepoints_hold_the_job(
    dsn: str, store: PostgresStore, op: Enqueue
) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn, conn.transaction():
        with conn.transaction():
            store.run(op, on=conn)
            raise psycopg.Rollback
        [receipt] = store.run(op, on=conn).receipts
        assert receipt.disposition == "created"
    assert_there(store, op)


def test_outside_any_transaction_the_job_stands_for_itself(dsn: str, store: PostgresStore, op: Enqueue) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        store.run(op, on=conn)
        assert_there(store, op)


def test_a_connection_that_cannot_carry_the_text_is_told_before_anything_is_sent(
    dsn: str, store: PostgresStore, op: Enqueue
) -> None:
    with psycopg.connect(dsn, client_encoding="latin1") as conn:
        with pytest.raises(StoreRefused, match="client_encoding"):
            store.run(op, on=conn)
        assert conn.execute("select 1").fetchone() == (1,)


def test_settings_of_the_callers_session_stay_as_they_are(dsn: str, store: PostgresStore, op: Enqueue) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute("set search_path = public")
        conn.execute("set time zone 'Asia/Tokyo'")
        conn.execute("do 'begin end'")  # brings the settings of PL/pgSQL into the list
        before = conn.execute("select name, setting from pg_settings order by name").fetchall()
        store.run(op, on=conn)
        assert conn.execute("select name, setting from pg_settings order by name").fetchall() == before
    assert_there(store, op)


def test_asyncpg_codecs_for_json_and_instants_stay_the_callers(dsn: str, store: PostgresStore, op: Enqueue) -> None:
    async def story() -> None:
        conn = await asyncpg.connect(dsn)
        for name in ("json", "jsonb"):
            await conn.set_type_codec(name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
        await conn.set_type_codec("timestamptz", schema="pg_catalog", encoder=str, decoder=str)
        async with conn.transaction():
            await store.arun(op, on=conn)
            assert await conn.fetchval("select '[1]'::json") == [1]
        await conn.close()

    asyncio.run(story())
    assert_there(store, op)


def test_an_asyncpg_record_class_stays_the_callers(dsn: str, store: PostgresStore, op: Enqueue) -> None:
    class Named(asyncpg.Record):
        def __getattr__(self, name: str) -> Any:
            return self[name]

    async def story() -> None:
        conn = await asyncpg.connect(dsn, record_class=Named)
        await store.arun(op, on=conn)
        await conn.close()

    asyncio.run(story())
    assert_there(store, op)


def test_a_scoped_session_and_a_session_made_by_hand_both_work(dsn: str, store: PostgresStore, op: Enqueue) -> None:
    engine = sqlalchemy.create_engine(dsn.replace("postgresql:", "postgresql+psycopg:"))
    scoped = scoped_session(sessionmaker(engine))
    store.run(op, on=scoped)
    scoped.rollback()
    with Session(engine) as session, session.begin():
        with session.begin_nested() as nested:
            store.run(op, on=session)
            nested.rollback()
        [receipt] = store.run(op, on=session).receipts
        assert receipt.disposition == "created"
    scoped.remove()
    engine.dispose()
    assert_there(store, op)
