"""Each role does its own work and no other's, through functions alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql

from fairlane import Fairlane
from fairlane.core.ops import ALL_TENANTS, Check, Enqueue, Op, Purge
from fairlane.core.profiles import Lane
from fairlane.errors import StoreUnavailable
from fairlane.stores.postgres import PostgresStore
from fairlane.stores.postgres.calls import function_of
from fairlane.stores.postgres.roles import callable_by
from fairlane.worker.config import WorkerConfig
from tests.borrowing.callers import POSTGRES, Kind
from tests.isolation.every_operation import EVERY, SCOPED, called, samples
from tests.isolation.house import House
from tests.isolation.tenant_data import add_tenant_data
from tests.support.scene import Scene

pytestmark = pytest.mark.requirement("I10")

DESCRIBED: tuple[LiteralString, ...] = (
    "select relname, relowner, relacl::text, relrowsecurity, reloptions from pg_class where relnamespace = 'fairlane'::regnamespace order by 1",
    "select oid::regprocedure::text, proowner, proacl::text, prosecdef, proconfig from pg_proc where pronamespace = 'fairlane'::regnamespace order by 1",
    "select * from pg_policies order by schemaname, tablename, policyname",
    "select nspowner, nspacl::text from pg_namespace where nspname = 'fairlane'",
)


@pytest.fixture(params=["worker", "api", "read"])
def role(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(role: str, house: House) -> Iterator[PostgresStore]:
    store = PostgresStore(house.dsn(role))
    yield store
    store.close()


def is_allowed(store: PostgresStore, op: Op[Any]) -> bool:
    try:
        store.run(op)
    except StoreUnavailable as error:
        assert "permission denied for function" in str(error), error
        return False
    return True


def test_a_role_may_do_exactly_what_it_is_for(scene: Scene, role: str, store: PostgresStore) -> None:
    things = add_tenant_data(scene)["acme"]
    every = samples(
        scene.making,
        scope=ALL_TENANTS,
        tenant="acme",
        job=things.waiting,
        letter=things.letter,
        worker=things.worker,
    )
    granted = () if role == "read" else callable_by("worker" if role == "worker" else "api")
    expected = {kind.__name__ for kind in EVERY if kind is Check or called(every[kind]) in granted}
    assert {kind.__name__ for kind in EVERY if is_allowed(store, every[kind])} == expected
    assert Purge.__name__ not in expected


@pytest.mark.parametrize("kind", SCOPED, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("op", ["{}", '{"scope": null}', '{"scope": {}}'])
def test_a_call_by_hand_that_names_no_scope_is_refused(house: House, kind: type[Op[Any]], op: str) -> None:
    query = sql.SQL("select fairlane.{}(%s)").format(sql.Identifier(function_of(kind)))
    with house.connect("api") as conn, pytest.raises(psycopg.errors.InvalidParameterValue, match="needs a scope"):
        conn.execute(query, (op,))


@pytest.mark.parametrize("kind", POSTGRES, ids=str)
def test_an_application_that_may_only_enqueue_does_so_in_its_own_transaction(
    scene: Scene, house: House, kind: Kind
) -> None:
    kept, dropped = scene.job(tenant="acme"), scene.job(tenant="acme")

    async def story() -> None:
        store = PostgresStore(house.dsn("api"))
        async with kind.open(house.dsn("api")) as caller:
            for job, end in ((kept, caller.commit), (dropped, caller.rollback)):
                await caller.begin()
                await store.arun(Enqueue(jobs=(job,)), on=caller.conn)
                await end()
        await store.aclose()

    asyncio.run(story())
    assert scene.find(kept.id) is not None
    assert scene.find(dropped.id) is None


def test_a_role_without_any_grant_is_told_so_before_its_transaction_is_hurt(scene: Scene, house: House) -> None:
    store = PostgresStore(house.dsn("stranger"))
    with house.connect("stranger") as conn:
        conn.execute("select 1")
        with pytest.raises(StoreUnavailable, match="may not enqueue"):
            store.run(Enqueue(jobs=(scene.job(),)), on=conn)
        assert conn.execute("select 2").fetchall() == [(2,)]
    store.close()


def test_a_worker_that_is_only_granted_the_workers_role_runs_jobs(scene: Scene, house: House) -> None:
    ran: list[int] = []

    async def story() -> list[int]:
        client, app = Fairlane(house.dsn("api")), Fairlane(house.dsn("worker"))

        def work(n: int) -> int:
            ran.append(n)
            return n

        task, _ = (fairlane.task(name="work")(work) for fairlane in (client, app))
        config = WorkerConfig(lanes=(Lane("general", 2, ("default",)),), poll_s=0.05)
        async with app.running(config=config):
            handles = [await task.using(tenant=f"t{n}").aenqueue(n) for n in range(5)]
            results = [await handle.aresult(timeout=20) for handle in handles]
        await app.aclose()
        await client.aclose()
        return results

    assert asyncio.run(story()) == sorted(ran) == list(range(5))


def test_the_schemas_version_is_known_to_roles_that_read_no_table(role: str, store: PostgresStore) -> None:
    migrator = store.migrator()
    migrator.require()
    assert migrator.pending() == ()
    assert store.run(Check()).schema_version == migrator.needed.expanded


def test_isolating_again_changes_nothing(scene: Scene, house: House) -> None:
    add_tenant_data(scene)

    def described() -> list[Any]:
        with psycopg.connect(house.superuser) as conn:
            return [conn.execute(query).fetchall() for query in DESCRIBED]

    before, rows = described(), house.everything()
    store = PostgresStore(house.superuser)
    store.isolator().apply()
    store.close()
    assert described() == before
    assert house.everything() == rows
