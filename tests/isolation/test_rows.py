"""Whose rows a connection reads: one tenant's, once that is said; before that, nobody's."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import errors, sql

from fairlane.testing.conformance.scene import Scene
from tests.isolation.house import House
from tests.isolation.tenant_data import TENANTS, add_tenant_data

pytestmark = pytest.mark.requirement("I10")

READABLE = {
    *("job", "ready", "scheduled", "held", "lease", "attempt", "done", "dead_letter", "note", "log_line"),
    *(
        "stat_minute",
        "stat_half_hour",
        "idempotency_key",
        "dedup_key",
        "audit",
        "event",
        "node",
        "workflow",
        "tenant",
        "pause",
        "limit_rule",
    ),
}
VIEWS = (
    *("jobs", "job_record", "attempt_record", "dead_letter_record", "dead_letter_jobs", "job_metrics"),
    "job_queue_health",
)
SET: LiteralString = "select set_config('fairlane.tenant', %s, true)"


@pytest.fixture
def full(scene: Scene) -> Scene:
    add_tenant_data(scene)
    return scene


def read(conn: psycopg.Connection[Any], table: str) -> list[str]:
    """Every row of a table as text; refused is as good as none."""
    try:
        with conn.transaction():
            query = sql.SQL("select t::text from fairlane.{} t").format(sql.Identifier(table))
            return [row[0] for row in conn.execute(query)]
    except errors.InsufficientPrivilege:
        return []


def test_every_readable_table_holds_rows_of_both_tenants(full: Scene, house: House) -> None:
    with psycopg.connect(house.superuser) as conn:
        for table in READABLE:
            assert len(read(conn, table)) >= 2, table


@pytest.mark.parametrize("kind", ["worker", "api", "read", "app", "stranger"])
@pytest.mark.parametrize("said", [None, "", "nobody", "%", "*", "ACME", "acme ", "system"])
def test_without_a_tenant_that_has_rows_a_connection_reads_none_of_any_table(
    full: Scene, house: House, kind: str, said: str | None
) -> None:
    with house.connect(kind) as conn:
        if said is not None:
            conn.execute(SET, (said,))
        assert {name: read(conn, name) for name in (*house.tables(), *VIEWS) if read(conn, name)} == {}


@pytest.mark.parametrize("kind", ["api", "read"])
@pytest.mark.parametrize(("own", "foreign"), [TENANTS, TENANTS[::-1]])
def test_a_tenant_reads_all_of_its_own_and_nothing_of_the_other(
    full: Scene, house: House, kind: str, own: str, foreign: str
) -> None:
    with psycopg.connect(house.superuser) as above, house.connect(kind) as conn:
        conn.execute(SET, (own,))
        seen = {table: read(conn, table) for table in house.tables()}
        for table in READABLE:
            everything = read(above, table)
            assert seen[table], table
            assert len(seen[table]) == len(everything) / 2, table
        assert {table for table, rows in seen.items() if rows} == READABLE
        for view in VIEWS:
            seen[view] = read(conn, view)
            assert seen[view], view
        assert foreign not in repr(seen)


def test_the_tenant_is_forgotten_at_the_end_of_the_transaction(full: Scene, house: House) -> None:
    with house.connect("api") as conn:
        for end in (conn.commit, conn.rollback):
            conn.execute(SET, ("acme",))
            assert read(conn, "job")
            end()
            assert read(conn, "job") == []


@pytest.mark.parametrize("kind", ["worker", "api", "read", "app"])
def test_nobody_writes_a_table_but_through_functions(full: Scene, house: House, kind: str) -> None:
    before = house.everything()
    with house.connect(kind, autocommit=True) as conn:
        conn.execute("set fairlane.tenant = 'acme'")
        for table in house.tables():
            name = sql.Identifier(table)
            for statement in (
                sql.SQL("delete from fairlane.{}"),
                sql.SQL("truncate fairlane.{}"),
                sql.SQL("insert into fairlane.{} default values"),
                sql.SQL("alter table fairlane.{} disable row level security"),
                sql.SQL("drop table fairlane.{}"),
            ):
                with pytest.raises(errors.InsufficientPrivilege):
                    conn.execute(statement.format(name))
        with pytest.raises(errors.InsufficientPrivilege):
            conn.execute("update fairlane.job set tenant = 'acme'")
        with pytest.raises(errors.InsufficientPrivilege):
            conn.execute("create table fairlane.mine ()")
        for role in ("fairlane_engine", "fairlane_owner"):
            with pytest.raises(errors.InsufficientPrivilege):
                conn.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
    assert house.everything() == before


def test_the_engine_adds_to_the_audit_and_cannot_take_from_it(full: Scene, house: House) -> None:
    with psycopg.connect(house.superuser, autocommit=True) as conn:
        conn.execute("set role fairlane_engine")
        assert read(conn, "audit")
        for statement in (
            "update fairlane.audit set by = 'x'",
            "delete from fairlane.audit",
            "truncate fairlane.audit",
            "delete from fairlane.audit_seal",
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                conn.execute(statement.encode())


def test_the_owner_reads_no_tenants_rows_either(full: Scene, house: House) -> None:
    with psycopg.connect(house.superuser) as conn:
        conn.execute("set role fairlane_owner")
        assert {table: read(conn, table) for table in house.tables() if read(conn, table)}.keys() == {"schema_version"}


def test_a_function_of_the_callers_own_is_never_taken_for_one_of_ours(full: Scene, house: House) -> None:
    """A name without a schema inside a function that acts as the engine would be looked for where the caller says."""
    with psycopg.connect(house.superuser, autocommit=True) as conn:
        conn.execute(sql.SQL("create schema trap authorization {}").format(sql.Identifier(house.login("api"))))
    try:
        with house.connect("api", autocommit=True) as conn:
            conn.execute(
                "create function trap.clock_timestamp() returns timestamptz language plpgsql as "
                "$$ begin raise exception 'taken in as %', current_user; end $$"
            )
            conn.execute("create temp table job (seq bigint, tenant text)")
            conn.execute("set search_path = trap, pg_temp, pg_catalog, fairlane")
            [(stats,)] = conn.execute(
                """select fairlane.get_stats_v1('{"scope": {"tenant": null}, "cap": 10}')"""
            ).fetchall()
            assert [queue["queue"] for queue in stats["queues"]] == ["acme", "full", "globex"]
            [(found,)] = conn.execute(
                """select json_array_length(fairlane.page_jobs_v1('{"scope": {"tenant": null}, "limit": 100}')->'jobs')"""
            ).fetchall()
            assert found > 0
    finally:
        with psycopg.connect(house.superuser, autocommit=True) as conn:
            conn.execute("drop schema trap cascade")
