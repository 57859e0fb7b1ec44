"""`fairlane doctor`: finds what is wrong and says what to do; changes nothing."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fairlane import ConfigError, Fairlane
from fairlane.core.ops import Enqueue
from fairlane.stores.failover import Spool
from fairlane.testing import run_due
from fairlane.testing.conformance.samples import Making
from tests.cli.conftest import Run, Scene
from tests.faults.eventually import eventually
from tests.servers.postgres import shared_server
from tests.servers.valkey import ValkeyServer
from tests.support.stores import Ground, ground

__all__ = ["ground"]


@pytest.fixture
def database() -> str:
    return shared_server().new_database("doctor_cli")


def findings(run: Run, *args: str, code: int = 0, **env: str) -> dict[str, Any]:
    """By check: its finding, and for checks with several the most urgent one."""
    result = run("doctor", *args, "--json", env=env or None)
    assert result.exit_code == code, result.stdout
    said = json.loads(result.stdout)
    assert said["ok"] is (code == 0)
    return {check["check"]: check for check in reversed(said["checks"])}


def states(found: dict[str, Any]) -> set[str]:
    return {check["state"] for check in found.values()}


def test_a_healthy_sqlite_store_passes_every_check(run: Run, scene: Scene) -> None:
    found = findings(run, "--url", scene.url)
    wrong = {found.pop("no worker")["state"], found.pop("dead letters")["state"]}  # Of the scene, not of its store.
    assert (wrong, states(found)) == ({"warn", "note"}, {"ok"})
    assert {
        "versions",
        "url",
        "schema",
        "store",
        "durability",
        "clock",
        "sqlite library",
        "journal",
        "file system",
    } <= set(found)
    assert found["journal"]["says"] == "wal"
    assert found["url"]["says"].endswith("from option --url")
    before = scene.everything()
    said = run("doctor", "--url", scene.url)
    assert said.stderr == "0 failures, 1 warning\n"
    assert scene.everything() == before


@pytest.mark.requirement("L13", "L15", "D27")
def test_what_is_wrong_now_comes_first_with_its_extent_and_what_helps(run: Run, scene: Scene) -> None:
    with Fairlane(scene.url) as app:
        app.queues.pause("default", by="ada", notes="maintenance")
    said = json.loads(run("doctor", "--url", scene.url, "--json").stdout)["checks"]
    paused, letters = said[:2]
    assert (paused["check"], paused["state"], paused["remedy"]) == ("paused", "warn", "fairlane queues resume default")
    assert paused["says"].startswith('queue "default" is paused by ada: maintenance; jobs that wait: ')
    assert (paused["jobs"] > 0, paused["since"][:2]) == (True, "20")
    assert (letters["check"], letters["state"], letters["jobs"]) == ("dead letters", "note", 1)
    assert {check["state"] for check in said[2:]} == {"ok"}


def test_jobs_that_have_been_due_for_long_and_that_nobody_runs_are_a_failure(run: Run, url: str) -> None:
    with Fairlane(url) as app:
        send = app.task(name="mail.send", queue="mail")(lambda: None)
        send.using(run_at=datetime.now(UTC) - timedelta(minutes=5)).enqueue()
    found = findings(run, "--url", url, code=1)["no worker"]
    assert (found["state"], found["jobs"], found["remedy"]) == ("fail", 1, "fairlane worker --queues mail")
    assert found["says"] == 'queue "mail" has 1 ready job and no worker is live (5m ago)'


def test_a_healthy_postgresql_store_passes_every_check(run: Run, database: str) -> None:
    run("migrate", "up", "--url", database)
    found = findings(run, "--url", database)
    assert states(found) == {"ok"}
    assert found["store"]["says"].startswith("postgresql answers: PostgreSQL 1")


def test_a_redis_store_is_examined_with_what_its_server_keeps(run: Run, ground: Ground) -> None:
    found = findings(run, "--url", ground.valkey.url)
    assert found["store"]["says"].startswith("redis answers: Valkey 9")
    assert found["durability"]["state"] == "warn"
    assert "appendfsync" in found["durability"]["says"]
    assert "schema" not in found


REDIS_SETTINGS: list[tuple[dict[str, str], str, str, str]] = [
    ({"appendonly": "yes", "appendfsync": "always"}, "ok", "acknowledged writes survive a crash", ""),
    ({"appendonly": "yes", "appendfsync": "everysec"}, "warn", "may lose the last second", 'set it to "always"'),
    ({"appendonly": "yes", "appendfsync": "no"}, "warn", "may lose the last half minute", 'set it to "always"'),
    ({"appendonly": "no", "save": "3600 1"}, "fail", 'last snapshot (save is "3600 1")', 'set appendonly to "yes"'),
    ({"appendonly": "no", "save": ""}, "fail", "loses every job", 'set appendonly to "yes"'),
    ({"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "allkeys-lru"}, "warn",
     "as soon as one is set Fairlane refuses this server", 'set maxmemory-policy to "noeviction"'),
]  # fmt: skip


def test_an_older_server_than_the_suite_runs_on_is_refused_and_a_newer_one_noted(
    run: Run, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is what it is: the bounds are moved."""
    assert run("migrate", "up", "--url", database).exit_code == 0
    monkeypatch.setattr("fairlane.stores.postgres.connection.NEWEST_SERVER", 14)
    newer = findings(run, "--url", database)["server version"]
    assert (newer["state"], newer["says"].endswith("tested with (15 to 14)")) == ("warn", True)
    monkeypatch.setattr("fairlane.stores.postgres.connection.OLDEST_SERVER", 99)
    refused = "the server is PostgreSQL 1\\d: expected PostgreSQL 99 to 14; upgrade the server"
    found = findings(run, "--url", database, code=1)["store"]
    assert (found["state"], re.match(refused, found["says"]) is not None) == ("fail", True)
    with Fairlane(database) as app:
        with pytest.raises(ConfigError, match=refused):
            app.statistics.health()
        with pytest.raises(ConfigError, match=refused):
            asyncio.run(app.statistics.ahealth())
    result = run("migrate", "up", "--url", database)
    assert (result.exit_code, re.search(refused, result.stderr) is not None) == (2, True), result.stderr


