"""`fairlane demo`: real workers, the dashboard, endless traffic, true numbers, and an end that leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from fairlane import Fairlane
from fairlane.cli.demo import CRM, TENANTS
from fairlane.cli.output import Failed
from fairlane.cli.processes import Interrupts, Program
from tests.faults.eventually import eventually
from tests.support.terminal import Terminal


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


def descendants(pid: int) -> list[psutil.Process]:
    return list(psutil.Process(pid).children(recursive=True))


def all_gone(crew: list[psutil.Process]) -> bool:
    return not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in crew)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a demonstration makes its directory."""
    found = tmp_path / "temporary"
    found.mkdir()
    return found


@pytest.fixture(scope="module")
def on_screen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Terminal, Path]]:
    """A demonstration on a terminal, after its breaker has opened."""
    place = tmp_path_factory.mktemp("demo")
    with Terminal(
        "fairlane", "demo", "--port", "0", cwd=place, columns=120, lines=60, TMPDIR=str(place), FAIRLANE_BY="olga"
    ) as terminal:
        terminal.wrote("breaker opened")
        yield terminal, place


def test_on_a_terminal_it_says_where_to_look_and_draws_what_happens(on_screen: tuple[Terminal, Path]) -> None:
    terminal, _ = on_screen
    for part in (
        *TENANTS,
        "mail",
        "critical",
        "the CRM goes down",
        "ConnectionError",
        "dana",
        "general",
        "Ctrl-C ends",
    ):
        assert part in terminal.wrote(part)
    assert terminal.text.count("share") > 3
    assert "\x1b[1A" in terminal.raw  # drawn in place


def test_the_link_logs_in_to_the_dashboard_of_this_very_store(on_screen: tuple[Terminal, Path]) -> None:
    terminal, _ = on_screen
    [link] = re.findall(r"http://\S+/login\?link=\S+", terminal.text)
    with httpx.Client(base_url=link.partition("/login")[0]) as http:
        assert http.get("/api/jobs/").status_code == 401
        assert http.post(link, headers={"Accept": "application/json"}).status_code == 200
        assert {job["tenant"] for job in http.get("/api/jobs/").json()["jobs"]} <= {*TENANTS, "system"}
        assert http.post(link).status_code == 401


def test_the_commands_it_prints_work_as_typed(on_screen: tuple[Terminal, Path]) -> None:
    terminal, place = on_screen
    named = [line.strip() for line in terminal.text.splitlines() if re.match(r" {4}\S*fairlane \w", line)]
    [address] = [line.strip() for line in terminal.text.splitlines() if line.startswith("    url=")]
    assert len(named) > 5
    for line in named:
        # A view that goes on is left with Ctrl-C; elsewhere than on a terminal `top` prints once.
        until = "timeout --signal=INT 5 " if " tail " in line else ""
        ran = subprocess.run(
            ["bash", "-c", f"{address}; {until}{line}"], cwd=place, capture_output=True, text=True, check=False
        )
        assert ran.returncode in ({0, 124} if until else {0}), (line, ran.stderr)
        assert ran.stdout, line
        assert "Traceback" not in ran.stderr


def test_a_reprocessed_dead_letter_succeeds(on_screen: tuple[Terminal, Path]) -> None:
    _, place = on_screen
    [directory] = place.glob("fairlane-demo-*")
    with Fairlane(f"sqlite:///{directory}/demo.db") as app:
        app.queues.resume("default")
        [letter, *_] = eventually(lambda: app.dead_letters.list(type="billing.charge").dead_letters)
        job = app.dead_letters.reprocess(letter, by="olga").job
        done = eventually(lambda: (found := app.jobs.get(job)) and found.status == "completed" and found)
        assert "new card" in str(done.result)


def test_the_breaker_opens_while_the_crm_is_down_and_closes_again(on_screen: tuple[Terminal, Path]) -> None:
    terminal, place = on_screen
    terminal.wrote("the CRM is up again")
    terminal.wrote("breaker closed")
    [directory] = place.glob("fairlane-demo-*")
    with Fairlane(f"sqlite:///{directory}/demo.db") as app:
        events = app.events.list(kinds=("breaker_opened", "breaker_closed")).events
        assert [(event.kind, event.data["breaker"]) for event in events][:2] == [
            ("breaker_opened", CRM.name),
            ("breaker_closed", CRM.name),
        ]
        assert app.jobs.list(type="crm.sync", status="completed").jobs


