"""`fairlane config`: each setting and where it came from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane.cli.commands import worker
from fairlane.client.settings.model import NAMES
from tests.cli.conftest import Command, Run

Answer = Callable[..., Any]


@pytest.mark.requirement("Q16")
def test_each_setting_says_where_it_came_from(answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fairlane.toml").write_text('profile = "development"\ncapacity = 10\nsensitive = "redact"\n')
    monkeypatch.setenv("FAIRLANE_CAPACITY", "20")
    shown = answer("config", "--url", "sqlite:///x.db")["settings"]
    assert [setting["name"] for setting in shown] == list(NAMES)
    found = {setting["name"]: (setting["value"], setting["source"]) for setting in shown}
    assert found["profile"] == ("development", "fairlane.toml")
    assert found["capacity"] == (20, "environment FAIRLANE_CAPACITY")
    assert found["url"] == ("sqlite:///x.db", "option --url")
    assert found["schema"] == ("fairlane", "default")


def test_a_password_is_never_shown(run: Run) -> None:
    for words in (["config"], ["config", "--changed"], ["config", "--json"]):
        result = run(*words, env={"FAIRLANE_URL": "postgresql://app:hunter2@db/app?sslpassword=hunter2"})
        assert result.exit_code == 0
        assert "postgresql://app:***@db/app" in result.stdout
        assert "hunter2" not in result.output


def test_changed_leaves_the_defaults_out(run: Run) -> None:
    result = run("config", "--changed")
    assert (result.stdout, result.stderr) == ("", "every setting has its default\n")
    result = run("config", "--changed", env={"FAIRLANE_PROFILE": "development"})
    assert result.stdout.splitlines()[1].split() == ["profile", "development", "environment", "FAIRLANE_PROFILE"]


def test_an_application_shows_the_settings_it_was_made_with(command: Command, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from fairlane import Fairlane\napp = Fairlane('sqlite:///shop.db', capacity=7)\n"
    )
    said = command("config", "--changed", FAIRLANE_APP="shop").stdout
    assert "sqlite:///shop.db" in said
    assert "argument" in said


def figures_of(said: str) -> dict[str, str]:
    return {line.split()[0]: " ".join(line.split()[1:]) for line in said.splitlines() if line.split()}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "cores", lambda: 2)


@pytest.mark.requirement("D22", "L11")
def test_the_slots_of_a_worker_are_those_of_its_variables_and_divided_over_its_processes(run: Run) -> None:
    given = {"WORKER_FAST_THREADS": "4", "WORKER_GENERAL_THREADS": "2/process", "FAIRLANE_WORKER_PROCESSES": "3"}
    rows = figures_of(run("config", env={**given, "COLUMNS": "200"}).stdout)
    source = "profile production, environment: --processes --fast-slots --general-slots"
    for name, figure in {
        "processes": "3",
        "lanes.fast.slots": "4",
        "lanes.fast.by_process": "2, 1, 1",
        "lanes.general.slots": "2/process",
        "lanes.general.by_process": "2, 2, 2",
    }.items():
        assert rows[f"worker.{name}"] == f"{figure} {source}"
    wrong = run("config", env={"WORKER_FAST_THREADS": "many"})
    assert wrong.exit_code == 2
    assert "slots = 'many': expected a number from 1 to 10,000" in wrong.output


@pytest.mark.requirement("D17")
def test_the_profile_is_shown_with_each_figure_in_full(run: Run, answer: Answer) -> None:
    for profile, expected in (
        (
            "isolation",
            {
                "queues.bulk.retry.delays": "300, 900",
                "queues.default.retry.delays": "60, 300, 900",
                "queues.default.max_per_tenant": "500",
                "queues.bulk.rate_per_minute": "50",
                "queues.critical.timeout_s": "60",
                "worker.processes": "2",
                "worker.lanes.default.slots": "8",
                "worker.lanes.default.by_process": "4, 4",
                "worker.lanes.bulk.by_process": "1, 1",
                "worker.poll_s": "5",
            },
        ),
        (
            "development",
            {
                "retry.max_attempts": "5",
                "retry.cap_s": "60",
                "breaker.threshold": "3",
                "slow_timeout_s": "1200",
                "worker.lanes.fast.queues": "critical",
                "worker.lanes.fast.slots": "1",
                "worker.lanes.fast.by_process": "1, 0",
                "worker.lanes.general.by_process": "1, 1",
                "worker.batch": "5",
            },
        ),
    ):
        rows = figures_of(run("config", env={"FAIRLANE_PROFILE": profile, "COLUMNS": "200"}).stdout)
        for name, figure in expected.items():
            assert rows[name] == f"{figure} profile {profile}"
    assert set(answer("config")["worker"]) == {"processes", "lanes", "batch", "poll_s"}
    changed = run("config", "--changed", env={"FAIRLANE_RETRY": '{"cap_s": 9}'}).stdout
    assert [" ".join(line.split()) for line in changed.splitlines() if "cap_s" in line] == [
        "retry.cap_s 9 environment FAIRLANE_RETRY"
    ]
    assert "poll_s" not in changed