def test_an_older_sqlite_than_the_statements_need_is_refused(
    run: Run, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.stores.sqlite.connection.OLDEST_LIBRARY", (99, 1))
    found = findings(run, "--url", scene.url, code=1)["store"]
    assert "SQLite 3." in found["says"]
    assert "expected 99.1 or newer; upgrade the package apsw" in found["says"]
    with pytest.raises(ConfigError, match='set sqlite_library = "apsw"'):
        Fairlane("memory://", sqlite_library="stdlib").statistics.health()


@pytest.mark.requirement("Q17")
def test_a_redis_server_is_told_apart_by_what_its_settings_may_lose(run: Run) -> None:
    with ValkeyServer() as server:
        for settings, state, says, remedy in REDIS_SETTINGS:
            for name, value in settings.items():
                server.call("CONFIG", "SET", name, value)
            found = findings(run, "--url", server.url, code=int(state == "fail"))["durability"]
            assert (found["state"], says in found["says"]) == (state, True), found
            assert found["remedy"].startswith(remedy)
        server.call("CONFIG", "SET", "maxmemory", "100mb")
        result = run("doctor", "--url", server.url)
        assert result.exit_code == 1
        assert 'maxmemory-policy is "allkeys-lru": when its memory is full' in " ".join(result.stdout.split())


def test_a_redis_server_with_replicas_that_takes_jobs_without_them_is_named(run: Run) -> None:
    primary = ValkeyServer(**{"repl-diskless-sync-delay": "0"})
    with primary as server, ValkeyServer(replicaof=f"127.0.0.1 {server.port}"):
        eventually(lambda: "state=online" in server.call("INFO", "replication"))
        found = findings(run, "--url", server.url)["durability"]
        assert "a failover may lose what was acknowledged" in found["says"]
        assert found["remedy"].startswith("set min-replicas-to-write to 1")
        server.call("CONFIG", "SET", "min-replicas-to-write", "1")
        assert findings(run, "--url", server.url)["durability"]["state"] == "ok"


def test_a_missing_schema_fails_with_the_command_to_run(run: Run, database: str) -> None:
    schema = findings(run, "--url", database, code=1)["schema"]
    assert (schema["state"], schema["remedy"]) == ("fail", "run `fairlane migrate up`")


def test_a_file_that_is_not_there_yet_is_only_a_warning(run: Run, url: str) -> None:
    found = findings(run, "--url", url)
    assert found["schema"]["state"] == "warn"
    assert list(Path.cwd().iterdir()) == []


def test_a_server_that_is_away_fails_without_its_password(run: Run) -> None:
    result = run("doctor", "--url", "postgresql://app:hunter2@127.0.0.1:1/app")
    assert result.exit_code == 1
    assert "fail" in result.stdout
    assert "hunter2" not in result.stdout


def test_settings_that_are_refused_fail(run: Run, tmp_path: Path) -> None:
    (tmp_path / "fairlane.toml").write_text('profil = "production"\n')
    assert "profil" in findings(run, code=1)["settings"]["says"]


def test_risky_settings_are_warned_about(run: Run, url: str) -> None:
    found = findings(run, "--url", url, FAIRLANE_FALLBACK="memory", FAIRLANE_PROFILE="development")
    assert (found["fallback"]["state"], found["profile"]["state"]) == ("warn", "warn")
    assert "FAIRLANE_FALLBACK" in found["settings"]["says"]


@pytest.mark.requirement("Q5")
def test_a_spool_is_reported_with_what_waits_in_it_and_why(run: Run, scene: Scene, tmp_path: Path) -> None:
    place = tmp_path / "spool"
    given = {"FAIRLANE_SPOOL": str(place)}
    assert findings(run, "--url", scene.url, **given)["spool"]["says"] == f"{place} is not there yet"
    assert not place.exists()
    spool = Spool(place)
    assert findings(run, "--url", scene.url, **given)["spool"]["says"] == f"{place} is empty"
    spool.add(Enqueue(jobs=(Making(1).job(),)))
    spool.refuse({1: "the store has its capacity of 3 jobs"})
    spool.close()
    found = findings(run, "--url", scene.url, **given)["spool"]
    assert found["state"] == "warn"
    assert found["says"].startswith(f"1 job in {place} since ")
    assert found["says"].endswith("1 refused by the store: the store has its capacity of 3 jobs")
    assert json.loads(run("snapshot", "--json", "--url", scene.url, env=given).stdout)["spooled"] == 1
    assert findings(run, "--url", scene.url, FAIRLANE_SPOOL="memory")["spool"]["state"] == "warn"


def test_memory_is_a_warning(run: Run) -> None:
    assert findings(run, "--url", "memory://")["store"]["state"] == "warn"


def test_types_the_application_does_not_know_are_named(run: Run, scene: Scene, tmp_path: Path) -> None:
    module = f"doctored_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(
        f"from fairlane import Fairlane\napp = Fairlane('{scene.url}')\n"
        "@app.task(name='mail.send')\ndef send(to: int) -> None: ...\n"
    )
    found = findings(run, "--app", f"{module}:app")
    assert found["application"]["says"] == "1 task registered"
    assert found["unknown type"]["state"] == "warn"
    assert '1 unfinished of type "crm.sync"' in found["unknown type"]["says"]


