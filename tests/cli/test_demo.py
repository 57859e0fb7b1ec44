"""`fairlane demo`: true numbers, and an end of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlane import Fairlane, FakeClock
from fairlane.cli.demo.running import run_demo
from fairlane.cli.demo.story import FLOOD, TENANTS
from fairlane.cli.demo.summary import Summary
from fairlane.cli.printing import Printer
from fairlane.core.job import STATUSES
from tests.cli.conftest import Command, Run


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return place


class MovingPause:
    """Waiting moves the clock: the whole story takes no time."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def sleep(self, seconds: float) -> None:
        self._clock.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)


@pytest.fixture
def play() -> Callable[..., Summary]:
    def run(*, seconds: float = 60.0, keep: bool = False, as_json: bool = True) -> Summary:
        clock = FakeClock()
        out = Printer(as_json=as_json)
        return run_demo(out, seconds=seconds, keep=keep, clock=clock, pause=MovingPause(clock))

    return run


def assert_adds_up(summary: Summary) -> None:
    for numbers in summary.tenants:
        assert numbers.enqueued == sum(getattr(numbers, status) for status in STATUSES)
        assert numbers.processing == 0
    assert sum(summary.dead_letters.values()) == sum(numbers.dead for numbers in summary.tenants)


def test_the_whole_story_shows_every_way_a_job_can_end(play: Callable[..., Summary]) -> None:
    summary = play()
    assert_adds_up(summary)
    acme, globex, initech = summary.tenants
    assert (acme.enqueued, acme.completed, acme.dead) == (FLOOD + 1, FLOOD, 1)
    assert (globex.enqueued, globex.completed, globex.dead, globex.cancelled) == (7, 5, 1, 1)
    # The duplicate made no job; three syncs failed once and one import slept once before they went well.
    assert (initech.enqueued, initech.completed, initech.attempts) == (5, 5, 9)
    assert acme.attempts == FLOOD + 3
    assert summary.acts == 1


def test_the_flood_of_one_tenant_does_not_hold_up_the_others(play: Callable[..., Summary]) -> None:
    acme, globex, initech = play().tenants
    assert acme.mean_wait_s is not None
    for small in (globex, initech):
        assert small.mean_wait_s is not None
        assert small.mean_wait_s < acme.mean_wait_s / 2


@pytest.mark.parametrize("seconds", [0.1, 0.7, 1.9, 2.5, 4.0])
def test_the_numbers_add_up_whenever_it_ends(play: Callable[..., Summary], seconds: float) -> None:
    summary = play(seconds=seconds)
    assert_adds_up(summary)
    assert summary.ran_s == pytest.approx(seconds, abs=0.2)


def test_the_summary_says_what_the_store_says(play: Callable[..., Summary], capsys: pytest.CaptureFixture[str]) -> None:
    summary = play(keep=True, as_json=False)
    said = capsys.readouterr().out
    assert summary.url is not None
    with Fairlane(summary.url) as app:
        for numbers in summary.tenants:
            stats = app.stats(tenant=numbers.tenant)
            unfinished = sum(queue.ready + queue.scheduled for queue in stats.queues)
            assert (numbers.completed, numbers.dead, numbers.cancelled) == (
                stats.completed,
                stats.dead,
                stats.cancelled,
            )
            assert numbers.pending + numbers.failed == unfinished
            row = next(line for line in said.splitlines() if line.startswith(f"{numbers.tenant} ")).split()
            assert row[1] == str(numbers.enqueued)
        total = sum(numbers.enqueued for numbers in summary.tenants)
        assert len(app.jobs(limit=200).jobs) == total
    assert f"{total} jobs in" in said
    assert f"fairlane dlq list --url {summary.url}" in said


def test_the_commands_it_names_work(run: Run, play: Callable[..., Summary], capsys: pytest.CaptureFixture[str]) -> None:
    play(keep=True, as_json=False)
    named = [line.split()[1:] for line in capsys.readouterr().out.splitlines() if line.startswith("  fairlane ")]
    assert named
    for words in named:
        result = run(*words)
        assert result.exit_code == 0
        assert result.stdout


def test_nothing_is_left_behind_unless_asked(play: Callable[..., Summary], temporary: Path) -> None:
    assert play(seconds=0.5).url is None
    assert list(temporary.iterdir()) == []
    assert play(seconds=0.5, keep=True).url is not None
    assert len(list(temporary.iterdir())) == 1


def test_settings_around_it_do_not_change_it(run: Run, temporary: Path) -> None:
    env = {"FAIRLANE_URL": "postgresql://nobody@127.0.0.1:1/x", "FAIRLANE_STRICT_PAYLOAD": "true"}
    result = run("demo", "--seconds", "0.3", "--json", env=env)
    assert result.exit_code == 0, result.stderr
    assert [numbers["tenant"] for numbers in json.loads(result.stdout)["tenants"]] == list(TENANTS)


def test_away_from_a_terminal_it_prints_plain_lines_and_ends_by_itself(command: Command) -> None:
    ran = command("demo", "--seconds", "1")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\x1b" not in ran.stdout
    assert "acme     enqueued   40 × mail.send" in ran.stdout
    assert "behind that flood" in ran.stdout


def test_an_interrupt_ends_it_in_order_with_its_summary(temporary: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "fairlane", "demo", "--seconds", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    assert process.stdout is not None
    assert any("completed" in line for line in iter(process.stdout.readline, ""))
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "interrupted: giving back what runs\n")
    assert "MEAN WAIT" in said
    assert list(temporary.iterdir()) == []
