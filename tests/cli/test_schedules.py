"""`fairlane schedules`: told in words, changed by name, with one line for what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane import Fairlane
from tests.cli.conftest import Run

APP = """
from fairlane import Fairlane

app = Fairlane()

@app.task(name="mail.digest", queue="bulk")
def digest(user_id: int, full: bool = False) -> int:
    return user_id
"""


@pytest.fixture
def url(made: str) -> str:
    return made


@pytest.fixture
def added(run: Run, url: str) -> str:
    """A schedule added by name alone."""
    result = run(
        "schedules",
        "add",
        "digest",
        "mail.digest",
        "user_id=7",
        "--cron",
        "0 9 * * MON-FRI",
        "--tz",
        "Europe/Prague",
        "--url",
        url,
    )
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("digest  At 09:00 on Monday through Friday (Europe/Prague)  active, next ")
    return "digest"


@pytest.mark.requirement("L12")
def test_an_interval_is_added_with_its_bounds_and_shown_in_words(run: Run, url: str) -> None:
    bounds = ("--starts-at", "2030-01-01T09:00Z", "--ends-at", "2030-01-01T09:00:30Z", "--jitter", "5s")
    result = run("schedules", "add", "poll", "mail.digest", "user_id=7", "--every", "10s", *bounds, "--url", url)
    assert result.exit_code == 0, result.stderr
    words = "every 10 s, from 2030-01-01 09:00:00 UTC, until 2030-01-01 09:00:30 UTC, up to 5 s later"
    assert result.stdout == f"poll  {words}  active, next 2030-01-01T09:00:00Z\n"
    shown = run("schedules", "show", "poll", "--url", url).stdout
    for second in (0, 10, 20, 30):
        assert f"2030-01-01T09:00:{second:02}Z" in shown
    over = run(
        "schedules", "add", "poll", "mail.digest", "user_id=7", "--every", "10s", "--ends-at", "-1d", "--url", url
    )
    assert " ended" in over.stdout
    assert " ended " in run("schedules", "list", "--url", url).stdout
    for wrong in (("--every", "10s", "--cron", "@daily"), (), ("--every", "often"), ("--every", "1ms")):
        assert run("schedules", "add", "poll", "mail.digest", "user_id=7", *wrong, "--url", url).exit_code != 0
    explained = run("schedules", "explain", "@every 90m", "--next", 2).stdout
    assert explained.startswith("every 90 min\n")


@pytest.mark.requirement("L12")
def test_a_schedule_is_listed_and_shown_in_words_with_its_next_times(
    run: Run, answer: Callable[..., Any], url: str, added: str
) -> None:
    listed = run("schedules", "list", "--url", url).stdout
    assert "At 09:00 on Monday through Friday (Europe/Prague)" in listed
    assert "active" in listed
    shown = run("schedules", "show", added, "--next", 3, "--url", url).stdout
    assert shown.count("09:00 in Europe/Prague") == 3
    document = answer("schedules", "show", added, "--next", 2, "--url", url)
    assert document["words"] == "At 09:00 on Monday through Friday (Europe/Prague)"
    assert len(document["next_runs"]) == 2
    assert document["schedule"]["spec"]["payload"] == '{"user_id":7}'


@pytest.mark.requirement("L12")
def test_a_schedule_is_paused_resumed_run_and_removed_and_it_is_written_down(run: Run, url: str, added: str) -> None:
    assert "paused" in run("schedules", "pause", added, "--notes", "moving", "--url", url).stdout
    assert "active, next" in run("schedules", "resume", added, "--url", url).stdout
    job = run("schedules", "run", added, "--url", url).stdout.strip()
    assert "removed" in run("schedules", "remove", added, "--url", url).stdout
    with Fairlane(url) as app:
        found = app.jobs.get(job)
        assert found is not None
        assert (found.type, found.payload) == ("mail.digest", '{"user_id":7}')
        assert [(record.action, record.by) for record in reversed(app.audit.list().records)] == [
            ("schedule_add", "olga"),
            ("schedule_pause", "olga"),
            ("schedule_resume", "olga"),
            ("schedule_run", "olga"),
            ("schedule_remove", "olga"),
        ]


def test_with_an_application_the_call_is_checked_against_the_task(run: Run, url: str, tmp_path: Path) -> None:
    (tmp_path / "shop_of_schedules.py").write_text(APP)
    options = (
        "--cron",
        "@daily",
        "--url",
        url,
        "--app",
        "shop_of_schedules:app",
        "--priority",
        "high",
        "--tenant",
        "acme",
    )
    refused = run("schedules", "add", "digest", "mail.digest", "user_id=x", *options)
    assert refused.exit_code == 2
    assert "user_id" in refused.stderr
    result = run("schedules", "add", "digest", "mail.digest", "user_id=7", *options, "--json")
    assert result.exit_code == 0, result.stderr
    spec = json.loads(result.stdout)["schedule"]["spec"]
    assert (spec["queue"], spec["priority"], spec["tenant"]) == ("bulk", 0, "acme")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--cron", "61 * * * *"), "cron = '61 * * * *': expected five fields"),
        (("--cron", "0 0 30 2 *"), "cron = '0 0 30 2 *'"),
        (("--cron", "@daily", "--tz", "Europe/Prag"), 'Nearest: "Europe/Prague"'),
        (("--cron", "@daily", "--overlap", "never"), "overlap = 'never': expected one of allow, skip, queue"),
        (("--cron", "@daily", "--catch-up-limit", "0"), "catch_up_limit = 0"),
    ],
)
def test_what_cannot_be_scheduled_is_told_in_one_line_and_nothing_is_added(
    run: Run, url: str, args: tuple[str, ...], says: str
) -> None:
    result = run("schedules", "add", "digest", "mail.digest", "--url", url, *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    with Fairlane(url) as app:
        assert app.schedules.list() == ()


@pytest.mark.parametrize("verb", ["show", "pause", "resume", "run", "remove"])
def test_a_name_nobody_knows_ends_with_3(run: Run, url: str, added: str, verb: str) -> None:
    result = run("schedules", verb, "digset", "--url", url)
    assert result.exit_code == 3
    assert 'no schedule "digset" here' in result.stderr


def test_a_line_is_explained_without_any_store(run: Run) -> None:
    result = run("schedules", "explain", "*/15 9-17 * * MON-FRI", "--next", 2)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "Every 15th minute from 09:00 through 17:59 on Monday through Friday (UTC)"
    assert len(result.stdout.splitlines()) == 3
