"""`fairlane dashboard` and `fairlane tokens`: served on this machine, refused elsewhere until somebody can log in."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Command, Run

APPLICATION = """
from fairlane import Fairlane

app = Fairlane("sqlite:///jobs.db")

@app.task(name="mail.send")
def send(user_id: int) -> None: ...
"""


@contextmanager
def serving(directory: Path, *args: str, rest: list[str] | None = None) -> Iterator[tuple[str, str]]:
    """The command as a process of its own: its address and all it said before it began to serve; `rest` gets what it said after."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "fairlane", "dashboard", "--port", "0", *args],
        cwd=directory,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = process.stderr.readline() + process.stderr.readline()
        yield re.findall(r"http://[\d.:]+", said)[0], said
    finally:
        process.send_signal(signal.SIGINT)
        _, said_after = process.communicate(timeout=30)
        assert "Traceback" not in said_after
        if rest is not None:
            rest.append(said_after)


def test_the_printed_link_logs_in_once_and_leads_to_the_jobs(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APPLICATION)
    with serving(tmp_path, "shop:app", "--by", "olga") as (address, said), httpx.Client(base_url=address) as http:
        assert http.get("/healthz").json() == {"status": "ok"}
        assert http.get("/api/jobs/").status_code == 401
        link = re.findall(r"/login\?link=\S+", said)[0]
        me = http.post(link, headers={"Accept": "application/json"}).json()
        assert (me["name"], me["roles"]) == ("olga", ["viewer", "operator", "staff", "manager", "admin", "metrics"])
        own = {"Origin": address}
        made = http.post("/api/jobs/", json={"type": "mail.send", "payload": {"user_id": 7}}, headers=own)
        assert made.status_code == 201
        assert http.get(f"/api/jobs/{made.json()['id']}/").json()["job"]["created_by"] == "olga"
        assert http.post(link).status_code == 401


def test_a_watcher_does_not_hold_up_the_end(run: Run, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    token = run("tokens", "create", "screen", "--role", "viewer", "--url", url).stdout.strip()
    watching = {"Authorization": f"Bearer {token}"}
    rest: list[str] = []
    with httpx.Client(headers=watching) as http, ExitStack() as open_at_the_end:
        with serving(tmp_path, "--url", url, rest=rest) as (address, _):
            stream = open_at_the_end.enter_context(http.stream("GET", f"{address}/api/jobs/events/stream/"))
            lines = stream.iter_lines()
            assert next(lines).startswith(":")
        list(lines)  # raises where the stream did not end in order
    assert "Cancel" not in rest[0], "nothing had to be cut off"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "jobs.example"])
def test_nobody_could_log_in_so_it_does_not_listen_elsewhere(command: Command, url: str, host: str) -> None:
    done = command("dashboard", "--url", url, "--host", host, "--port", "0")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "fairlane tokens create" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_one_clear_line(command: Command, url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = command("dashboard", "--url", url, "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert "choose another --port" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_token_is_made_listed_and_revoked(run: Run, answer: Callable[..., Any], url: str) -> None:
    made = answer("tokens", "create", "ci", "--role", "viewer", "--role", "operator", "--ttl", "90d", "--url", url)
    assert re.fullmatch(r"fl_[A-Za-z0-9_-]{43}", made["token"])
    [listed] = answer("tokens", "list", "--url", url)["credentials"]
    assert (listed["name"], listed["roles"]) == ("ci", ["viewer", "operator"])
    assert made["token"] not in run("tokens", "list", "--url", url).stdout
    assert run("tokens", "revoke", listed["id"], "--url", url).exit_code == 0
    assert answer("tokens", "list", "--url", url)["credentials"] == []
    assert len(answer("tokens", "list", "--all", "--url", url)["credentials"]) == 1
    records = answer("audit", "list", "--url", url)["records"]
    assert [(record["action"], record["by"]) for record in records] == [
        ("token_revoke", "olga"),
        ("token_create", "olga"),
    ]
    assert made["token"] not in str(records)


def test_a_link_is_good_for_a_day_at_most(run: Run, url: str) -> None:
    made = run("tokens", "link", "ada", "--role", "viewer", "--url", url)
    assert made.stdout.startswith("/login?link=fl_")
    late = run("tokens", "link", "ada", "--role", "viewer", "--ttl", "2d", "--url", url)
    assert late.exit_code == 2


def test_mistakes_are_told_in_one_line(run: Run, url: str) -> None:
    assert run("tokens", "create", "x", "--role", "root", "--url", url).exit_code == 2
    assert run("tokens", "create", "", "--role", "viewer", "--url", url).exit_code == 2
    run("tokens", "create", "x", "--role", "viewer", "--url", url)
    unknown = run("tokens", "revoke", "00000000-0000-7000-8000-000000000000", "--url", url)
    assert unknown.exit_code == 3


def test_tokens_are_listed_page_by_page(url: str, run: Run, answer: Callable[..., Any]) -> None:
    for name in ("a", "b", "c"):
        run("tokens", "create", name, "--role", "viewer", "--url", url)
    first = answer("tokens", "list", "--limit", "2", "--url", url)
    assert [each["name"] for each in first["credentials"]] == ["c", "b"]
    assert f"continue with --before {first['next']}" in run("tokens", "list", "--limit", "2", "--url", url).stderr
    rest = answer("tokens", "list", "--before", first["next"], "--url", url)
    assert ([each["name"] for each in rest["credentials"]], rest["next"]) == (["a"], None)
    assert [each["name"] for each in answer("tokens", "list", "--name", "b", "--url", url)["credentials"]] == ["b"]
    wrong = run("tokens", "list", "--before", "7", "--url", url)
    assert wrong.exit_code == 2
    assert "the `next` of the page before" in wrong.stderr


def test_behind_a_named_proxy_each_client_is_its_own_and_behind_another_all_are_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    token = run("tokens", "create", "ci", "--role", "viewer", "--url", url).stdout.strip()

    def statuses(address: str, client: str, secret: str, count: int) -> list[int]:
        headers = {"Authorization": f"Bearer {secret}", "X-Forwarded-For": client}
        with httpx.Client(base_url=address, headers=headers) as http:
            return [http.get("/api/jobs/me/").status_code for _ in range(count)]

    for networks, of_another in (("127.0.0.0/8", 401), ("10.0.0.0/8", 429)):
        monkeypatch.setenv("FORWARDED_ALLOW_IPS", networks)
        with serving(tmp_path, "--url", url) as (address, _):
            guesses = statuses(address, "198.51.100.7", "fl_" + "x" * 43, 24)
            assert (guesses[:20], guesses[-1]) == ([401] * 20, 429)
            assert statuses(address, "203.0.113.9", "fl_" + "y" * 43, 1) == [of_another]
            assert statuses(address, "203.0.113.9, 198.51.100.7", "fl_" + "y" * 43, 1) == [429], "a forged first hop"
            assert statuses(address, "198.51.100.7", token, 3) == [200] * 3
