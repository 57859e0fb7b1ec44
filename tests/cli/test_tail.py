"""`fairlane tail`: events as they happen, in lines or as JSON, through outages, until Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairlane import Fairlane, NonRetryable
from fairlane.core.ops import EVENT_KINDS
from tests.cli.conftest import Run, Scene
from tests.faults.eventually import eventually
from tests.support.terminal import Terminal


@contextmanager
def working(url: str) -> Iterator[Callable[[int], None]]:
    """A worker, and what enqueues jobs of two queues for it: mails of acme, and a charge of globex that dies."""
    with Fairlane(url) as app:

        @app.task(name="mail.send", queue="mail")
        def send(to: int) -> None: ...

        @app.task(name="billing.charge")
        def charge(invoice: int) -> None:
            raise NonRetryable("card expired")

        def enqueue(mails: int) -> None:
            app.enqueue_many([send.using(tenant="acme").bind(to=number) for number in range(mails)])
            charge.using(tenant="globex").enqueue(invoice=1)

        with app.running():
            yield enqueue


def work(url: str) -> None:
    with working(url) as enqueue, Fairlane(url) as app:
        dead = app.statistics.counts().dead
        enqueue(3)
        eventually(lambda: app.statistics.counts().dead > dead)


def test_it_follows_until_ctrl_c_and_ends_cleanly(scene: Scene, tmp_path: Path) -> None:
    with Terminal("fairlane", "tail", "--url", scene.url, cwd=tmp_path) as terminal:
        with working(scene.url) as enqueue:
            terminal.wrote("worker started")
            enqueue(3)
            assert "globex" in terminal.wrote("NonRetryable")
            until(terminal, lambda: enqueue(3), "completed")  # Workers learn within a second that somebody watches.
        terminal.press("\x03")
        assert terminal.ended() == 0
        assert "Traceback" not in terminal.text
        assert "interrupted" not in terminal.text


def test_filters_and_json_lines(run: Run, scene: Scene) -> None:
    work(scene.url)
    every = [
        json.loads(line)
        for line in run("tail", "--no-follow", "-n", 1000, "--json", "--url", scene.url).stdout.splitlines()
    ]
    assert {"worker_started", "worker_stopped", "job_dead"} <= {event["kind"] for event in every}
    assert [event["id"] for event in every] == sorted(event["id"] for event in every)

    def kinds(*args: str) -> list[tuple[str, str | None]]:
        said = run("tail", "--no-follow", "-n", 1000, "--json", *args, "--url", scene.url).stdout
        return [(event["kind"], event["tenant"]) for event in map(json.loads, said.splitlines())]

    assert set(kinds("--tenant", "globex")) == {("job_dead", "globex")}
    assert set(kinds("--kind", "dead")) == set(kinds("--kind", "job_dead")) == {("job_dead", "globex")}
    assert set(kinds("--type", "billing.charge")) == set(kinds("--queue", "default")) == {("job_dead", "globex")}
    assert kinds("--queue", "mail", "--kind", "dead") == []
    assert "NonRetryable" in run("tail", "--no-follow", "-n", 1000, "--kind", "dead", "--url", scene.url).stdout


@pytest.mark.parametrize(
    ("kind", "close"), [("nonsense", ""), ("job_faild", "job_failed"), ("opened", "breaker_opened")]
)
def test_a_kind_that_no_event_has_is_refused(run: Run, scene: Scene, kind: str, close: str) -> None:
    result = run("tail", "--kind", kind, "--no-follow", "--url", scene.url)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{kind!r}: expected one of job_completed, job_failed, " in result.stderr
    assert ("Nearest" in result.stderr) is bool(close)
    assert f'Nearest: "{close}"' in result.stderr or not close


def test_the_known_kinds_are_those_of_the_guide_and_of_the_code() -> None:
    root = Path(__file__).parents[2]
    guide = (root / "docs/guides/http-api.md").read_text().partition("| kinds | about |")[2].partition("\n\n")[0]
    assert re.findall(r"`([a-z_]+)`", guide) == list(EVENT_KINDS)
    source = "".join(file.read_text() for file in (root / "src").rglob("*.py"))
    written = re.findall(r'(?:EventDraft\(\s*kind=|events\.add\(|self\.add\()"(\w+)"', source)
    assert set(written) <= set(EVENT_KINDS)
    assert {"worker_started", "breaker_closed", "spooled_job_duplicate"} <= set(written)


def test_jobs_without_an_event_of_their_own_are_counted(scene: Scene, tmp_path: Path) -> None:
    with Terminal("fairlane", "tail", "--type", "mail.send", "--url", scene.url, cwd=tmp_path) as terminal:
        with working(scene.url) as enqueue:
            until(terminal, lambda: enqueue(400), "more jobs")
        assert "mail.send: " in terminal.text
        assert "billing.charge" not in terminal.text


def until(terminal: Terminal, act: Callable[[], None], part: str) -> None:
    """Act every second, until the part is written."""

    def is_written() -> bool:
        act()
        return terminal.reads_within(1.0, part)

    eventually(is_written)


def test_it_continues_where_it_was_after_an_outage(scene: Scene, tmp_path: Path) -> None:
    file, away = tmp_path / "jobs.db", tmp_path / "away.db"
    work(scene.url)
    with Terminal("fairlane", "tail", "--kind", "dead", "--url", scene.url, cwd=tmp_path) as terminal:
        terminal.wrote("NonRetryable")
        file.rename(away)
        file.mkdir()
        terminal.wrote("waiting for it to return")
        file.rmdir()
        away.rename(file)
        terminal.wrote("the store has returned")
        seen = terminal.text.count("NonRetryable")
        work(scene.url)
        eventually(lambda: terminal.reads_within(0.2, "NonRetryable", times=seen + 1))
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 0


@pytest.mark.parametrize("url", ["postgresql://someone@127.0.0.1:1/nothing", "sqlite:///missing.db"])
def test_a_store_that_is_away_from_the_start_ends_it(run: Run, url: str) -> None:
    result = run("tail", "--url", url)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (69, "", 1)