@pytest.mark.requirement("L17")
def test_jobs_that_wait_for_newer_code_are_listed(run: Run, scene: Scene, tmp_path: Path) -> None:
    module = f"rolled_back_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(
        f"from fairlane import Fairlane\napp = Fairlane('{scene.url}')\n@app.task(name='pack')\ndef pack() -> None: ...\n"
    )
    with Fairlane(scene.url) as newer:
        newer.task(name="pack")(lambda gift: None).enqueue(True)
    with Fairlane(scene.url) as older:
        older.task(name="pack")(lambda: None)
        run_due(older)
    found = findings(run, "--app", f"{module}:app")["newer code"]
    assert found["state"] == "warn"
    assert found["says"].startswith('1 of type "pack" put off, such as ')
    assert "it takes no argument 'gift'" in found["says"]


@pytest.mark.requirement("W3")
@pytest.mark.parametrize(("upcasters", "problem"), [((1, 2), None), ((2,), "no upcaster from version 1 to 2")])
def test_waiting_jobs_that_the_application_cannot_read_are_listed(
    run: Run, scene: Scene, tmp_path: Path, upcasters: tuple[int, ...], problem: str | None
) -> None:
    module = f"upcast_{tmp_path.name.replace('-', '_').replace('[', '_').replace(']', '_')}"
    steps = "".join(f"pack.upcast({one})(lambda payload: {{'box': payload['box'] + 1}})\n" for one in upcasters)
    (tmp_path / f"{module}.py").write_text(
        f"from fairlane import Fairlane\napp = Fairlane('{scene.url}')\n"
        f"@app.task(name='pack', version=3)\ndef pack(box: int) -> None: ...\n{steps}"
    )
    for version in (1, 2):
        with Fairlane(scene.url) as older:
            older.task(name="pack", version=version)(lambda box: None).enqueue(version)
    found = findings(run, "--app", f"{module}:app").get("unreadable")
    if problem is None:
        assert found is None
    else:
        assert found is not None
        assert (found["state"], found["says"].startswith("1 waiting job cannot be read")) == ("warn", True)
        assert problem in found["says"]