def test_ctrl_c_ends_it_with_a_summary_and_leaves_nothing_behind(on_screen: tuple[Terminal, Path]) -> None:
    terminal, place = on_screen
    crew = descendants(terminal.process.pid)
    assert len(crew) == 4  # foreman, two workers, dashboard
    terminal.press("\x03")
    assert terminal.ended() == 0
    said = terminal.text[terminal.text.index("stopping: ") :]
    for part in ("failed attempts", *TENANTS, "flooded the queue", "fast lane", "dead letter"):
        assert part in said
    assert "Traceback" not in terminal.text
    assert all_gone(crew)
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def test_without_a_terminal_it_ends_by_itself_and_its_numbers_add_up(tmp_path: Path, store: str) -> None:
    # The account that runs PostgreSQL for root has to reach its directory.
    place = Path(tempfile.mkdtemp())
    place.chmod(0o711)
    config = tmp_path / "fairlane.toml"
    config.write_text('url = "memory://"\n')
    odd = {
        "FAIRLANE_URL": "postgresql://nobody@127.0.0.1:1/x",
        "FAIRLANE_PROFILE": "nonsense",
        "FAIRLANE_WORKER_SLOTS": "x",
    }
    flags = ["--postgres"] if store == "postgresql" else []
    process = start(
        place,
        "--seconds",
        "6",
        "--json",
        "--no-dashboard",
        *flags,
        FAIRLANE_CONFIG=str(config),
        **odd,
    )
    said, notes = process.communicate(timeout=100)
    assert (process.returncode, notes) == (0, "")
    summary: dict[str, Any] = json.loads(said)
    assert (summary["database"], summary["directory"], summary["acts"] >= 1) == (store, None, True)
    by_tenant = {numbers["tenant"]: numbers for numbers in summary["tenants"]}
    assert list(by_tenant) == list(TENANTS)
    for numbers in by_tenant.values():
        ended = numbers["completed"] + numbers["dead"] + numbers["cancelled"]
        assert numbers["jobs"] == ended + numbers["waiting"] > 0
    # The flood of the first tenant delays itself, not the others; urgent jobs wait least.
    others = [by_tenant[tenant]["wait_s"] for tenant in TENANTS[1:]]
    assert by_tenant["acme"]["wait_s"] > max(others)
    assert summary["urgent_wait_s"] < by_tenant["acme"]["wait_s"]
    place.rmdir()


def test_lines_are_plain_elsewhere_and_a_kept_store_can_be_inspected(place: Path) -> None:
    process = start(place, "--keep", "--no-dashboard", "--seconds", "60")
    assert process.stdout is not None
    lines = []
    for line in iter(process.stdout.readline, ""):
        lines.append(line)
        if re.search(r"completed +acme +\d+ × mail\.send", line):
            break
    process.terminate()
    rest, notes = process.communicate(timeout=60)
    said = "".join(lines) + rest
    assert process.returncode == 143, notes
    assert "\x1b" not in said
    assert notes.splitlines() == [
        "starting two workers on a SQLite file of their own …",
        "stopping: running jobs have a second",
    ]
    [command] = re.findall(r"For instance: (.*)", said)
    assert "mail.send" in subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
    [directory] = place.iterdir()
    assert " is ready: " in (directory / "worker.log").read_text()


def test_a_killed_demonstration_takes_its_processes_along(place: Path) -> None:
    process = start(place, "--seconds", "60", "--no-dashboard")
    assert process.stdout is not None
    assert any("acme enqueues" in line for line in iter(process.stdout.readline, ""))
    crew = descendants(process.pid)
    assert len(crew) == 3
    process.kill()
    process.communicate(timeout=60)
    eventually(lambda: all_gone(crew))


def test_a_process_that_cannot_start_is_reported_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fairlane", "worker", "nothing:app"]
    child = Program("foreman", command, tmp_path, log=tmp_path / "worker.log", keeps_settings=False)
    assert child.wait() == 2
    with pytest.raises(Failed, match=r'the foreman has ended: .*no module "nothing"'):
        child.require_alive()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_every_signal_that_ends_programs_is_heard_and_shown_by_the_exit_code(number: signal.Signals, code: int) -> None:
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
