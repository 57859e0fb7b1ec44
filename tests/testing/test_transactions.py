"""Enqueues on the test's own connection: there while its transaction has them, on every kind of connection."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import aiosqlite
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from fairlane import wait_for
from fairlane.errors import UnsupportedConnection
from fairlane.testing import TransactionUnknown, aassert_enqueued, aassert_nothing_enqueued, aenqueued, enqueued
from tests.borrowing.callers import EVERY_WAY, Caller, Kind
from tests.support.stores import Ground
from tests.testing.conftest import Shop

Story = Callable[[Caller, Callable[[int], Any]], Any]


def play(shop: Shop, kind: Kind, colour: str, ground: Ground, story: Story) -> None:
    async def run() -> None:
        async with shop.app.testing(), kind.open(ground.address(kind.store)) as caller:
            task = shop.welcome.using(conn=caller.conn, idempotency_key="once")

            async def enqueue(number: int) -> Any:
                return await task.aenqueue(number) if colour == "async" else task.enqueue(number)

            await story(caller, enqueue)

    asyncio.run(run())


@pytest.mark.parametrize(("kind", "colour"), EVERY_WAY, ids=str)
def test_a_job_is_there_until_its_transaction_is_rolled_back(
    shop: Shop, kind: Kind, colour: str, ground: Ground
) -> None:
    async def story(caller: Caller, enqueue: Callable[[int], Any]) -> None:
        await caller.begin()
        handle = await enqueue(1)
        await aassert_enqueued(shop.welcome, user_id=1)
        assert await handle.astatus() == "pending"
        await caller.rollback()
        await aassert_nothing_enqueued()
        await caller.begin()
        assert not (await enqueue(2)).duplicate  # its key is free again
        await caller.execute("savepoint here")
        await shop.welcome.using(conn=caller.conn).aenqueue(3)
        assert len(await aenqueued()) == 2
        await caller.execute("rollback to savepoint here")
        assert [each.args["user_id"] for each in await aenqueued()] == [2]
        await caller.commit()
        await caller.begin()
        await shop.welcome.using(conn=caller.conn).aenqueue(4)
        await caller.rollback()
        assert [each.args["user_id"] for each in await aenqueued()] == [2]

    play(shop, kind, colour, ground, story)


@pytest.mark.parametrize(("kind", "colour"), EVERY_WAY, ids=str)
def test_a_signal_is_there_until_its_transaction_is_rolled_back(
    shop: Shop, kind: Kind, colour: str, ground: Ground
) -> None:
    async def story() -> None:
        async with shop.app.testing(), kind.open(ground.address(kind.store)) as caller:
            for end in (caller.rollback, caller.commit):
                await caller.begin()
                if colour == "async":
                    await shop.app.signals.aemit("paid", idempotency_key="once", conn=caller.conn)
                else:
                    shop.app.signals.emit("paid", idempotency_key="once", conn=caller.conn)
                assert len((await shop.app.signals.alist(name="paid")).signals) == 1
                await end()
                left = 0 if end == caller.rollback else 1
                assert len((await shop.app.signals.alist(name="paid")).signals) == left
            with pytest.raises(UnsupportedConnection):
                await shop.app.signals.aemit("paid", conn=object())

    asyncio.run(story())


def test_a_signal_of_the_tests_transaction_reaches_jobs_that_wait(shop: Shop) -> None:
    @shop.app.task(name="wait")
    def wait() -> str:
        return str(wait_for("paid", timeout=60))

    with shop.app.testing() as jobs, closing(sqlite3.connect(":memory:")) as connection:
        handle = wait.enqueue()
        jobs.run_due()
        shop.app.signals.emit("paid", "in cash", conn=connection)
        connection.rollback()
        jobs.run_due()
        assert handle.status() == "pending"
        shop.app.signals.emit("paid", "by card", conn=connection)
        connection.commit()
        jobs.run_due()
        assert handle.result() == "by card"
        with pytest.raises(UnsupportedConnection):
            shop.app.signals.emit("paid", conn=object())


def test_a_workflow_goes_with_its_transaction(shop: Shop) -> None:
    with shop.app.testing() as jobs, closing(sqlite3.connect(":memory:")) as connection:
        flow = shop.app.workflow("onboarding", idempotency_key="once")
        flow.add(shop.welcome.bind(1))
        flow.enqueue(conn=connection)
        assert len(shop.app.workflows.list().workflows) == 1
        connection.rollback()
        assert shop.app.workflows.list().workflows == ()
        jobs.assert_nothing_enqueued()


def test_the_tests_outer_transaction_is_the_world(shop: Shop) -> None:
    """The way suites on SQLAlchemy roll back everything: code under test commits savepoints of it."""
    engine = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.StaticPool)

    # Without these two, sqlite3 commits the outermost savepoint (SQLAlchemy's documentation of pysqlite).
    @sqlalchemy.event.listens_for(engine, "connect")
    def by_hand(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @sqlalchemy.event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("begin")

    with shop.app.testing() as jobs, engine.connect() as connection, connection.begin() as outer:
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            shop.welcome.using(conn=session).enqueue(1)
            session.commit()
            shop.welcome.using(conn=session).enqueue(2)
            session.rollback()
        assert [each.args["user_id"] for each in jobs.enqueued()] == [1]
        assert len(jobs.run_due()) == 1
        outer.rollback()
        jobs.assert_nothing_enqueued()
    engine.dispose()


def test_a_connection_that_commits_and_closes_at_once_is_looked_at_in_between(shop: Shop, ground: Ground) -> None:
    with shop.app.testing() as jobs:
        with psycopg.connect(ground.address("postgres")) as connection:
            shop.welcome.using(conn=connection).enqueue(1)
        with suppress(ZeroDivisionError), psycopg.connect(ground.address("postgres")) as connection:
            shop.welcome.using(conn=connection).enqueue(2)
            raise ZeroDivisionError
        assert [each.args["user_id"] for each in jobs.enqueued()] == [1]


def test_a_failed_transaction_has_no_jobs_and_is_not_disturbed(shop: Shop, ground: Ground) -> None:
    with shop.app.testing() as jobs, psycopg.connect(ground.address("postgres")) as connection:
        connection.execute("savepoint a")
        shop.welcome.using(conn=connection).enqueue(1)
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("select 1/0")
        jobs.assert_nothing_enqueued()
        connection.execute("rollback to savepoint a")
        jobs.assert_nothing_enqueued()
        shop.welcome.using(conn=connection).enqueue(2)
        assert len(jobs.enqueued()) == 1


def test_looking_leaves_no_transaction_open(shop: Shop, ground: Ground) -> None:
    with shop.app.testing() as jobs, psycopg.connect(ground.address("postgres")) as connection:
        shop.welcome.using(conn=connection).enqueue(1)
        connection.commit()
        assert len(jobs.enqueued()) == 1
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_what_cannot_be_known_is_not_guessed(shop: Shop, end: str) -> None:
    with shop.app.testing() as jobs:
        connection = sqlite3.connect(":memory:")
        shop.welcome.using(conn=connection).enqueue(1)
        connection.execute(end)
        connection.close()
        with pytest.raises(TransactionUnknown, match="closed before anybody looked"):
            jobs.enqueued()


def test_a_sqlite3_connection_of_another_thread_cannot_be_asked_unless_it_is_open_to_all(shop: Shop) -> None:
    def request(*, check_same_thread: bool) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", check_same_thread=check_same_thread)
        shop.welcome.using(conn=connection).enqueue(1)
        connection.rollback()
        shop.welcome.using(conn=connection).enqueue(2)
        connection.commit()
        return connection

    with ThreadPoolExecutor(1) as pool:
        with shop.app.testing() as jobs, closing(pool.submit(request, check_same_thread=False).result()):
            assert [each.args["user_id"] for each in jobs.enqueued()] == [2]
        with shop.app.testing() as jobs:
            connection = pool.submit(request, check_same_thread=True).result()
            with pytest.raises(TransactionUnknown, match="check_same_thread=False"):
                jobs.enqueued()
            pool.submit(connection.close).result()


def test_a_sqlite3_connection_is_believed_whatever_its_statements_were(shop: Shop) -> None:
    """Statements may fail, and a connection may serve two applications and a trace callback of the test's own."""
    other, seen = Shop(), list[str]()
    with shop.app.testing() as jobs, other.app.testing() as others, closing(sqlite3.connect(":memory:")) as connection:
        connection.set_trace_callback(seen.append)
        connection.execute("create table t (x unique)")
        shop.welcome.using(conn=connection).enqueue(1)
        other.welcome.using(conn=connection).enqueue(2)
        connection.commit()
        with pytest.raises(sqlite3.OperationalError):
            connection.execute("rollback")
        connection.execute("insert into t values (1)")
        shop.welcome.using(conn=connection).enqueue(3)
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("insert or rollback into t values (1), (1)")
        connection.execute("insert into t values (2)")
        connection.commit()
        assert [each.args["user_id"] for each in jobs.enqueued()] == [1]
        assert [each.args["user_id"] for each in others.enqueued()] == [2]
        assert "insert into t values (2)" in seen


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_jobs_of_an_asynchronous_transaction_run_unless_it_was_rolled_back(shop: Shop, end: str) -> None:
    async def story() -> None:
        async with shop.app.testing() as jobs, aiosqlite.connect(":memory:") as connection:
            await shop.welcome.using(conn=connection).aenqueue(1)
            await getattr(connection, end)()
            assert len(await jobs.arun_due()) == (1 if end == "commit" else 0)

    asyncio.run(story())