@pytest.mark.requirement("L16")
@pytest.mark.parametrize(("version", "problem"), [(2, None), (3, "no upcaster from version 2 to 3"), (1, "is newer")])
def test_nodes_that_wait_for_results_are_not_taken_for_unreadable_ones(
    run: Run, scene: Scene, tmp_path: Path, version: int, problem: str | None
) -> None:
    module = f"waiting_{tmp_path.name.replace('-', '_').replace('[', '_').replace(']', '_')}"
    (tmp_path / f"{module}.py").write_text(
        f"from fairlane import Fairlane\napp = Fairlane('{scene.url}')\n"
        "@app.task(name='weigh')\ndef weigh() -> int: return 1\n"
        f"@app.task(name='pack', version={version})\ndef pack(grams: int) -> None: ...\n"
    )
    with Fairlane(scene.url) as app:
        flow = app.workflow("parcel")
        weighed = flow.add(app.task(name="weigh")(lambda: 1).bind())
        flow.add(app.task(name="pack", version=2)(lambda grams: None).bind(weighed.result))
        flow.enqueue()
    found = findings(run, "--app", f"{module}:app").get("unreadable")
    assert (found is None) == (problem is None)
    assert found is None or (problem or "") in found["says"]


def test_a_server_that_would_lose_jobs_in_a_crash_fails(run: Run, database: str) -> None:
    run("migrate", "up", "--url", database)
    with psycopg.connect(database, autocommit=True) as server:
        server.execute("alter table fairlane.job set unlogged")
    durability = findings(run, "--url", database, code=1)["durability"]
    assert durability["state"] == "fail"
    assert "job" in durability["says"]
    assert "set logged" in durability["remedy"]


def test_a_role_without_rights_is_denied_with_5(run: Run, database: str) -> None:
    run("migrate", "up", "--url", database)
    with psycopg.connect(database, autocommit=True) as server:
        server.execute("drop role if exists cli_stranger")
        server.execute("create role cli_stranger login")
    try:
        stranger = database.replace("postgres@", "cli_stranger@")
        result = run("jobs", "list", "--url", stranger)
        assert (result.exit_code, result.stdout) == (5, "")
        assert len(result.stderr.splitlines()) == 1
    finally:
        with psycopg.connect(database, autocommit=True) as server:
            server.execute("drop role cli_stranger")
