"""Migrations meet each other, die half way, wait for tables, travel as scripts and come back from backups."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from fairlane.core.ops import Check, Enqueue
from fairlane.errors import StoreUnavailable
from fairlane.stores.migrations import Migration
from fairlane.stores.postgres.migrator import script
from fairlane.stores.postgres.schema import CORE
from fairlane.testing.conformance.scene import Scene
from tests.faults.conftest import Stores
from tests.faults.eventually import eventually
from tests.faults.migrator_process import migrate
from tests.faults.places import Place
from tests.servers.pgbouncer import pgbouncer_program
from tests.servers.programs import run_by_psql, run_program
from tests.support.stores import Ground
from tests.upgrade.releases import MadeUp

STEPS = (*CORE.migrations.expansions, CORE.functions_step)
APPLIED = len(STEPS)


@pytest.fixture
def empty(place: Place) -> Place:
    place.rows("drop schema fairlane cascade")
    return place


def schema_objects(place: Place) -> int:
    """Tables, indexes, views, types and functions."""
    return place.number(
        "select (select count(*) from pg_class where relnamespace = n.oid) + (select count(*) from pg_proc where pronamespace = n.oid) "
        "from (select to_regnamespace('fairlane')::oid as oid) n"
    )


def migrators(place: Place, count: int) -> list[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.faults.migrator_process", place.dsn]
    return [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]


def test_four_processes_that_migrate_at_once_apply_each_migration_once(empty: Place, stores: Stores) -> None:
    said = [process.communicate(timeout=60)[0] for process in migrators(empty, 4)]
    assert sum(map(int, said)) == APPLIED
    assert empty.number("select count(*) from fairlane.schema_version") == APPLIED
    Scene(stores.open(empty.dsn)).put()


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
def test_migrating_at_once_works_at_any_isolation(ground: Ground, empty: Place, level: str) -> None:
    # Through a pooler our own settings do not hold; what the script says does.
    empty.rows(f"alter database \"{empty.name}\" set default_transaction_isolation = '{level}'")
    dsn = ground.pooler.dsn(empty.name) if pgbouncer_program() else empty.dsn
    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(migrate, [dsn] * 4)) == APPLIED


def test_backslashes_in_strings_mean_the_same_on_any_server(empty: Place, stores: Stores) -> None:
    empty.rows(f'alter database "{empty.name}" set standard_conforming_strings = off')
    store = stores.open(empty.dsn)
    migrate(empty.dsn)
    assert store.migrator().pending() == ()
    scene = Scene(store)
    scene.cancel(scene.put().id, notes="it's a \\ and a ü")
    [record] = scene.audit()
    assert record.notes == "it's a \\ and a ü"
    assert empty.rows("select fairlane.ascii_string('ü' || chr(92))") == [('"\\u00fc\\\\"',)]


@pytest.mark.parametrize("how", ["the process is killed", "its session is ended"])
def test_a_migration_that_dies_half_way_leaves_nothing_or_all_and_the_next_one_succeeds(
    empty: Place, stores: Stores, how: str
) -> None:
    # A table of that name in the way holds the migration up in its middle.
    with psycopg.connect(empty.dsn) as busy:
        busy.execute("create schema fairlane")
        busy.execute("create table fairlane.audit ()")
        [process] = migrators(empty, 1)
        try:
            eventually(lambda: empty.sessions_waiting() == 1)
            if how == "the process is killed":
                process.kill()
            else:
                empty.rows(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where datname = current_database() and wait_event_type = 'Lock'"
                )
            assert process.wait(30) != 0
        finally:
            process.kill()
            process.communicate()
        busy.rollback()
    # The session of a killed process does not know: it finishes what it was sent.
    eventually(lambda: empty.number("select count(*) from pg_stat_activity where datname = current_database()") == 1)
    applied = empty.number("select count(*) from fairlane.schema_version") if schema_objects(empty) else 0
    assert how == "the process is killed" or not applied
    assert migrate(empty.dsn) == APPLIED - applied
    assert empty.number("select count(*) from fairlane.schema_version") == APPLIED
    Scene(stores.open(empty.dsn)).finished()


def test_a_step_dies_whole_after_any_of_its_statements(empty: Place) -> None:
    for step in STEPS:
        whole, before = script(step, "fairlane"), schema_objects(empty)
        uncommitted = whole.removesuffix("commit;\n")
        statements = [end for end in range(len(uncommitted)) if uncommitted.startswith(";\n", end)]
        for end in statements[:: max(1, len(statements) // 6)]:
            conn = psycopg.connect(empty.dsn, autocommit=True)
            try:
                conn.execute((whole[:end] + ";").encode())
            except psycopg.errors.SyntaxError:
                pass  # cut inside a body
            finally:
                conn.close()
            assert schema_objects(empty) == before
        with psycopg.connect(empty.dsn, autocommit=True) as conn:
            conn.execute(whole.encode())
    assert migrate(empty.dsn) == 0


def test_a_migration_waits_for_a_locked_table_only_so_long_and_leaves_nothing(empty: Place, stores: Stores) -> None:
    migrator = stores.open(empty.dsn, lock_timeout_s=0.2).migrator()
    with psycopg.connect(empty.dsn) as busy:
        busy.execute("create schema fairlane")
        busy.execute("create table fairlane.schema_version (version integer primary key, name text)")
        busy.commit()
        busy.execute("lock fairlane.schema_version in access exclusive mode")
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            migrator.up()
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            migrator.state()
    assert schema_objects(empty) == 2


def test_the_migration_itself_waits_three_seconds_for_a_table_and_no_more(empty: Place) -> None:
    with psycopg.connect(empty.dsn) as busy:
        busy.execute("create schema fairlane")
        busy.execute("create table fairlane.audit ()")
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            migrate(empty.dsn)
        busy.rollback()
    assert schema_objects(empty) == 0


def test_a_step_that_a_deadlock_with_running_code_undoes_is_repeated(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = (
        "alter table scheduled add column colour text",
        "select pg_advisory_xact_lock(1)",  # until running code waits for the first table
        "alter table ready add column colour text",
    )
    new = Migration(CORE.migrations.needed.expanded + 1, "colour", "expand", ";".join(steps))
    MadeUp(monkeypatch).become(CORE.release, "", new)
    place.rows(f"alter database \"{place.name}\" set deadlock_timeout = '20ms'")
    with ThreadPoolExecutor(2) as threads, psycopg.connect(place.dsn) as holder, psycopg.connect(place.dsn) as running:
        holder.execute("select pg_advisory_xact_lock(1)")
        upgrade = threads.submit(migrate, place.dsn)
        eventually(lambda: place.sessions_waiting() == 1)
        running.execute("set local deadlock_timeout = '1h'")  # the migration is the one to go
        running.execute("select from fairlane.ready")
        read = threads.submit(running.execute, "select from fairlane.scheduled")
        eventually(lambda: place.sessions_waiting() == 2)
        holder.rollback()
        assert read.result(30).rowcount == 0
        running.rollback()
        assert upgrade.result(30) == 2
    assert place.rows("select name from fairlane.schema_version where version = %s", new.version) == [("colour",)]


def test_the_script_runs_by_psql_as_it_is(empty: Place, stores: Stores) -> None:
    store = stores.open(empty.dsn)
    assert not store.run(Check()).schema_version
    run_by_psql(empty.server, empty.name, store.migrator().script())
    assert store.migrator().pending() == ()
    assert store.run(Check()).schema_version == store.migrator().needed.expanded
    Scene(store).finished()


def test_the_script_runs_by_psycopg_and_a_second_time_changes_nothing(empty: Place, stores: Stores) -> None:
    store = stores.open(empty.dsn)
    with psycopg.connect(empty.dsn, autocommit=True) as conn:
        conn.execute(store.migrator().script().encode())
    receipt = Scene(store).put()
    with psycopg.connect(empty.dsn, autocommit=True) as conn:
        conn.execute(store.migrator().script().encode())
    assert Scene(store).status(receipt.id) == "pending"


def test_a_schema_of_any_name_can_be_chosen(empty: Place, stores: Stores) -> None:
    name = 'My "jobs" 100%'
    store = stores.open(empty.dsn, schema=name)
    store.migrator().up()
    scene = Scene(store)
    scene.finished()
    with psycopg.connect(empty.dsn) as conn:
        store.run(Enqueue(jobs=(scene.job(),)), on=conn)
    assert len(scene.list_jobs()) == 2


def test_nobody_calls_a_function_without_a_grant_and_views_are_read_as_before(empty: Place, stores: Stores) -> None:
    """Where roles are not separated, too: PostgreSQL lets everybody call each new function."""
    migrate(empty.dsn)
    Scene(stores.open(empty.dsn)).put()
    for_all = (
        "select p.proname from pg_proc p where p.pronamespace = 'fairlane'::regnamespace "
        "and (p.proacl is null or exists (select from aclexplode(p.proacl) a where a.grantee = 0))"
    )
    assert sorted(empty.rows(for_all)) == [("as_jsonb",), ("flat",)], "they are pure, and views call them"
    empty.rows("create role visitor login; grant usage on schema fairlane to visitor")
    empty.rows("grant select on fairlane.jobs to visitor")
    try:
        with psycopg.connect(empty.dsn.replace("postgres@", "visitor@"), autocommit=True) as visitor:
            assert visitor.execute("select count(*) from (select * from fairlane.jobs) j").fetchone() == (1,)
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="function enqueue_v1"):
                visitor.execute("select fairlane.enqueue_v1('[]')")
    finally:
        empty.rows("drop owned by visitor; drop role visitor")


def test_jobs_keys_and_the_version_come_back_from_a_dump(place: Place, stores: Stores) -> None:
    scene = Scene(stores.open(place.dsn))
    done, dead = scene.finished(), scene.dead()
    waiting = scene.put(idempotency_key="order-7", dedup_key="order", tenant="acme")
    dump = run_program(place.server, "pg_dump", place.dsn)
    copy = Place(place.server, f"{place.name}_restored")
    place.server.create_database(copy.name)
    run_by_psql(copy.server, copy.name, dump)
    store = stores.open(copy.dsn)
    assert store.migrator().pending() == ()
    assert store.run(Check()).schema_version == store.migrator().needed.expanded
    restored = Scene(store, seed=1)
    assert [restored.status(job) for job in (waiting.id, done.id, dead.id)] == ["pending", "completed", "dead"]
    [receipt] = restored.enqueue(restored.job(idempotency_key="order-7", tenant="acme")).receipts
    assert (receipt.disposition, receipt.id) == ("duplicate", waiting.id)
    assert restored.put().seq > waiting.seq
