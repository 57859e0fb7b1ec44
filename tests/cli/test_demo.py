"""`fairlane demo`: a real foreman, true numbers, and an end of its own that leaves nothing behind."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from fairlane import Fairlane
from fairlane.cli.demo.crew import Crew, Interrupts
from fairlane.cli.demo.story import ACCOUNTS, CODES, FLOOD, TENANTS
from fairlane.cli.output import Failed
from fairlane.client.steps import SystemSleeper
from fairlane.core.job import STATUSES
from tests.cli.conftest import Run
from tests.faults.eventually import eventually


class Told(NamedTuple):
    code: int
    said: str
    notes: str
    place: Path
    """Where its temporary directory was."""


def start(place: Path, *flags: str, **env: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FAIRLANE_")}
    return subprocess.Popen(
        [sys.executable, "-u", "-W", "error", "-m", "fairlane", "demo", *flags],
        cwd=place,
        env={**kept, "TMPDIR": str(place), **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], place: Path) -> Told:
    said, notes = process.communicate(timeout=60)
    return Told(process.returncode, said, notes, place)


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return list(psutil.Process(process.pid).children(recursive=True))


def at_work(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The foreman and its two workers, once there are jobs."""
    assert process.stdout is not None
    assert any(" enqueued " in line for line in iter(process.stdout.readline, ""))
    crew = descendants(process)
    assert len(crew) == 3
    return crew


def all_gone(crew: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in crew)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a demonstration makes its directory."""
    found = tmp_path / "temporary"
    found.mkdir()
    return found


@pytest.fixture(scope="module", autouse=True)
def playing() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """The whole story, begun while the tests of shorter ones run."""
    place = Path(tempfile.mkdtemp())
    process = start(place, "--keep", "--seconds", "60")
    yield process, place
    if process.poll() is None:
        process.terminate()
        process.communicate(timeout=60)
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def whole(playing: tuple[subprocess.Popen[str], Path]) -> Told:
    """The whole story, told in lines and kept."""
    return ended(*playing)


def kept_in(told: Told) -> Path:
    [directory] = told.place.iterdir()
    return directory


def rows(told: Told) -> dict[str, list[str]]:
    """The summary's table: by tenant, its cells."""
    table = told.said[told.said.index("TENANT ") :].splitlines()[1:5]
    return {cells[0]: cells[1:] for cells in (line.split() for line in table)}


@pytest.fixture
def store(whole: Told) -> Iterator[Fairlane]:
    with Fairlane(f"sqlite:///{kept_in(whole)}/demo.db") as app:
        yield app


def test_ended_early_under_odd_settings_its_numbers_still_add_up_and_nothing_is_left(place: Path) -> None:
    (place.parent / "fairlane.toml").write_text('url = "memory://"\n')
    odd = {"FAIRLANE_URL": "postgresql://nobody@127.0.0.1:1/x", "FAIRLANE_PROFILE": "nonsense", "REDIS_URL": "x"}
    process = start(place, "--seconds", "0.8", "--json", FAIRLANE_CONFIG=str(place.parent / "fairlane.toml"), **odd)
    told = ended(process, place)
    assert (told.code, told.notes) == (0, "")
    summary: dict[str, Any] = json.loads(told.said)
    *tenants, everybody = summary["tenants"]
    assert [numbers["tenant"] for numbers in tenants] == list(TENANTS)
    for numbers in summary["tenants"]:
        assert numbers["enqueued"] == sum(numbers[status] for status in STATUSES)
        assert numbers["processing"] == 0
    assert everybody["pending"] > 0
    assert everybody["enqueued"] == sum(numbers["enqueued"] for numbers in tenants)
    assert everybody["attempts"] == sum(summary["outcomes"].values()) == sum(summary["workers"].values())
    assert list(place.iterdir()) == []


def test_an_interrupt_ends_it_in_order_with_its_summary(place: Path) -> None:
    process = start(place, "--seconds", "60")
    crew = at_work(process)
    process.send_signal(signal.SIGINT)
    told = ended(process, place)
    assert told.code == 130, told.notes
    assert "interrupted: the foreman is asked to stop" in told.said
    assert "ATTEMPTS  WAIT" in told.said
    assert all_gone(crew)
    assert list(place.iterdir()) == []


def test_a_killed_demonstration_takes_its_foreman_and_workers_along(place: Path) -> None:
    process = start(place, "--seconds", "60")
    crew = at_work(process)
    process.kill()
    process.communicate(timeout=60)
    eventually(lambda: all_gone(crew))


