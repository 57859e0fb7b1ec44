"""Foremen as operators start them, and what their workers wrote down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from fairlane import Fairlane
from fairlane.client.task import Task
from tests.faults.eventually import eventually
from tests.worker.foreman import yard

ROOT = Path(__file__).parents[3]
APP = "tests.worker.foreman.yard:app"


class Entry(NamedTuple):
    """A line of the diary."""

    event: str
    job: str
    attempt: int
    pid: int
    at_s: float


class ForemanProcess:
    """`fairlane worker` as a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log = process, log

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def workers(self) -> list[int]:
        """The worker processes it has now."""
        pids = []
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children():
                with suppress(psutil.NoSuchProcess):  # it may end while we look
                    if child.status() != psutil.STATUS_ZOMBIE:
                        pids.append(child.pid)
        return pids

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, within_s: float = 30.0) -> int:
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the foreman is still there after {within_s:g} s:\n{self.log()}") from None

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()


class Crew:
    """One store, one application on it for the test itself, and foremen."""

    def __init__(self, url: str, directory: Path, tasks_of: Fairlane = yard.app, **settings: Any) -> None:
        self.url, self.directory = url, directory
        self.app = Fairlane(url, profile="development", **settings)
        self.app.runtime.tasks.update({name: self._moved(task) for name, task in tasks_of.tasks.items()})
        self._foremen: list[ForemanProcess] = []

    def _moved(self, task: Task[..., Any]) -> Task[..., Any]:
        return type(task)(task.definition, self.app.runtime.enqueuer)

    def task(self, name: str) -> Any:
        return self.app.tasks[f"yard.{name}"]

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAIRLANE_", "WORKER_"))}
        return {**kept, "PYTHONPATH": str(ROOT), "YARD_URL": self.url, "YARD_DIARY": str(self.directory / "diary")}

    def start(self, *flags: str, app: str = APP, cwd: Path = ROOT, **env: str) -> ForemanProcess:
        log = self.directory / f"foreman{len(self._foremen)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "fairlane", "worker", app, *flags],
                cwd=cwd,
                env={**self.environment, **env},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        foreman = ForemanProcess(process, log)
        self._foremen.append(foreman)
        return foreman

    def diary(self, event: str | None = None) -> list[Entry]:
        path = self.directory / "diary"
        entries = []
        text = path.read_text() if path.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():  # the last one may be being written
            what, job, attempt, pid, at_s = line.split()
            entries.append(Entry(what, job, int(attempt), int(pid), float(at_s)))
        return [entry for entry in entries if event is None or entry.event == event]

    def eventually(self, look: Callable[[], Any], within_s: float = 20.0) -> Any:
        try:
            return eventually(look, within_s)
        except AssertionError as error:
            logs = "\n".join(foreman.log() for foreman in self._foremen)
            raise AssertionError(f"{error}\n{logs}") from None

    def began(self, handle: Any, times: int = 1) -> list[Entry]:
        """Wait until this job has begun so many times."""
        return self.eventually(
            lambda: (
                (found := [e for e in self.diary("began") if e.job == str(handle.id)]) and len(found) >= times and found
            )
        )

    def attempts(self, handle: Any) -> list[tuple[str, str | None]]:
        return [(attempt.outcome, attempt.error_type) for attempt in self.app.jobs.detail(handle.id).attempts]

    def close(self) -> None:
        for foreman in self._foremen:
            for pid in [*foreman.workers(), foreman.pid]:
                try:
                    os.kill(pid, signal.SIGCONT)
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            foreman.process.wait()
        self.app.close()
        for foreman in self._foremen:
            assert "Unknown child process" not in foreman.log()
