"""An application's own table: a job reads and writes its tenant's rows, and no others, whatever its code asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg import errors
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from fairlane import SYSTEM, Fairlane, InvalidOption, PermissionDenied, all_tenants, tenant
from fairlane.errors import NoTransaction, StoreError, UnsupportedConnection
from fairlane.isolation import aisolate, atenant_transaction, isolate, protect_sql, tenant_transaction
from fairlane.testing import run_due
from tests.borrowing.callers import POSTGRES, Caller, Kind
from tests.isolation.house import House
from tests.isolation.invoices import EACH, make_invoices

pytestmark = pytest.mark.requirement("I10")

Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module", autouse=True)
def invoices(house: House) -> None:
    make_invoices(house)


def run_as_job(house: House, code: Callable[[Connection], object], of: Any = "acme") -> Any:
    """Run code as the job of one tenant, with a connection of the application's; what it returned, or its error's name."""
    with Fairlane("memory://") as app, house.connect("app") as conn:
        answers: list[object] = []

        @app.task(name="work", max_attempts=1)
        def work() -> None:
            answers.append(code(conn))

        handle = work.using(tenant=of).enqueue()
        run_due(app)
        job = handle.job()
        return answers[0] if job.status == "completed" else job.error_type


def seen(conn: Connection) -> list[tuple[str, int]]:
    return conn.execute("select tenant_id, count(*) from app.invoice group by 1 order by 1").fetchall()


def test_a_job_reads_its_own_tenants_rows(house: House) -> None:
    def code(conn: Connection) -> object:
        return isolate(conn), seen(conn)

    assert run_as_job(house, code) == ("acme", [("acme", EACH)])
    assert run_as_job(house, code, of="globex") == ("globex", [("globex", EACH)])
    assert run_as_job(house, code, of="nobody") == ("nobody", [])


def test_code_that_forgets_to_isolate_reads_nothing(house: House) -> None:
    assert run_as_job(house, seen) == []


@pytest.mark.parametrize(
    "statement",
    [
        "select * from app.invoice where tenant_id = 'globex'",
        "update app.invoice set cents = 0 where tenant_id = 'globex'",
        "delete from app.invoice where id > 3",
        "select * from app.invoice where id = 4 for update",
    ],
)
def test_another_tenants_rows_are_hidden_from_a_job(house: House, statement: str) -> None:
    def code(conn: Connection) -> int:
        isolate(conn)
        return conn.execute(statement.encode()).rowcount

    assert run_as_job(house, code) == 0


@pytest.mark.parametrize(
    "statement",
    [
        "insert into app.invoice values (100, 'globex', 1)",
        "update app.invoice set tenant_id = 'globex'",
        "insert into app.invoice values (1, 'globex', 1) on conflict (id) do update set tenant_id = 'globex'",
    ],
)
def test_writing_a_row_for_another_tenant_is_refused_by_the_database(house: House, statement: str) -> None:
    def code(conn: Connection) -> None:
        isolate(conn)
        conn.execute(statement.encode())

    assert run_as_job(house, code) == "psycopg.errors.InsufficientPrivilege"


def test_a_job_that_asks_for_another_tenants_data_is_denied(house: House) -> None:
    assert run_as_job(house, lambda conn: isolate(conn, "globex")) == PermissionDenied.__name__
    assert run_as_job(house, lambda conn: isolate(conn, "globex"), of=SYSTEM) == "globex"


def test_no_tenant_in_force_and_none_named_is_refused(house: House) -> None:
    with house.connect("app") as conn:
        with pytest.raises(InvalidOption, match="tenant"):
            isolate(conn)
        assert isolate(conn, "acme") == "acme"
        with all_tenants(), pytest.raises(InvalidOption, match="tenant"):
            isolate(conn)


def test_a_transaction_is_one_tenants_to_its_end(house: House) -> None:
    with house.connect("app") as conn:
        with tenant("acme"):
            isolate(conn)
            isolate(conn)
        with tenant("globex"):
            with pytest.raises(PermissionDenied, match="acme"):
                isolate(conn)
            assert seen(conn) == [("acme", EACH)]
            conn.commit()
            assert seen(conn) == []
            isolate(conn)
            assert seen(conn) == [("globex", EACH)]


def test_outside_a_transaction_the_tenant_would_be_forgotten_and_is_refused(house: House) -> None:
    with house.connect("app", autocommit=True) as conn:
        with pytest.raises(NoTransaction, match="tenant_transaction"):
            isolate(conn, "acme")
        assert seen(conn) == []
        with tenant("acme"), tenant_transaction(conn):
            assert seen(conn) == [("acme", EACH)]
        assert seen(conn) == []


def test_autocommit_is_refused_on_every_driver(house: House) -> None:
    address = house.dsn("app").replace("postgresql:", "postgresql+{}:", 1)

    async def story() -> None:
        raw = await asyncpg.connect(house.dsn("app"))
        with pytest.raises(NoTransaction):
            await aisolate(raw, "acme")
        await raw.close()
        for driver in ("psycopg", "asyncpg"):
            engine = create_async_engine(address.format(driver), isolation_level="AUTOCOMMIT")
            async with engine.connect() as conn:
                with pytest.raises(NoTransaction):
                    await aisolate(conn, "acme")
            await engine.dispose()

    asyncio.run(story())
    engine = sqlalchemy.create_engine(address.format("psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as conn, pytest.raises(NoTransaction):
        isolate(conn, "acme")
    engine.dispose()


def test_a_transaction_that_has_failed_and_a_connection_of_another_kind_are_told_apart(house: House) -> None:
    with house.connect("app") as conn:
        with pytest.raises(errors.DivisionByZero):
            conn.execute("select 1 / 0")
        with pytest.raises(StoreError, match="roll it back"):
            isolate(conn, "acme")
    for other in (None, "postgresql://", object()):
        with pytest.raises(UnsupportedConnection):
            isolate(other, "acme")
        with pytest.raises(InvalidOption, match="conn"), tenant_transaction(other, "acme"):
            raise AssertionError
    with pytest.raises(UnsupportedConnection, match="asynchronous"):
        asyncio.run(_isolated_in_the_wrong_colour(house))


async def _isolated_in_the_wrong_colour(house: House) -> None:
    async with await psycopg.AsyncConnection.connect(house.dsn("app")) as conn:
        isolate(conn, "acme")


@pytest.mark.parametrize("kind", POSTGRES, ids=str)
def test_every_kind_of_connection_is_isolated_for_one_transaction(house: House, kind: Kind) -> None:
    async def story() -> None:
        async with kind.open(house.dsn("app")) as caller:
            for name in ("acme", "globex"):
                for end in (caller.commit, caller.rollback):
                    await caller.begin()
                    with tenant(name):
                        await aisolate(caller.conn)
                    await _expect(caller, of=name, rows=EACH)
                    await end()
                    await caller.begin()
                    await _expect(caller, of=name, rows=0)
                    await caller.rollback()
            with tenant("acme"), pytest.raises(PermissionDenied):
                await aisolate(caller.conn, "globex")

    asyncio.run(story())


async def _expect(caller: Caller, *, of: str, rows: int) -> None:
    await caller.execute(
        f"do $$ begin assert (select count(*) from app.invoice) = {rows}; "
        f"assert not exists (select from app.invoice where tenant_id <> '{of}'); end $$"
    )


def test_a_transaction_of_ones_own_is_begun_isolated_and_ended(house: House) -> None:
    address = house.dsn("app").replace("postgresql:", "postgresql+psycopg:", 1)
    count = sqlalchemy.text("select count(*) from app.invoice")
    engine = sqlalchemy.create_engine(address)
    with engine.connect() as conn, Session(engine) as session, tenant("acme"):
        for held in (conn, session):
            with tenant_transaction(held):
                assert held.execute(count).scalar() == EACH
            assert held.execute(count).scalar() == 0
            with tenant_transaction(held):  # inside the transaction that the count began: a savepoint
                assert held.execute(count).scalar() == EACH
            held.rollback()
        with pytest.raises(sqlalchemy.exc.DBAPIError), tenant_transaction(conn):
            conn.execute(sqlalchemy.text("insert into app.invoice values (77, 'acme', 1), (78, 'globex', 1)"))
        with tenant_transaction(conn):
            assert conn.execute(count).scalar() == EACH
    engine.dispose()


def test_a_transaction_of_ones_own_in_async_code(house: House) -> None:
    address = house.dsn("app").replace("postgresql:", "postgresql+asyncpg:", 1)
    count = "select count(*) from app.invoice"

    async def story() -> None:
        raw = await asyncpg.connect(house.dsn("app"))
        own = await psycopg.AsyncConnection.connect(house.dsn("app"))
        engine = create_async_engine(address)
        with tenant("globex"):
            async with atenant_transaction(raw):
                assert await raw.fetchval(count) == EACH
            assert await raw.fetchval(count) == 0
            async with atenant_transaction(own):
                assert await (await own.execute(count)).fetchall() == [(EACH,)]
            async with AsyncSession(engine) as session, atenant_transaction(session):
                assert (await session.execute(sqlalchemy.text(count))).scalar() == EACH
            with pytest.raises(PermissionDenied):
                async with atenant_transaction(raw, "acme"):
                    raise AssertionError
        await raw.close()
        await own.close()
        await engine.dispose()

    asyncio.run(story())


def test_other_policies_cannot_widen_the_tenants(own_house: House) -> None:
    make_invoices(own_house)
    with own_house.connect("app") as conn:
        conn.execute("create policy everything on app.invoice for all using (true) with check (true)")
        conn.commit()
        assert seen(conn) == []
        isolate(conn, "acme")
        assert seen(conn) == [("acme", EACH)]
        with pytest.raises(errors.InsufficientPrivilege):
            conn.execute("insert into app.invoice values (100, 'globex', 1)")


def test_tenants_may_be_numbers_and_names_may_be_odd(own_house: House) -> None:
    table = 'Odd "table"'
    with psycopg.connect(own_house.superuser, autocommit=True) as conn:
        conn.execute('create schema "Odd"')
        conn.execute('create table "Odd"."Odd ""table""" ("Tenant" bigint)')
        conn.execute('insert into "Odd"."Odd ""table""" values (7), (8)')
        for _ in range(2):
            conn.execute(protect_sql(f"Odd.{table}", column="Tenant", type="bigint").encode())
        conn.execute('grant usage on schema "Odd" to public')
        conn.execute('grant select on "Odd"."Odd ""table""" to public')
    with own_house.connect("app") as conn:
        query = 'select * from "Odd"."Odd ""table"""'
        assert conn.execute(query).fetchall() == []
        isolate(conn, 7)
        assert conn.execute(query).fetchall() == [(7,)]
        conn.rollback()
        isolate(conn, "seven")
        with pytest.raises(errors.InvalidTextRepresentation):
            conn.execute(query)


@pytest.mark.parametrize(
    "bad",
    [
        {"table": ""},
        {"table": "app."},
        {"table": "app.a\0"},
        {"table": "x" * 64},
        {"column": ""},
        {"type": "text); drop table app.invoice; --"},
        {"type": ""},
    ],
    ids=repr,
)
def test_bad_names_are_refused(bad: dict[str, str]) -> None:
    with pytest.raises(InvalidOption):
        protect_sql(**{"table": "app.invoice", **bad})