def test_on_a_terminal_it_draws_one_table_in_place(place: Path) -> None:
    ours, theirs = pty.openpty()
    env = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "CI"}}
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlane", "demo", "--seconds", "1.2"],
        env={**env, "TMPDIR": str(place), "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    drawn = b""
    try:
        while got := os.read(ours, 65536):
            drawn += got
    except OSError:
        pass  # how Linux tells that the other side is closed
    finally:
        os.close(ours)
    assert process.wait(60) == 0
    text = drawn.decode()
    for part in ("Fairlane demo", "processing", *TENANTS, "worker", "schedule", "At 06:00 every day", "60 × mail.send"):
        assert part in text
    assert text.count("Fairlane demo") > 3
    assert "\x1b[1A" in text


def test_a_foreman_that_cannot_start_is_told_in_one_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/demo.db"
    with (
        Fairlane(url) as app,
        Interrupts() as interrupts,
        Crew(tmp_path, url, SystemSleeper(), app="fairlane.cli.demo.shop:nothing") as crew,
        pytest.raises(Failed, match=r'the foreman has ended: .*has no "nothing"'),
    ):
        crew.wait_until_ready(app, interrupts)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_every_signal_that_ends_programs_is_heard_and_told_by_the_exit_code(number: signal.Signals, code: int) -> None:
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        assert (interrupts.heard, interrupts.exit_code) == (False, 0)
        signal.raise_signal(number)
        assert (interrupts.heard, interrupts.exit_code) == (True, code)
        interrupts.ending()
        assert not interrupts.heard_again
        signal.raise_signal(number)
        assert interrupts.heard_again
    assert signal.getsignal(number) == before


def test_away_from_a_terminal_it_prints_plain_lines_and_ends_by_itself(whole: Told) -> None:
    assert whole.code == 0, whole.notes
    assert "\x1b" not in whole.said
    assert re.search(rf"acme +enqueued +{FLOOD} × mail\.send", whole.said)
    assert "the foreman has left" in whole.said
    assert whole.notes.startswith("starting a foreman with two workers")


def test_the_whole_story_shows_every_way_a_job_can_end(whole: Told, store: Fairlane) -> None:
    jobs = store.jobs.list(limit=200).jobs
    ends = {tenant: [job.status for job in jobs if job.tenant == tenant] for tenant in TENANTS}
    assert (ends["acme"].count("completed"), ends["acme"].count("dead")) == (FLOOD, 1)
    # Five mails, two login codes and the digest; a charge that dies, a rendering that is cancelled.
    assert sorted(ends["globex"]) == ["cancelled", *["completed"] * 8, "dead"]
    # The duplicate made no job.
    assert ends["initech"] == ["completed"] * (ACCOUNTS + 2 + len(CODES) // 2)
    assert "gets the same job: the key is taken" in whole.said
    assert re.search(r"snoozed +files\.import", whole.said)
    [act] = store.audit.list().records
    assert (act.action, act.by) == ("job_cancel", "dana")


def test_the_summary_says_what_the_store_says_and_adds_up(whole: Told, store: Fairlane) -> None:
    told = rows(whole)
    assert list(told) == [*TENANTS, "all"]
    for tenant in TENANTS:
        enqueued, pending, completed, failed, dead, cancelled, attempts = map(int, told[tenant][:7])
        stats = store.statistics.counts(tenant=tenant)
        assert (completed, dead, cancelled) == (stats.completed, stats.dead, stats.cancelled)
        assert enqueued == pending + completed + failed + dead + cancelled
        jobs = store.jobs.list(tenant=tenant, limit=200).jobs
        details = [detail for job in jobs if (detail := store.jobs.detail(job)) is not None]
        assert (enqueued, attempts) == (len(jobs), sum(len(detail.attempts) for detail in details))
    sums = [sum(int(told[tenant][at]) for tenant in TENANTS) for at in range(7)]
    assert sums == [int(cell) for cell in told["all"][:7]]
    found = re.search(r"(\d+) attempts by 2 workers \((\d+) \+ (\d+)\): (.*)\.", whole.said)
    assert found is not None
    ways = [int(number) for number in re.findall(r"\d+", found[4])]
    assert int(found[1]) == int(found[2]) + int(found[3]) == sum(ways) == sums[6]


@pytest.mark.requirement("W14")
def test_the_flood_of_one_tenant_does_not_hold_up_the_others(whole: Told) -> None:
    waits = {tenant: float(cells[-1].rstrip("s")) for tenant, cells in rows(whole).items()}
    assert waits["globex"] < waits["acme"] / 2
    assert waits["initech"] < waits["acme"] / 2
    urgent = re.search(rf"{len(CODES)} login codes .* waited ([\d.]+) s", whole.said)
    assert urgent is not None
    assert float(urgent[1]) < waits["acme"] / 4


def test_the_breaker_opens_puts_jobs_off_and_closes_again(whole: Told, store: Fairlane) -> None:
    states = re.findall(r"breaker +(open|half open|closed)", whole.said)
    assert (states[0], states[-1]) == ("open", "closed")
    [breaker] = store.breakers.list()
    assert (breaker.name, breaker.state) == ("crm", "closed")
    syncs = store.jobs.list(type="crm.sync", limit=200).jobs
    details = [detail for job in syncs if (detail := store.jobs.detail(job)) is not None]
    put_off = sum(detail.attempts[-1].attempt - len(detail.attempts) for detail in details)
    assert put_off > 0
    assert f"postponed jobs {put_off} time" in whole.said
    for detail in details:
        charged = sum(attempt.outcome == "failed" for attempt in detail.attempts)
        assert detail.job.attempts == charged


def test_the_schedule_that_was_missed_is_made_up_for_once(whole: Told, store: Fairlane) -> None:
    [job] = store.jobs.list(created_by="schedule:digest").jobs
    [schedule] = store.schedules.list()
    assert schedule.last_job_id == job.id
    assert schedule.last_at is not None
    assert schedule.next_at is not None
    assert (schedule.last_at.hour, schedule.next_at.hour) == (6, 6)
    assert schedule.last_at < job.enqueued_at < schedule.next_at
    assert "schedule fired" in whole.said


def test_the_commands_it_names_work_in_the_directory_it_keeps(
    whole: Told, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [line.split() for line in whole.said.splitlines() if line.startswith("  ")]
    [[_, directory]] = [words for words in lines if words[0] == "cd"]
    named = [words[1:] for words in lines if words[0] == "fairlane" and words != ["fairlane", "worker"]]
    assert len(named) > 5
    monkeypatch.chdir(directory)
    for words in named:
        result = run(*words)
        assert result.exit_code == 0, result.stderr
        assert result.stdout
    assert " is ready: " in (kept_in(whole) / "worker.log").read_text()
