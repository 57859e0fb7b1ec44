"""Releases that follow each other on one PostgreSQL database: what each applies, leaves alone, and removes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from fairlane.core.ops import Renew
from fairlane.errors import OldWorkersAlive, SchemaOutOfDate, StoreUnavailable
from fairlane.stores.migrations import Migration, SchemaState
from fairlane.stores.postgres import PostgresStore, schema
from fairlane.stores.postgres.migrator import PostgresMigrator
from fairlane.testing.conformance.samples import Making
from fairlane.testing.conformance.scene import Scene
from tests.isolation.house import House
from tests.servers.postgres import shared_server
from tests.upgrade.releases import MadeUp, objects

NOW = schema.FUNCTIONS_RELEASE
VERSION = schema.CORE.migrations.needed.expanded
COLOUR = Migration(
    VERSION + 1, "colour", "expand", "create table colour (tenant text, name text); alter table job add colour text;"
)
NO_COLOUR = Migration(VERSION + 1, "colour", "contract", "alter table job drop column colour;")
PAINT = """
-- paint_v1: a function that a later release adds.
-- role:   worker
create or replace function paint_v1(_wish json) returns json language plpgsql
set search_path from current
as $$ begin return json_build_object('wish', _wish, 'n', (select count(*) from colour)); end $$;
"""


@pytest.fixture
def dsn() -> str:
    return shared_server().new_database("releases")


@pytest.fixture
def store(dsn: str) -> Iterator[PostgresStore]:
    store = PostgresStore(dsn)
    store.migrator().up()
    yield store
    store.close()


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    return MadeUp(monkeypatch)


def ask(dsn: str, query: str) -> list[Any]:
    with psycopg.connect(dsn, autocommit=True) as conn:
        return [row[0] for row in conn.execute(query.encode()).fetchall()]


def phases(steps: tuple[Migration, ...]) -> list[str]:
    return [step.phase for step in steps]


def test_nothing_happens_while_nothing_has_changed(dsn: str, store: PostgresStore) -> None:
    written = "select array_agg(xmin::text order by oid) from pg_proc where pronamespace = 'fairlane'::regnamespace"
    before = ask(dsn, written)
    assert store.migrator().up() == ()
    assert ask(dsn, written) == before


def test_functions_that_differ_are_replaced_in_place(dsn: str, store: PostgresStore, made_up: MadeUp) -> None:
    which = "select oid from pg_proc where pronamespace = 'fairlane'::regnamespace and proname = 'turn_v1'"
    before = ask(dsn, which)
    made_up.become(NOW, "-- another remark")
    assert phases(store.migrator().up()) == ["functions"]
    assert store.migrator().up() == ()
    assert ask(dsn, which) == before


def test_an_older_release_leaves_newer_functions_and_a_newer_schema_alone(
    dsn: str, store: PostgresStore, made_up: MadeUp
) -> None:
    made_up.become(NOW + 1, PAINT, COLOUR)
    assert phases(store.migrator().up()) == ["expand", "functions"]
    newer = objects(dsn)
    made_up.become(NOW)
    older = store.migrator()
    assert older.up() == ()
    older.require()
    assert objects(dsn) == newer
    assert older.state() == SchemaState(VERSION + 1, 0, NOW + 1)
    with pytest.raises(SchemaOutOfDate, match="upgrade the fairlane package"):
        store.isolator().apply()
    Scene(store).finished()


def test_what_a_release_no_longer_has_stays_until_the_schema_is_contracted(
    dsn: str, store: PostgresStore, made_up: MadeUp
) -> None:
    made_up.become(NOW + 1, PAINT, COLOUR)
    store.migrator().up()
    made_up.become(NOW + 2, "", COLOUR)
    migrator = store.migrator()
    assert phases(migrator.up()) == ["functions"]
    paint = "select proname::text from pg_proc where proname = 'paint_v1'"
    assert ask(dsn, paint) == ["paint_v1"]
    assert phases(migrator.contracting()) == ["obsolete"]
    assert phases(migrator.contract()) == ["obsolete"]
    assert ask(dsn, paint) == []
    assert migrator.contract() == ()
    Scene(store).finished()


def test_what_a_release_has_again_is_obsolete_no_more(dsn: str, store: PostgresStore, made_up: MadeUp) -> None:
    for release, functions in ((NOW + 1, PAINT), (NOW + 2, ""), (NOW + 3, PAINT)):
        made_up.become(release, functions, COLOUR)
        store.migrator().up()
    assert store.migrator().contract() == ()
    assert ask(dsn, "select proname::text from pg_proc where proname = 'paint_v1'") == ["paint_v1"]


def test_the_script_of_an_older_release_stops_before_newer_functions(
    dsn: str, store: PostgresStore, made_up: MadeUp
) -> None:
    scripts = (store.migrator().script(), store.isolator().script())
    made_up.become(NOW + 1, PAINT, COLOUR)
    store.migrator().up()
    newer = objects(dsn)
    for script in scripts:
        with psycopg.connect(dsn, autocommit=True) as conn, pytest.raises(psycopg.Error, match="of a newer release"):
            conn.execute(script.encode())
    assert objects(dsn) == newer
    assert store.migrator().state() == SchemaState(VERSION + 1, 0, NOW + 1)


def test_a_schema_is_contracted_once_no_older_code_is_left(store: PostgresStore, made_up: MadeUp) -> None:
    worker = Making().worker_id()
    store.run(Renew(worker=worker, name="an older one", figures={"schema.version": VERSION, "schema.functions": NOW}))
    made_up.become(NOW + 1, "", COLOUR, NO_COLOUR)
    migrator = store.migrator()
    with pytest.raises(SchemaOutOfDate, match="run `fairlane migrate up`"):
        migrator.contract()
    migrator.up()
    with pytest.raises(OldWorkersAlive, match="an older one; stop or upgrade them first"):
        migrator.contract()
    store.run(Renew(worker=worker, figures={"schema.version": VERSION + 1.0, "schema.functions": NOW + 1.0}))
    assert phases(migrator.contract()) == ["contract"]
    migrator.require()
    assert migrator.state() == SchemaState(VERSION + 1, VERSION + 1, NOW + 1)
    made_up.become(NOW)
    for act in (store.migrator().require, store.migrator().up, store.migrator().contract):
        with pytest.raises(SchemaOutOfDate, match="upgrade the fairlane package"):
            act()


def test_up_to_a_version_leaves_the_functions_as_they_are(store: PostgresStore, made_up: MadeUp) -> None:
    later = Migration(VERSION + 2, "shade", "expand", "alter table job add shade text;")
    made_up.become(NOW + 1, "", COLOUR, later)
    assert store.migrator().up(to=VERSION + 1) == (COLOUR,)
    assert store.migrator().state() == SchemaState(VERSION + 1, 0, NOW)
    assert phases(store.migrator().up()) == ["expand", "functions"]


def test_the_script_makes_and_upgrades_the_same_schema_as_up(dsn: str, made_up: MadeUp) -> None:
    migrator = PostgresStore(dsn).migrator()
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(migrator.script().encode())
        made_up.become(NOW + 1, PAINT, COLOUR)
        newer = PostgresStore(dsn).migrator()
        for _ in range(2):
            conn.execute(newer.script().encode())
    assert newer.up() == ()
    by_hand = objects(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("drop schema fairlane cascade")
    newer.up()
    assert objects(dsn) == by_hand


COLUMNS = """
select string_agg(a.attname || ' ' || a.atttypid::regtype, ', ' order by a.attnum) from pg_attribute a
where a.attrelid = 'fairlane.{name}'::regclass and not a.attisdropped
"""


def test_a_type_that_changed_is_made_anew_with_what_is_made_of_it(
    dsn: str, store: PostgresStore, made_up: MadeUp
) -> None:
    """`claim_line` is a column of another type, and claims are made of both."""
    lines, progress = (COLUMNS.format(name=name) for name in ("claim_line", "claim_progress_v2"))
    before = ask(dsn, progress)
    made_up.become(NOW + 1, looked="looked_at")
    assert phases(store.migrator().up()) == ["functions"]
    assert "looked_at integer" in ask(dsn, lines)[0]
    assert ask(dsn, progress) == before
    Scene(store).finished()
    renamed = objects(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("drop schema fairlane cascade")
    store.migrator().up()
    assert objects(dsn) == renamed
    made_up.become(NOW + 2)
    store.migrator().up()
    assert "looked integer" in ask(dsn, lines)[0]
    Scene(store).finished()


def test_a_type_that_did_not_change_is_left_as_it_is(dsn: str, store: PostgresStore, made_up: MadeUp) -> None:
    types = "select array_agg(oid order by oid) from pg_type where typnamespace = 'fairlane'::regnamespace"
    before = ask(dsn, types)
    made_up.become(NOW + 1, "-- another remark")
    store.migrator().up()
    assert ask(dsn, types) == before


def test_no_column_of_a_table_goes_with_a_type(dsn: str, store: PostgresStore, made_up: MadeUp) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("create table mine (line fairlane.claim_line)")
    made_up.become(NOW + 1, looked="looked_at")
    with pytest.raises(StoreUnavailable, match="a table has a column of the type claim_line"):
        store.migrator().up()
    assert ask(dsn, "select attname::text from pg_attribute where attrelid = 'mine'::regclass and attnum > 0") == [
        "line"
    ]
    Scene(store).finished()


def test_many_that_upgrade_at_once_apply_each_step_once(dsn: str, store: PostgresStore, made_up: MadeUp) -> None:
    made_up.become(NOW + 1, PAINT, COLOUR)
    with ThreadPoolExecutor(6) as threads:
        ran = list(threads.map(lambda migrator: migrator.up(), [store.migrator() for _ in range(6)]))
    assert sorted(step.phase for steps in ran for step in steps) == ["expand", "functions"]


def test_no_call_fails_while_functions_are_replaced(store: PostgresStore, made_up: MadeUp) -> None:
    over = threading.Event()

    def work() -> int:
        scene, runs = Scene(store), 0
        while not over.is_set():
            scene.finished()
            runs += 1
        return runs

    with ThreadPoolExecutor(1) as threads:
        worker = threads.submit(work)
        try:
            for release in range(NOW + 1, NOW + 6):
                made_up.become(release, PAINT.replace("'n'", f"'n{release}'"), COLOUR)
                store.migrator().up()
        finally:
            over.set()
    assert worker.result() > 0


class TestIsolated:
    """Roles that were separated before an upgrade."""

    @pytest.fixture
    def house(self, dsn: str, store: PostgresStore) -> House:
        return House(shared_server(), dsn.rpartition("/")[2], given_clock=False)

    def test_a_newer_release_takes_in_what_it_adds(self, house: House, store: PostgresStore, made_up: MadeUp) -> None:
        made_up.become(NOW + 1, PAINT, COLOUR)
        store.migrator().up()
        self.is_isolated(house)
        assert ask(house.dsn("worker"), """select fairlane.paint_v1('{"a": 1}')""") == [{"wish": {"a": 1}, "n": 0}]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ask(house.dsn("api"), "select fairlane.paint_v1('{}')")

    def test_roles_may_call_what_a_newer_release_no_longer_has_until_it_is_contracted(
        self, house: House, store: PostgresStore, made_up: MadeUp
    ) -> None:
        made_up.become(NOW + 1, PAINT, COLOUR)
        store.migrator().up()
        made_up.become(NOW + 2, "", COLOUR)
        store.migrator().up()
        assert ask(house.dsn("worker"), "select fairlane.paint_v1('{}')") == [{"wish": {}, "n": 0}]
        store.migrator().contract()
        self.is_isolated(house)

    def test_roles_may_call_what_a_release_has_again(self, house: House, store: PostgresStore, made_up: MadeUp) -> None:
        for release, functions in ((NOW + 1, PAINT), (NOW + 2, ""), (NOW + 3, PAINT)):
            made_up.become(release, functions, COLOUR)
            store.migrator().up()
        self.is_isolated(house)
        assert ask(house.dsn("worker"), "select fairlane.paint_v1('{}')") == [{"wish": {}, "n": 0}]

    def test_calls_go_on_while_functions_are_replaced(
        self, house: House, store: PostgresStore, made_up: MadeUp
    ) -> None:
        before = objects(house.superuser)
        made_up.become(NOW + 1, "-- another remark")
        store.migrator().up()
        assert objects(house.superuser) == before, "who owns a function, and as whom it runs, stays"
        self.is_isolated(house)

    def test_calls_go_on_behind_a_type_that_is_made_anew(
        self, house: House, store: PostgresStore, made_up: MadeUp
    ) -> None:
        made_up.become(NOW + 1, looked="looked_at")
        store.migrator().up()
        self.is_isolated(house)
        worker = PostgresStore(house.dsn("worker"))
        scene = Scene(worker)
        scene.put()
        assert len(scene.claim(scene.hire())) == 1
        worker.close()

    @staticmethod
    def is_isolated(house: House) -> None:
        for kind in ("worker", "api"):
            isolation = PostgresStore(house.dsn(kind)).isolator().look()
            assert isolation is not None
            assert (isolation.state, isolation.role) == ("database", house.login(kind))


def test_an_owner_that_is_no_superuser_upgrades_an_isolated_schema(dsn: str, made_up: MadeUp) -> None:
    server, name = shared_server(), dsn.rpartition("/")[2]
    owner = f"{name}_admin"
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"create role {owner} login createrole".encode())
        conn.execute(f"alter database {name} owner to {owner}".encode())
    own = PostgresStore(server.dsn(name, owner))
    own.migrator().up()
    own.isolator().apply(name)
    made_up.become(NOW + 1, PAINT, COLOUR)
    assert phases(own.migrator().up()) == ["expand", "functions"]
    isolation = own.isolator().look()
    assert isolation is not None
    assert (isolation.state, "is a member of" in isolation.says) == ("bypassed", True)
    own.close()


def test_what_the_comment_tells_is_what_the_table_tells(dsn: str, store: PostgresStore, made_up: MadeUp) -> None:
    made_up.become(NOW + 1, "", COLOUR)
    migrator: PostgresMigrator = store.migrator()
    migrator.up()
    [comment] = ask(dsn, "select obj_description('fairlane'::regnamespace)")
    assert SchemaState.described(comment) == migrator.state() == SchemaState(VERSION + 1, 0, NOW + 1)
