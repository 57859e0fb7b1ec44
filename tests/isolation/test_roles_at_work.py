"""Each role does its own work and no other's, through functions alone."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, LiteralString, get_args

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import sql

from fairlane import Fairlane
from fairlane.core.ops import ALL_TENANTS, Check, Enqueue, Op, Purge, SetTenant
from fairlane.core.profiles import Lane
from fairlane.errors import InvalidOption, StoreError, StoreUnavailable
from fairlane.stores.postgres import PostgresStore
from fairlane.stores.postgres.calls import function_of
from fairlane.stores.postgres.connection import role_of
from fairlane.stores.postgres.roles import Caller, Roles, callable_by
from fairlane.testing.conformance.scene import Scene
from fairlane.worker.config import WorkerConfig
from fairlane.worker.foreman.main import check_store
from tests.borrowing.callers import POSTGRES, Kind
from tests.isolation.every_operation import EVERY, SCOPED, called, samples
from tests.isolation.house import House, Separated
from tests.isolation.tenant_data import add_tenant_data
from tests.support.stores import SCHEMA_TEMPLATE, Ground

pytestmark = pytest.mark.requirement("I10")

DESCRIBED: tuple[LiteralString, ...] = (
    "select relname, relowner, relacl::text, relrowsecurity, reloptions from pg_class where relnamespace = 'fairlane'::regnamespace order by 1",
    "select oid::regprocedure::text, proowner, proacl::text, prosecdef, proconfig from pg_proc where pronamespace = 'fairlane'::regnamespace order by 1",
    "select * from pg_policies order by schemaname, tablename, policyname",
    "select nspowner, nspacl::text from pg_namespace where nspname = 'fairlane'",
)


@pytest.fixture(params=["worker", "api", "enqueue", "tokens", "read"])
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
    granted = callable_by(role) if role in get_args(Caller) else ()
    expected = {kind.__name__ for kind in EVERY if kind is Check or called(every[kind]) in granted}
    assert {kind.__name__ for kind in EVERY if is_allowed(store, every[kind])} == expected
    assert Purge.__name__ not in expected


def test_an_application_that_only_enqueues_needs_no_more_than_its_role(scene: Scene, house: House) -> None:
    with Fairlane(house.dsn("enqueue"), warn_depth=1, tenant_enqueue_rate="5/min") as app:

        @app.task(name="shop.greet")
        def greet(name: str) -> None: ...

        handle = greet.using(tenant="acme").enqueue(name="Ada")
        app.enqueue_many([greet.using(tenant="acme").bind(name=name) for name in ("Bo", "Cy")])
        with pytest.raises(InvalidOption, match="tenant"):
            greet.using(tenant=None).enqueue(name="Di")
        with pytest.raises(StoreUnavailable, match="permission denied"):
            handle.job()
        with pytest.raises(StoreUnavailable, match="permission denied"):
            app.tenants.list()
    assert scene.queue().ready == 3


@pytest.mark.parametrize("role", ["worker", "api", "enqueue"], indirect=True)
def test_whoever_may_enqueue_learns_that_none_is_no_tenant(scene: Scene, house: House, role: str) -> None:
    def enqueue() -> None:
        with Fairlane(house.dsn(role)) as app:
            app.task(name="shop.greet")(lambda: None).using(tenant=None).enqueue()  # type: ignore[arg-type]

    enqueue()
    scene.run(SetTenant(name="acme", weight=2.0, by="ada"))
    with pytest.raises(InvalidOption, match="tenant = None"):
        enqueue()
    assert scene.queue().ready == 1


def test_no_application_makes_credentials_but_by_a_link(house: House) -> None:
    with Fairlane(house.dsn("api")) as app, Fairlane(house.dsn("tokens")) as admin:
        for make in (app.tokens.create, app.tokens.create_link):
            with pytest.raises(StoreUnavailable, match="permission denied"):
                make("mallory", ["admin"], by="mallory")
        link = admin.tokens.create_link("grace", ["viewer"], tenant="acme", by="ada")
        opened = app.tokens.redeem_link(link.secret)
        assert opened is not None
        assert (opened.credential.name, opened.credential.roles, opened.credential.tenant) == (
            "grace",
            ("viewer",),
            "acme",
        )
        assert app.tokens.redeem_link(link.secret) is None


def test_no_role_gives_the_instant_of_what_it_does(ground: Ground) -> None:
    """Of an act, a claim, a heartbeat, a removal: by an earlier one records are dated back, by a later one leases lapse."""
    ground.server.create_database("own_clock", template=SCHEMA_TEMPLATE)
    house = House(ground.server, "own_clock", given_clock=False)
    with closing(Separated(house)) as separated, closing(PostgresStore(house.superuser)) as above:
        _require_own_clock(house, separated, above)


def _require_own_clock(house: House, separated: Separated, above: PostgresStore) -> None:
    scene = Scene(separated)
    things = add_tenant_data(scene)["acme"]
    aims: dict[str, Any] = {"tenant": "acme", "job": things.waiting, "letter": things.letter, "worker": things.worker}
    every = samples(scene.making, scope=ALL_TENANTS, **aims)
    leases = house.everything()["lease"]

    def dated() -> set[str]:
        return {table for table, rows in house.everything().items() if re.search("'?(2001|2101)-", str(rows))}

    for store in (separated, above):
        for year in (2001, 2101):
            for kind, op in every.items():
                if kind not in (Purge, Check):
                    with suppress(StoreError):
                        store.run(replace(op, now=datetime(year, 1, 1, tzinfo=UTC)))
        if store is separated:
            assert dated() == set()
            assert leases != []
            assert house.everything()["lease"] == leases
    assert {"attempt", "audit", "worker"} <= dated(), "who is above the policies gives its own, as tests do"
    with house.connect("api", autocommit=True) as conn:
        pause = '{"kind": "queue", "name": "mail", "by": "alice", "now": "2001-01-01T00:00:00Z"}'
        [(answer,)] = conn.execute("select fairlane.pause_claims_v1(%s)::text", (pause,)).fetchall()
    assert "2001" not in answer


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


def refused_worker(dsn: str, folder: Path) -> str:
    """What `fairlane worker` says that may not run jobs."""
    (folder / "shop.py").write_text(
        "import os\nfrom fairlane import Fairlane\napp = Fairlane(os.environ['SHOP_URL'])\n"
        "@app.task\ndef greet() -> None: ...\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "fairlane", "worker", "shop:app", "-p", "1"],
        cwd=folder,
        env={**os.environ, "SHOP_URL": dsn},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 5, ran.stderr
    assert "may not run jobs in the schema" in ran.stderr
    return ran.stderr


@pytest.mark.parametrize("role", ["enqueue"], indirect=True)
def test_a_worker_whose_role_lacks_rights_exits_and_names_role_and_grant(
    house: House, role: str, tmp_path: Path
) -> None:
    said = refused_worker(house.dsn(role), tmp_path)
    assert "permission denied for function" in said
    assert re.search(rf"`grant \w+_worker to \"{role_of(house.dsn(role))}\"`\n", said)


@pytest.mark.requirement("S9")
def test_a_worker_that_is_refused_runs_once_what_the_error_says_is_done(ground: Ground, tmp_path: Path) -> None:
    name, role = "unseparated", "unseparated_shop"
    ground.server.create_database(name)
    theirs, mine = PostgresStore(ground.server.dsn(name)), PostgresStore(ground.server.dsn(name, role))
    try:
        theirs.migrator().up()
        with psycopg.connect(ground.server.dsn(name), autocommit=True) as conn:
            conn.execute(sql.SQL("create role {} login").format(sql.Identifier(role)))
            said = refused_worker(ground.server.dsn(name, role), tmp_path)
            assert 'connect as "postgres", who owns the schema' in said
            assert "separate the roles with `fairlane migrate isolate`" in said
            theirs.isolator().apply(name)
            [grant] = re.findall(r"`(grant [^`]+)`", refused_worker(ground.server.dsn(name, role), tmp_path))
            conn.execute(grant.encode())
        check_store(Fairlane(store=mine))
    finally:
        theirs.close()
        mine.close()
        ground.server.drop_database(name)
        with psycopg.connect(ground.server.dsn(), autocommit=True) as conn:
            for left in (role, *Roles.prefixed(name)):
                conn.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(left)))
