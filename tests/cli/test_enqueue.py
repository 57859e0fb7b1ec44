"""`fairlane enqueue`: by name alone, and by an application's tasks."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fairlane import Fairlane
from fairlane.testing import run_due
from tests.cli.conftest import Command, Run

SHOP = """
from fairlane import Fairlane
print("the shop is imported")
app = Fairlane("sqlite:///shop.db")

@app.task(name="mail.send", queue="critical", max_attempts=2)
def send(to: int, subject: str = "hello") -> str:
    return f"sent to {to}"
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's in the working directory; a name of its own, for modules are imported once."""
    name = f"shop_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SHOP)
    return f"{name}:app"


@pytest.fixture
def url(made: str) -> str:
    return made


def jobs(url: str) -> list[Any]:
    with Fairlane(url) as app:
        return list(app.jobs.list().jobs)


def test_a_job_is_enqueued_by_name_and_its_id_printed(run: Run, url: str) -> None:
    result = run("enqueue", "mail.send", "to=7", "name=Dana", "--url", url, "--tenant", "acme")
    [job] = jobs(url)
    assert result.stdout == f"{job.id}\n"
    assert 'task "mail.send" is unknown here' in result.stderr
    assert run("enqueue", "mail.send", "--raw", "--url", url).stderr == ""
    assert (job.type, job.tenant, job.status, json.loads(job.payload)) == (
        "mail.send",
        "acme",
        "pending",
        {"to": 7, "name": "Dana"},
    )


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("7", 7),
        ("-1.5", -1.5),
        ("true", True),
        ("null", None),
        ("Dana", "Dana"),
        ('"7"', "7"),
        ("007", "007"),
        ("[1, 2]", [1, 2]),
        ('{"a": 1}', {"a": 1}),
        ("a=b", "a=b"),
        ("", ""),
        ("NaN", "NaN"),
    ],
)
def test_a_value_is_json_where_it_is_json_and_text_elsewhere(run: Run, url: str, typed: str, meant: object) -> None:
    assert run("enqueue", "mail.send", f"value={typed}", "--url", url).exit_code == 0
    assert json.loads(jobs(url)[0].payload) == {"value": meant}


def test_a_payload_comes_as_json_or_from_stdin_exactly_as_written(run: Run, url: str) -> None:
    large = '{"number":123456789012345678901234567890}'
    assert run("enqueue", "a", "--payload", large, "--url", url).exit_code == 0
    assert run("enqueue", "b", "--payload", "-", "--url", url, stdin=large).exit_code == 0
    assert [job.payload for job in jobs(url)] == [large, large]


def test_options_reach_the_job(run: Run, url: str) -> None:
    options = [
        "--queue",
        "bulk",
        "--priority",
        "high",
        "--idempotency-key",
        "k",
        "--dedup-key",
        "d",
        "--correlation-id",
        "c",
    ]
    run("enqueue", "mail.send", "--url", url, *options, "--max-attempts", 9, "--created-by", "shop", "--delay", "1h30m")
    [job] = jobs(url)
    assert (job.queue, job.priority, job.idempotency_key, job.dedup_key) == ("bulk", 0, "k", "d")
    assert (job.correlation_id, job.max_attempts, job.created_by) == ("c", 9, "shop")
    assert job.run_at - job.enqueued_at == timedelta(hours=1, minutes=30)


@pytest.mark.requirement("D24")
def test_a_job_gets_its_key_and_what_is_said_of_it(run: Run, url: str, answer: Callable[..., Any]) -> None:
    key = ("--key", "customer:42", "--url", url)
    first = answer("enqueue", "mail.send", *key, "--ordered")
    assert first["job"]["key"] == "customer:42"
    again = answer("enqueue", "mail.send", *key, "--on-conflict", "discard")
    assert (again["duplicate"], again["id"]) == (True, first["id"])
    assert "key" in run("enqueue", "mail.send", *key, "--on-conflict", "discard").stderr
    refused = run("enqueue", "mail.send", *key, "--on-conflict", "discard", "--on-duplicate", "raise")
    assert (refused.exit_code, "customer:42" in refused.stderr) == (4, True)
    newest = answer("enqueue", "mail.send", *key, "--on-conflict", "replace")
    assert {str(job.id): job.status for job in jobs(url)} == {first["id"]: "cancelled", newest["id"]: "pending"}
    shown = run("jobs", "show", newest["id"], "--url", url).stdout
    assert ["key", "customer:42"] in [line.split() for line in shown.splitlines()]


@pytest.mark.parametrize("when", ["in 5m", "+5m", "5m"])
def test_a_relative_instant_is_a_delay_by_the_clock_of_the_store(run: Run, url: str, when: str) -> None:
    assert run("enqueue", "mail.send", "--at", when, "--url", url).exit_code == 0
    [job] = jobs(url)
    assert job.run_at - job.enqueued_at == timedelta(minutes=5)


