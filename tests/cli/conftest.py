"""A store with jobs in every state, and two ways to call the command: in this process, or as one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fairlane import Fairlane, NonRetryable, Retry
from fairlane.cli.main import cli
from fairlane.testing import run_due
from tests.support.commands import COMMANDS, can_be_forked

Run = Callable[..., Result]
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting, terminal or login of the machine that runs the tests reaches them."""
    monkeypatch.chdir(tmp_path)
    for variable in list(os.environ):
        if variable.startswith(("FAIRLANE_", "REDIS_", "USE_REDIS", "NO_COLOR", "FORCE_COLOR", "TTY_")):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("LOGNAME", "olga")
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def made(url: str) -> str:
    """The same address, of a store that is there: an enqueue without an application makes no file."""
    with Fairlane(url) as app:
        app.snapshot()
    return url


@pytest.fixture
def run() -> Run:
    """The command in this process."""

    def call(*args: object, stdin: str | bytes | None = None, env: dict[str, str] | None = None) -> Result:
        return CliRunner().invoke(cli, [str(arg) for arg in args], input=stdin, env=env, catch_exceptions=False)

    return call


@pytest.fixture
def answer(run: Run) -> Callable[..., Any]:
    """The JSON a command prints; it must have succeeded."""

    def call(*args: object) -> Any:
        result = run(*args, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    return call


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """The command as a process of its own, the way a shell starts it."""

    def call(*args: object, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        words, environment = [str(arg) for arg in args], {**os.environ, **env}
        if can_be_forked(words, environment):
            return COMMANDS.run(words, cwd=tmp_path, env=environment, stdin=stdin, strict=True)
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", "fairlane", *words],
            cwd=tmp_path,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


@pytest.fixture
def scene(url: str) -> Scene:
    return Scene(url)


class Scene:
    """One job in each state: a completed, a dead, a waiting and a failed one, of two tenants."""

    def __init__(self, url: str) -> None:
        self.url = url
        with Fairlane(url) as app:

            @app.task(name="mail.send")
            def send(to: int) -> str:
                return f"sent to {to}"

            @app.task(name="billing.charge")
            def charge(invoice: int) -> None:
                raise NonRetryable(f"invoice {invoice}: card expired")

            @app.task(name="crm.sync", retry=Retry(max_attempts=3, delays=(3600.0,)))
            def sync(account: int) -> None:
                raise ConnectionError("the CRM did not answer")

            self.done = str(send.using(tenant="acme", idempotency_key="welcome-7").enqueue(to=7).id)
            self.dead = str(charge.using(tenant="acme", correlation_id="order 9").enqueue(invoice=42).id)
            self.failed = str(sync.using(tenant="globex").enqueue(account=1).id)
            run_due(app)
            self.waiting = str(send.using(tenant="globex", created_by="shop").enqueue(to=8).id)
            [letter] = app.dead_letters.list().dead_letters
            self.letter = int(letter.id)

    def everything(self) -> Any:
        """All that is kept, to see that nothing changed."""
        with Fairlane(self.url) as app:
            return app.jobs.list(limit=200), app.dead_letters.list(), app.audit.list()
