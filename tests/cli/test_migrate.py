"""`fairlane migrate` on SQLite and PostgreSQL: looking changes nothing, `up` brings it up to date."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Run
from tests.servers.postgres import shared_server

Answer = Callable[..., Any]


@pytest.fixture
def database() -> str:
    """An empty PostgreSQL database."""
    return shared_server().new_database("migrate_cli")


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, url: str) -> str:
    return url if request.param == "sqlite" else str(request.getfixturevalue("database"))


def test_a_schema_is_looked_at_made_and_found_up_to_date(run: Run, answer: Answer, empty: str) -> None:
    before = answer("migrate", "status", "--url", empty)
    assert (before["current"], before["up_to_date"]) == (0, False)
    versions = [step["version"] for step in before["pending"] if step["phase"] == "expand"]
    assert versions == list(range(1, before["needed"] + 1))
    assert run("migrate", "check", "--url", empty).exit_code == 1

    would = answer("migrate", "--dry-run", "--url", empty)
    assert would["migrations"] == before["pending"]
    assert answer("migrate", "up", "--dry-run", "--url", empty) == would
    assert answer("migrate", "status", "--url", empty) == before

    assert answer("migrate", "up", "--url", empty)["migrations"] == before["pending"]
    after = answer("migrate", "status", "--url", empty)
    assert (after["current"], after["up_to_date"], after["pending"]) == (after["needed"], True, [])
    assert run("migrate", "check", "--url", empty).exit_code == 0
    again = run("migrate", "up", "--url", empty)
    assert (again.exit_code, again.stdout) == (0, "")
    assert "nothing to do" in again.stderr
    assert run("jobs", "list", "--url", empty).exit_code == 0


def test_looking_makes_no_file(run: Run, url: str) -> None:
    for words in (["status"], ["check"], ["--dry-run"], ["--sql"], ["up", "--sql"]):
        run("migrate", *words, "--url", url)
    assert list(Path.cwd().iterdir()) == []


def test_looking_leaves_a_database_of_somebody_else_alone(run: Run, answer: Answer, url: str) -> None:
    with sqlite3.connect("jobs.db") as theirs:
        theirs.execute("create table customers (id integer)")
    theirs.close()
    assert answer("migrate", "status", "--url", url)["current"] == 0
    assert run("doctor", "--url", url).exit_code == 0
    with sqlite3.connect("jobs.db") as theirs:
        assert theirs.execute("select name from sqlite_master").fetchall() == [("customers",)]
    theirs.close()


def test_the_script_for_sqlite_makes_the_schema_by_hand(run: Run, answer: Answer, url: str) -> None:
    script = run("migrate", "--sql", "--url", url).stdout
    by_hand = sqlite3.connect("jobs.db")
    by_hand.executescript(script)
    by_hand.close()
    assert answer("migrate", "status", "--url", url)["up_to_date"]
    assert run("enqueue", "mail.send", "--url", url).exit_code == 0


def test_the_script_for_postgresql_needs_no_server_and_makes_the_schema_by_hand(
    run: Run, answer: Answer, database: str
) -> None:
    script = run("migrate", "--sql", "--url", "postgresql://nobody@127.0.0.1:1/nothing").stdout
    with psycopg.connect(database, autocommit=True) as by_hand:
        by_hand.execute(script.encode())
    assert answer("migrate", "status", "--url", database)["up_to_date"]
    assert run("enqueue", "mail.send", "--url", database).exit_code == 0


def test_options_may_stand_on_either_side_of_the_sub_command(run: Run, url: str) -> None:
    assert run("migrate", "--url", url, "up").exit_code == 0
    assert run("migrate", "--url", "sqlite:///another.db", "check", "--url", url).exit_code == 0
    assert json.loads(run("migrate", "--json", "--url", url, "status").stdout)["up_to_date"]


def test_commands_on_a_database_without_a_schema_say_what_to_run(run: Run, database: str) -> None:
    result = run("jobs", "list", "--url", database)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "`fairlane migrate up`" in result.stderr


def record(name: str, version: int) -> None:
    with sqlite3.connect("jobs.db") as newer:
        newer.execute("insert or replace into fairlane_meta values (?, ?)", (name, version))
    newer.close()


def test_a_schema_that_is_newer_and_only_expanded_is_used_and_left_alone(run: Run, answer: Answer, url: str) -> None:
    run("migrate", "up", "--url", url)
    record("schema_version", 99)
    assert answer("migrate", "up", "--url", url)["migrations"] == []
    assert "newer than this release" in run("migrate", "status", "--url", url).stderr
    for words in (["migrate", "check"], ["jobs", "list"], ["doctor"], ["healthcheck"]):
        assert run(*words, "--url", url).exit_code == 0


def test_a_schema_that_newer_code_has_contracted_is_refused(run: Run, url: str) -> None:
    run("migrate", "up", "--url", url)
    record("schema_contracted", 99)
    for words in (["migrate", "up"], ["jobs", "list"]):
        result = run(*words, "--url", url)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "upgrade the fairlane package" in result.stderr
    assert run("migrate", "check", "--url", url).exit_code == 1
    assert run("doctor", "--url", url).exit_code == 1


def test_up_stops_at_the_version_asked_for(run: Run, answer: Answer, empty: str) -> None:
    assert run("migrate", "up", "--to", "99", "--url", empty).exit_code == 2
    assert answer("migrate", "up", "--to", "1", "--url", empty)["migrations"][0]["version"] == 1
    assert answer("migrate", "status", "--url", empty)["current"] == 1


def test_contracting_a_schema_without_anything_old_does_nothing(run: Run, answer: Answer, empty: str) -> None:
    refused = run("migrate", "contract", "--url", empty)
    assert (refused.exit_code, "run `fairlane migrate up`" in refused.stderr) == (1, True)
    run("migrate", "up", "--url", empty)
    assert answer("migrate", "contract", "--dry-run", "--url", empty) == {"dry_run": True, "migrations": []}
    assert "nothing to do" in run("migrate", "contract", "--url", empty).stderr


def test_a_store_without_a_schema_says_so(run: Run) -> None:
    result = run("migrate", "status", "--url", "memory://")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "keeps no schema" in result.stderr
    up = run("migrate", "up", "--url", "redis://127.0.0.1:1/0")
    assert (up.exit_code, "nothing to do: a redis store keeps no schema" in up.stderr) == (0, True)


@pytest.mark.parametrize("words", [["up", "--with", "supervisors"], ["--with", "supervisors"]])
def test_supervisors_are_installed_when_asked_for_and_followed_from_then_on(
    run: Run, answer: Answer, database: str, words: list[str]
) -> None:
    assert "queue_contract" not in str(answer("migrate", "up", "--url", database))
    ran = answer("migrate", *words, "--url", database)["migrations"]
    assert [step["name"] for step in ran] == ["queue_contract", "functions of queues"]
    assert answer("migrate", *words, "--url", database)["migrations"] == []
    with psycopg.connect(database) as conn:
        conn.execute("select queues.enqueue('email', '{}')")
        conn.execute("update queues.schema_version set checksum = 'of an older release' where phase = 'functions'")
    assert [step["name"] for step in answer("migrate", "status", "--url", database)["pending"]] == [
        "functions of queues"
    ]
    assert [step["name"] for step in answer("migrate", "up", "--url", database)["migrations"]] == [
        "functions of queues"
    ]


def test_the_script_of_the_supervisors_needs_no_connection_and_may_run_twice(run: Run, database: str) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing"
    script = run("migrate", "up", "--with", "supervisors", "--sql", "--url", nowhere).stdout
    for _ in range(2):
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute(script.encode())
            conn.execute("select queues.enqueue('email', '{}')")
    assert "queue_contract" not in run("migrate", "up", "--sql", "--url", nowhere).stdout


def test_supervisors_need_postgresql_and_say_so(run: Run, url: str) -> None:
    result = run("migrate", "up", "--with", "supervisors", "--url", url)
    assert result.exit_code != 0
    assert "the supervisors' queue contract needs PostgreSQL" in result.stderr