def test_an_asynchronous_transaction_is_asked_with_await(shop: Shop, ground: Ground) -> None:
    async def story() -> None:
        async with (
            shop.app.testing() as jobs,
            await psycopg.AsyncConnection.connect(ground.address("postgres")) as connection,
        ):
            with pytest.raises(UnsupportedConnection, match="aenqueue"):
                shop.welcome.using(conn=connection).enqueue(1)
            await shop.welcome.using(conn=connection).aenqueue(1)
            with pytest.raises(TransactionUnknown, match=r"await aenqueued"):
                jobs.enqueued()
            assert len(await jobs.aenqueued()) == 1

    asyncio.run(story())


def test_sqlalchemy_over_aiosqlite(shop: Shop) -> None:
    async def story() -> None:
        engine = create_async_engine("sqlite+aiosqlite://", poolclass=sqlalchemy.StaticPool)
        async with shop.app.testing() as jobs:
            async with AsyncSession(engine) as session:
                await shop.welcome.using(conn=session).aenqueue(1)
                assert len(await jobs.aenqueued()) == 1
                await session.rollback()
                assert await jobs.aenqueued() == []
                await shop.welcome.using(conn=session).aenqueue(2)
                await session.commit()
            await engine.dispose()
            assert len(jobs.enqueued()) == 1

    asyncio.run(story())


