"""What a user can get wrong: one line, the right code, nothing on stdout, nothing changed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from fairlane.cli.output import explained, outage
from fairlane.stores.postgres.errors import unreachable
from tests.cli.conftest import Command, Run, Scene
from tests.servers.valkey import ValkeyServer

NOBODY = "0190a0a0-0000-7000-8000-000000000000"
NOWHERE = "postgresql://someone:hunter2@127.0.0.1:1/nothing"
UNRESOLVABLE = "redis://[fe80::1%25nosuch]/0"
"""A host that the resolver refuses by itself (EAI_NONAME), with a network or without."""

MISTAKES = [
    # what was typed, exit code, what the line has to say
    (["jbos"], 2, 'did you mean "jobs"?'),
    (["jobs", "lst"], 2, 'did you mean "list"?'),
    (["jobs", "list", "--stauts", "failed"], 2, "--status"),
    (["--url", "sqlite:///jobs.db", "jobs", "list"], 2, "behind the command, as in fairlane COMMAND --url"),
    (["jobs", "--status", "failed", "list"], 2, "behind the command, as in fairlane jobs COMMAND --status"),
    (["--debgu", "jobs", "list"], 2, "--debug"),
    (["jobs", "list", "status:faild"], 2, 'Nearest: "failed"'),
    (["jobs", "list", "stat:failed"], 2, 'Nearest: "status"'),
    (["jobs", "list", "failed"], 2, "name:value"),
    (["jobs", "list", "tenant:a", "tenant:b"], 2, "once only"),
    (["jobs", "list", "--tenant", "a", "tenant:b"], 2, "given twice"),
    (["jobs", "list", "--tenant", "a", "--all-tenants"], 2, "contradict"),
    (["jobs", "list", 'type:"mail'], 2, "balanced quotes"),
    (["jobs", "list", "--tenant", "\x1b[31m"], 2, "without control characters"),
    (["jobs", "list", "--limit", "0"], 2, "1<=x<=200"),
    (["jobs", "list", "--since", "yesterday"], 2, "5m ago"),
    (["jobs", "list", "--since", "2026-01-01"], 2, "time zone"),
    (["jobs", "list", "parent:x7"], 2, "'x7'"),
    (["jobs", "show"], 2, "ID"),
    (["jobs", "show", "x7"], 2, "as `fairlane jobs list` shows them"),
    (["jobs", "show", "7000"], 3, "none has this number"),
    (["jobs", "cancel", "status:failed", "7"], 2, "give ids, filters or --all, one of them"),
    (["jobs", "cancel", "state:failed"], 2, "one of status, queue"),
    (["dead-letters", "discard"], 2, "give ids, filters or --all, one of them"),
    (["dead-letters", "discard", "7", "--type", "mail.send"], 2, "give ids, filters or --all, one of them"),
    (["jobs", "show", NOBODY], 3, NOBODY),
    (["jobs", "cancel", NOBODY], 3, NOBODY),
    (["jobs", "cancel", "{waiting}", "seven", "--yes"], 2, "'seven'"),
    (["jobs", "cancel", "{waiting}", "--by", ""], 2, "by"),
    (["jobs", "cancel", "{done}"], 4, "it is completed"),
    (["jobs", "bury", "{waiting}"], 2, "--reason"),
    (["jobs", "bury", "{waiting}", "--reason", " "], 2, "a few words"),
    (["jobs", "fail", "{waiting}", "--reason", "x", "--delay", "5m"], 2, "--retry"),
    (["jobs", "fail", "{waiting}", "--reason", "x", "--retry", "--delay", "soon"], 2, "1h30m"),
    (["dlq", "show", "first"], 2, "first"),
    (["dlq", "show", "999"], 3, "999"),
    (["dlq", "discard", "999"], 3, "999"),
    (["dlq", "discard", "1", "2"], 2, "--yes"),
    (["dlq", "list", "--status", "open"], 2, "pending_review"),
    (["dlq", "list", "--error-class", "transeint"], 2, 'Nearest: "transient"'),
    (["enqueue"], 2, "TYPE"),
    (["enqueue", "not a name"], 2, "a-z A-Z"),
    (["enqueue", "mail.send", "to"], 2, "name=value"),
    (["enqueue", "mail.send", "=7"], 2, "name=value"),
    (["enqueue", "mail.send", "to=1", "to=2"], 2, "once only"),
    (["enqueue", "mail.send", "to=1", "--payload", "{}"], 2, "once"),
    (["enqueue", "mail.send", "--payload", "[1]"], 2, "one object"),
    (["enqueue", "mail.send", "--payload", "{"], 2, "nothing was enqueued"),
    (["enqueue", "mail.send", "--payload", '{"a":1,"a":2}'], 2, "twice"),
    (["enqueue", "mail.send", "password=hunter2"], 2, "secret"),
    (["enqueue", "mail.send", "text=a\\u0000b", "--payload", '"x"'], 2, "once"),
    (["enqueue", "mail.send", "--priority", "urgent"], 2, "high, normal, low"),
    (["enqueue", "mail.send", "--priority", "99999"], 2, "32767"),
    (["enqueue", "mail.send", "--delay", "5 minutes"], 2, "1h30m"),
    (["enqueue", "mail.send", "--delay", "20000d"], 2, "delay"),
    (["enqueue", "mail.send", "--delay", "5m", "--at", "in 5m"], 2, "either --delay or --at"),
    (["enqueue", "mail.send", "--at", "noon"], 2, "2030-01-01T09:00Z"),
    (["enqueue", "mail.send", "--max-attempts", "0"], 2, "max_attempts"),
    (["enqueue", "mail.send", "--queue", "a b"], 2, "queue"),
    (
        ["enqueue", "mail.send", "--idempotency-key", "welcome-7", "--tenant", "acme", "--on-duplicate", "raise"],
        4,
        "{done}",
    ),
    (["enqueue", "mail.send", "--key", ":42"], 2, "customer:42"),
    (["enqueue", "mail.send", "--ordered"], 2, "a key, too"),
    (["limits", "set", "--key", "customer:42", "--running", "2"], 2, "customer"),
    (["limits", "list", "--name", "customer"], 2, "--keys"),
    (["jobs", "free-place", "{done}"], 4, "without one"),
    (["enqueue", "mail.send", "--app", "missing_module:app"], 2, "no module"),
    (["enqueue", "mail.send", "--app", "../jobs.py"], 2, "module:name"),
    (["enqueue", "mail.send", "--app", "json:app"], 2, "holds no Fairlane"),
    (["enqueue", "mail.send", "--app", "json:dumps"], 2, "not a Fairlane"),
    (["migrate"], 2, "up, contract, status, check"),
    (["migrate", "--sql", "up"], 2, "behind `up`"),
    (["demo", "--seconds", "0"], 2, "0.1"),
]


@pytest.mark.parametrize(
    ("typed", "code", "says"), MISTAKES, ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else ""
)
def test_a_mistake_gets_one_line_and_changes_nothing(
    run: Run, scene: Scene, typed: list[str], code: int, says: str
) -> None:
    before = scene.everything()
    names = {"done": scene.done, "waiting": scene.waiting}
    filled = [names.get(word[1:-1], word) if word.startswith("{") else word for word in typed]
    result = run(*filled, env={"FAIRLANE_URL": scene.url})
    assert (result.exit_code, result.stdout) == (code, "")
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("fairlane: ")
    assert says.format(**names) in result.stderr
    assert "Traceback" not in result.stderr
    assert scene.everything() == before


BAD_STORES = [
    (NOWHERE, 69, "cannot be reached"),
    ("sqlite:///missing.db", 69, "there is no file missing.db"),
    ("sqlite:///no/such/directory/jobs.db", 69, "there is no file"),
    ("sqlite://jobs.db", 2, "three slashes"),
    ("mysql://host/db", 2, "no store is called"),
    ("jobs.db", 2, "expected an address"),
    ("memory://", 2, "would end with this command"),
    ("redis://127.0.0.1:1", 69, "cannot be reached"),
    (UNRESOLVABLE, 2, "check host, user, password and database"),
    ("redis://127.0.0.1:1/shop", 2, "host:port/database"),
    ("redis://127.0.0.1:1/0?client_name=a%20b", 2, "expected a client_name of printable ASCII without blanks"),
    ("redis://127.0.0.1:1/0?cluster=true", 2, "options of a redis-py connection behind the ?, got cluster"),
]


@pytest.mark.parametrize(("url", "code", "says"), BAD_STORES)
def test_a_store_that_is_not_there_is_told_and_not_made(run: Run, url: str, code: int, says: str) -> None:
    for words in (
        ["jobs", "list"],
        ["dlq", "list"],
        ["queues"],
        ["audit", "list"],
        ["snapshot"],
        ["jobs", "cancel", NOBODY],
    ):
        result = run(*words, "--url", url)
        assert result.exit_code == code, words
        # A snapshot also prints what is known without a store that only does not answer.
        assert result.stdout == "" or (words == ["snapshot"] and re.search("reachable +no", result.stdout)), words
        assert len(result.stderr.splitlines()) == 1
        assert says in result.stderr
        assert "hunter2" not in result.output
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("message", "once", "service"),
    [
        ("Error -3 connecting to cache:6379. Temporary failure in name resolution.", 69, 69),
        ("failed to resolve host 'db': [Errno -3] Temporary failure in name resolution", 69, 69),
        ('could not translate host name "db" to address: Temporary failure in name resolution', 69, 69),
        ('could not translate host name "db" to address: Try again', 69, 69),
        ("Error -2 connecting to cache:6379. Name or service not known.", 2, 69),
        ("failed to resolve host 'db': [Errno -2] Name or service not known", 2, 69),
        ('could not translate host name "db" to address: Name or service not known', 2, 69),
    ],
)
def test_a_resolver_that_is_away_is_an_outage_and_a_service_is_tried_again(
    message: str, once: int, service: int
) -> None:
    """Units of systemd do not restart what ends with 2."""
    assert (outage(message).exit_code, outage(message, is_service=True).exit_code) == (once, service)


@pytest.mark.parametrize(
    ("words", "is_mistake"),
    [
        ('FATAL:  database "shpo" does not exist', True),
        ('FATAL:  role "ada" does not exist', True),
        ('FATAL:  password authentication failed for user "ada"', True),
        ("FATAL:  the database system is starting up", False),
        ("FATAL:  sorry, too many clients already", False),
        ("FATAL:  Passwort-Authentifizierung für Benutzer »ada« fehlgeschlagen", False),  # tried again
    ],
)
def test_a_server_that_refuses_the_address_is_not_tried_again(words: str, is_mistake: bool) -> None:
    error = unreachable(psycopg.OperationalError(f"connection failed: {words}"))
    assert explained(error, is_service=True).exit_code == (2 if is_mistake else 69)


def test_a_dashboard_whose_host_is_unknown_is_tried_again(run: Run) -> None:
    assert run("dashboard", "--host", "0.0.0.0", "--url", UNRESOLVABLE).exit_code == 69


@pytest.fixture(scope="module")
def valkey() -> Iterator[ValkeyServer]:
    """A server with few databases that asks for a password, and knows a user who may do nothing."""
    with ValkeyServer(requirepass="hunter2", databases="4", appendonly="no") as server:
        server.call("ACL", "SETUSER", "guest", "on", ">hunter2", "+auth")
        yield server


@pytest.mark.parametrize(
    ("login", "database", "code", "says"),
    [
        ("", 0, 2, "it asks for a password"),
        (":hunter3@", 0, 2, "it does not know this user and password"),
        ("nobody:hunter2@", 0, 2, "it does not know this user and password"),
        (":hunter2@", 4, 2, "DB index is out of range"),
        ("guest:hunter2@", 0, 5, "this user lacks a right"),
        (":hunter2@", 0, 0, "there are no jobs"),
    ],
)
def test_a_wrong_address_on_a_redis_server_that_is_there_is_a_mistake_in_the_settings(
    run: Run, valkey: ValkeyServer, login: str, database: int, code: int, says: str
) -> None:
    url = f"redis://{login}127.0.0.1:{valkey.port}/{database}"
    result = run("jobs", "list", "--url", url)
    assert (result.exit_code, result.stdout) == (code, ""), result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert says in result.stderr
    assert ("check host, user, password and database of its url" in result.stderr) == (code == 2)
    assert "hunter" not in result.stderr


@pytest.mark.parametrize("options", ["decode_responses=true", "encoding=utf-16", "protocol=3", "client_name=shop"])
def test_options_for_other_readers_of_a_redis_address_change_nothing(
    run: Run, valkey: ValkeyServer, options: str
) -> None:
    result = run("jobs", "list", "--url", f"redis://:hunter2@127.0.0.1:{valkey.port}/0?{options}")
    assert (result.exit_code, "there are no jobs" in result.stderr) == (0, True), result.stderr


@pytest.mark.parametrize("url", [NOWHERE, "memory://", "sqlite:///no/such/directory/jobs.db"])
def test_nothing_is_enqueued_where_it_would_be_lost(run: Run, url: str) -> None:
    result = run("enqueue", "mail.send", "to=7", "--url", url)
    assert result.exit_code in {2, 69}
    assert len(result.stderr.splitlines()) == 1
    assert list(Path.cwd().iterdir()) == []


def test_a_file_that_is_no_database_is_told_and_left_alone(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("dear diary, " * 1000)
    result = run("jobs", "list", "--url", f"sqlite:///{file}")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "not a SQLite database" in result.stderr
    assert file.read_text() == "dear diary, " * 1000


def test_a_broken_settings_file_is_told_with_every_problem(run: Run, tmp_path: Path) -> None:
    (tmp_path / "fairlane.toml").write_text('profil = "production"\nsensitive = "maybe"\n')
    result = run("jobs", "list")
    assert (result.exit_code, result.stdout) == (2, "")
    assert 'Nearest: "profile"' in result.stderr
    assert "refuse, redact, allow" in result.stderr


def test_a_fallback_of_the_application_never_hides_that_the_store_is_away(run: Run) -> None:
    result = run("jobs", "list", env={"FAIRLANE_FALLBACK": "memory", "FAIRLANE_URL": NOWHERE})
    assert (result.exit_code, result.stdout) == (69, "")


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("import nothing_like_that", "nothing_like_that"),
        ("raise RuntimeError('no configuration')", "RuntimeError: no configuration"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("def broken(:", "SyntaxError"),
        ("app = 7", "is a int, not a Fairlane"),
        ("from fairlane import Fairlane\nqueue = Fairlane()", "There is {name}:queue"),
        ("from fairlane import Fairlane\napp = Fairlane(capacity=-1)", "capacity"),
    ],
)
def test_a_module_that_cannot_be_used_is_told_with_its_line(run: Run, tmp_path: Path, module: str, says: str) -> None:
    name = f"module_{abs(hash(module))}"
    (tmp_path / f"{name}.py").write_text(module)
    result = run("jobs", "list", "--app", f"{name}:app")
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    assert says.format(name=name) in result.stderr


def test_a_process_of_its_own_ends_the_same_way(command: Command, scene: Scene) -> None:
    for typed, code in (
        (["jobs", "list", "--url", scene.url], 0),
        (["jobs", "show", NOBODY, "--url", scene.url], 3),
        (["jobs", "cancel", scene.done, "--url", scene.url], 4),
        (["jobs", "lst"], 2),
        (["queues", "--url", NOWHERE], 69),
        (["migrate", "check"], 1),
    ):
        ran = command(*typed)
        assert ran.returncode == code, ran.stderr
        assert "Traceback" not in ran.stderr
        if code not in {0, 1}:
            assert (ran.stdout, len(ran.stderr.splitlines())) == ("", 1)


def test_debugging_shows_the_traceback(command: Command, scene: Scene) -> None:
    ran = command("jobs", "show", NOBODY, "--url", scene.url, FAIRLANE_DEBUG="1")
    assert ran.returncode == 1
    assert "Traceback" in ran.stderr
    assert "JobNotFound" in ran.stderr


def test_somebody_the_system_does_not_know_is_asked_for_a_name(
    run: Run, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    result = run("jobs", "cancel", scene.waiting, "--url", scene.url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--by" in result.stderr
