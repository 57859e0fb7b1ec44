"""`fairlane migrate isolate`, and what `fairlane doctor` says of isolation."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import sql

from fairlane.errors import ConfigError
from fairlane.stores.postgres.roles import Roles
from tests.cli.conftest import Run, answer, nothing_configured, run, url
from tests.isolation.house import House
from tests.support.stores import SCHEMA_TEMPLATE, Ground

__all__ = ["answer", "nothing_configured", "run", "url"]

pytestmark = pytest.mark.requirement("I10")

_numbers = itertools.count(1)


@pytest.fixture
def database(ground: Ground) -> str:
    """A migrated store with one role."""
    name = f"one_role{next(_numbers)}"
    ground.server.create_database(name, template=SCHEMA_TEMPLATE)
    return name


def finding(run: Run, dsn: str) -> dict[str, str]:
    said = json.loads(run("doctor", "--url", dsn, "--json").stdout)
    [found] = [check for check in said["checks"] if check["check"] == "isolation"]
    return {name: str(value) for name, value in found.items()}


def test_a_store_is_isolated_by_one_command_and_the_doctor_sees_it(
    run: Run, answer: Callable[..., Any], ground: Ground, database: str
) -> None:
    dsn = ground.server.dsn(database)
    before = finding(run, dsn)
    assert (before["state"], before["says"].partition(":")[0]) == ("ok", "by convention")
    assert "fairlane migrate isolate" in before["remedy"]
    roles = answer("migrate", "isolate", "--url", dsn, "--prefix", f"{database}_jobs")
    assert roles["worker"] == f"{database}_jobs_worker"
    assert set(roles) == set(Roles._fields)
    said = run("migrate", "isolate", "--url", dsn, "--prefix", f"{database}_jobs")
    assert f"grant {database}_jobs_api to" in said.stdout
    after = finding(run, dsn)
    assert (after["state"], after["says"].partition(":")[0]) == ("warn", "bypassed")
    assert 'role "postgres" is superuser' in after["says"]


@pytest.mark.parametrize("kind", ["worker", "api"])
def test_the_doctor_says_that_policies_hold_for_a_role_of_ours(run: Run, house: House, kind: str) -> None:
    found = finding(run, house.dsn(kind))
    assert (found["state"], found["says"]) == ("ok", f'by the database: policies hold for role "{house.login(kind)}"')


@pytest.mark.parametrize("above", ["superuser", "bypassrls", "in role fairlane_engine", "in role fairlane_owner"])
def test_the_doctor_names_a_role_that_no_policy_holds_for(run: Run, house: House, above: str) -> None:
    login = f"{house.database}_above_{next(_numbers)}"
    with psycopg.connect(house.superuser, autocommit=True) as conn:
        conn.execute(f"create role {login} login {above}".encode())
        conn.execute(f"grant fairlane_api to {login}".encode())
    try:
        found = finding(run, house.server.dsn(house.database, login))
        assert (found["state"], found["says"].partition(":")[0]) == ("warn", "bypassed")
        assert login in found["says"]
    finally:
        with psycopg.connect(house.superuser, autocommit=True) as conn:
            conn.execute(f"drop role {login}".encode())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("create table fairlane.added (tenant text)", "table added"),
        ("alter table fairlane.job no force row level security", "table job"),
        ("create view fairlane.peek as select * from fairlane.job", "view peek"),
        ("alter function fairlane.get_stats_v1 security invoker", "function get_stats_v1"),
        ("create function fairlane.helper() returns integer language sql return 1", "function helper"),
    ],
)
def test_what_a_later_migration_added_is_missed_and_taken_in_by_isolating_again(
    run: Run, own_house: House, change: str, named: str
) -> None:
    with psycopg.connect(own_house.superuser, autocommit=True) as conn:
        conn.execute(change.encode())
    found = finding(run, own_house.dsn("api"))
    assert (found["state"], found["says"]) == ("fail", f"incomplete: not taken in yet: {named}")
    assert run("migrate", "isolate", "--url", own_house.superuser).exit_code == 0
    assert finding(run, own_house.dsn("api"))["state"] == "ok"


def test_the_script_makes_the_same_by_hand(run: Run, ground: Ground, database: str) -> None:
    script = run("migrate", "isolate", "--sql", "--url", "postgresql://nobody@127.0.0.1:1/none").stdout
    with psycopg.connect(ground.server.dsn(database), autocommit=True) as conn:
        conn.execute(script.encode())
    assert finding(run, ground.server.dsn(database))["says"].startswith("bypassed")


def test_an_owner_that_may_create_roles_needs_no_superuser(run: Run, ground: Ground, database: str) -> None:
    owner = f"{database}_admin"
    with psycopg.connect(ground.server.dsn(), autocommit=True) as conn:
        conn.execute(sql.SQL("create role {} login createrole").format(sql.Identifier(owner)))
        name = f"{database}_own"
        conn.execute(sql.SQL("create database {} owner {}").format(sql.Identifier(name), sql.Identifier(owner)))
    dsn = ground.server.dsn(name, owner)
    assert run("migrate", "up", "--url", dsn).exit_code == 0
    for _ in range(2):
        made = run("migrate", "isolate", "--url", dsn, "--prefix", name)
        assert made.exit_code == 0, made.stderr
    found = finding(run, dsn)
    assert (found["state"], "is a member of" in found["says"]) == ("warn", True)
    assert run("migrate", "check", "--url", dsn).exit_code == 0


def test_a_role_that_may_not_isolate_is_told_who_may_and_nothing_changes(
    run: Run, ground: Ground, database: str
) -> None:
    weak = f"{database}_weak"
    with psycopg.connect(ground.server.dsn(), autocommit=True) as conn:
        conn.execute(sql.SQL("create role {} login").format(sql.Identifier(weak)))
    refused = run("migrate", "isolate", "--url", ground.server.dsn(database, weak), "--prefix", database)
    assert refused.exit_code == 5
    assert "let a superuser run `fairlane migrate isolate --sql`" in refused.stderr
    assert finding(run, ground.server.dsn(database))["says"].startswith("by convention")


def test_a_role_of_that_name_that_logs_in_or_bypasses_is_refused(run: Run, ground: Ground, database: str) -> None:
    for nth, attribute in enumerate(("login", "superuser", "bypassrls")):
        prefix = f"{database}_{nth}"
        with psycopg.connect(ground.server.dsn(), autocommit=True) as conn:
            conn.execute(f"create role {prefix}_engine {attribute}".encode())
        refused = run("migrate", "isolate", "--url", ground.server.dsn(database), "--prefix", prefix)
        assert refused.exit_code != 0
        assert f'role "{prefix}_engine"' in refused.stderr
    assert finding(run, ground.server.dsn(database))["says"].startswith("by convention")


def test_stores_without_roles_and_without_a_schema_are_refused(run: Run, url: str, ground: Ground) -> None:
    assert "needs PostgreSQL" in run("migrate", "isolate", "--url", url).stderr
    empty = ground.server.create_database(f"empty{next(_numbers)}")
    refused = run("migrate", "isolate", "--url", empty)
    assert refused.exit_code != 0
    assert "fairlane migrate up" in refused.stderr


@pytest.mark.parametrize("prefix", ["", "x" * 57, "a\0", "a$isolate$"])
def test_prefixes_that_make_no_role_names_are_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="prefix"):
        Roles.prefixed(prefix)