def test_a_workflow_is_there_while_its_transaction_has_it(shop: Shop) -> None:
    with shop.app.testing() as jobs:
        connection = sqlite3.connect(":memory:")
        flow = shop.app.workflow("two", idempotency_key="once")
        flow.add(shop.welcome.bind(2), after=[flow.add(shop.welcome.bind(1))])
        handle = flow.enqueue(conn=connection)
        assert handle.status().tally.total == 2
        connection.rollback()
        assert (jobs.enqueued(), shop.app.workflows.list().workflows) == ([], ())
        handle = flow.enqueue(conn=connection)
        connection.commit()
        jobs.run_due()
        assert (handle.status().status, handle.duplicate) == ("completed", False)
        connection.close()


def test_what_is_no_connection_is_refused(shop: Shop) -> None:
    with shop.app.testing() as jobs:
        with pytest.raises(UnsupportedConnection, match="in tests a connection of psycopg"):
            shop.welcome.using(conn=object()).enqueue(1)
        jobs.assert_nothing_enqueued()


def test_inline_a_job_runs_inside_the_transaction(shop: Shop) -> None:
    with shop.app.testing("inline"):
        connection = sqlite3.connect(":memory:")
        assert shop.welcome.using(conn=connection).enqueue(1).status() == "completed"
        connection.rollback()
        assert enqueued() == []
        connection.close()