def test_an_instant_is_kept(run: Run, url: str) -> None:
    assert run("enqueue", "mail.send", "--at", "2030-01-01T09:00+02:00", "--url", url).exit_code == 0
    assert jobs(url)[0].run_at == datetime.fromisoformat("2030-01-01T07:00Z")


def test_a_taken_key_gives_the_job_that_is_there(run: Run, url: str, answer: Callable[..., Any]) -> None:
    first = answer("enqueue", "mail.send", "--idempotency-key", "k", "--url", url)
    again = answer("enqueue", "mail.send", "--idempotency-key", "k", "--url", url)
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["id"] == again["id"]
    refused = run("enqueue", "mail.send", "--idempotency-key", "k", "--on-duplicate", "raise", "--url", url)
    assert (refused.exit_code, refused.stdout) == (4, "")
    assert first["id"] in refused.stderr
    assert len(jobs(url)) == 1


def test_with_an_application_the_task_decides(run: Run, shop: str) -> None:
    result = run("enqueue", "mail.send", "to=7", "--app", shop)
    assert result.exit_code == 0, result.stderr
    [job] = jobs("sqlite:///shop.db")
    assert (job.queue, job.max_attempts, result.stdout) == ("critical", 2, f"{job.id}\n")


def test_what_the_module_prints_stays_out_of_the_data(command: Command, shop: str) -> None:
    ran = command("enqueue", "mail.send", "to=7", "--json", FAIRLANE_APP=shop)
    assert json.loads(ran.stdout)["job"]["type"] == "mail.send"
    assert "the shop is imported" in ran.stderr


def test_the_settings_file_may_name_the_application(run: Run, shop: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[tool.fairlane]\napp = "{shop}"\n')
    assert run("enqueue", "mail.send", "to=7").exit_code == 0
    assert len(jobs("sqlite:///shop.db")) == 1


def test_an_application_s_rules_hold_for_another_store_too(run: Run, shop: str, url: str) -> None:
    assert run("enqueue", "mail.send", "to=7", "--app", shop, "--url", url).exit_code == 0
    assert [job.queue for job in jobs(url)] == ["critical"]
    assert not Path("shop.db").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mail.send", "to=soon"], "mail.send(to: int, subject: str = 'hello') -> str"),
        (["mail.send"], "missing: to"),
        (["mail.send", "to=7", "colour=red"], "unknown: colour"),
        (["mail.sned", "to=7"], 'Nearest: "mail.send"'),
    ],
)
def test_a_payload_that_does_not_fit_the_task_is_refused(run: Run, shop: str, arguments: list[str], says: str) -> None:
    result = run("enqueue", *arguments, "--app", shop)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert not Path("shop.db").exists()


def test_raw_goes_past_the_application(run: Run, shop: str) -> None:
    assert run("enqueue", "of.another.service", "x=1", "--app", shop, "--raw").exit_code == 0
    assert [job.type for job in jobs("sqlite:///shop.db")] == ["of.another.service"]


def test_wait_prints_the_result_of_a_job_that_has_ended(run: Run, url: str) -> None:
    with Fairlane(url) as app:

        @app.task(name="mail.send")
        def send(to: int) -> dict[str, int]:
            return {"sent": to}

        send.using(idempotency_key="k").enqueue(to=7)
        run_due(app)
    result = run("enqueue", "mail.send", "to=7", "--idempotency-key", "k", "--wait", "--url", url)
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"sent": 7})


def test_wait_ends_with_1_when_nobody_runs_it_in_time(run: Run, url: str) -> None:
    result = run("enqueue", "mail.send", "--wait-for", "10ms", "--url", url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "still pending" in result.stderr
    assert len(jobs(url)) == 1


def test_strict_settings_hold_without_an_application_too(run: Run, url: str) -> None:
    result = run("enqueue", "mail.send", "--url", url, env={"FAIRLANE_STRICT_PAYLOAD": "true"})
    assert result.exit_code == 2
    assert "tenant_id" in result.stderr
    assert jobs(url) == []


@pytest.mark.parametrize(
    "typed", ["enqueue mail.send to=7", "enqueue mail.send --raw", "schedules add digest mail.digest --cron @daily"]
)
@pytest.mark.parametrize("where", [(), ("--url", "sqlite:///other.db")], ids=["no address", "a slip in the address"])
def test_without_an_application_no_file_is_made(run: Run, tmp_path: Path, typed: str, where: tuple[str, ...]) -> None:
    result = run(*typed.split(), *where)
    assert (result.exit_code, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert f"there is no file {tmp_path}/{'other' if where else 'fairlane'}.db" in line
    assert "--app module:app" in line
    assert list(tmp_path.iterdir()) == []
    with Fairlane(where[1] if where else None) as app:
        app.snapshot()
    assert run(*typed.split(), *where).exit_code == 0


def test_an_application_s_file_is_made_by_its_first_job(run: Run, shop: str, tmp_path: Path) -> None:
    (tmp_path / "fairlane.toml").write_text(f'app = "{shop}"')
    assert run("enqueue", "mail.send", "to=7").exit_code == 0
    assert len(jobs("sqlite:///shop.db")) == 1
