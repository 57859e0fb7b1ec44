"""The clock of a machine, or of a server, jumps an hour ahead and is set right: nobody waits for the hour."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stores import Ground, ground
from tests.worker.foreman.conftest import LONG, crew_on
from tests.worker.foreman.crew import ROOT, Crew, ForemanProcess

__all__ = ["ground"]

WRONG_CLOCK = Path(__file__).with_name("wrong_clock")


@pytest.fixture(params=[pytest.param(kind, marks=LONG) for kind in ("sqlite-apsw", "redis", "postgres")])
def crew(request: pytest.FixtureRequest, ground: Ground, tmp_path: Path) -> Iterator[Crew]:
    yield from crew_on(request.param, ground, tmp_path)


class Site:
    """Workers and clients, each a process of its own, under one clock that a test sets."""

    def __init__(self, crew: Crew, folder: Path) -> None:
        self.crew, self._clock = crew, folder / "clock"
        self._env = {"WRONG_CLOCK": str(self._clock), "PYTHONPATH": os.pathsep.join((str(WRONG_CLOCK), str(ROOT)))}
        self.set_clock(0)

    def set_clock(self, ahead_s: float) -> None:
        new = self._clock.with_suffix(".new")
        new.write_text(str(ahead_s))
        new.replace(self._clock)

    def workers(self, *flags: str) -> ForemanProcess:
        foreman = self.crew.start(*flags, "--lease", "3s", **self._env)
        self.crew.eventually(lambda: "is ready" in foreman.log(), 60)
        return foreman

    def fairlane(self, *command: str) -> str:
        """What a command prints."""
        done = subprocess.run(
            [sys.executable, "-m", "fairlane", *command],
            cwd=ROOT,
            env={**self.crew.environment, **self._env, "FAIRLANE_URL": self.crew.url},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    def enqueue(self, task: str, *options: str) -> str:
        """The id of a new job."""
        return self.fairlane("enqueue", f"yard.{task}", *options, "--app", "tests.worker.foreman.yard:app").strip()

    def began(self, job: str) -> int:
        return sum(entry.job == job for entry in self.crew.diary("began"))


@pytest.mark.requirement("Q17")
def test_nothing_waits_for_the_hour_and_nothing_that_runs_is_lost(crew: Crew, tmp_path: Path) -> None:
    site = Site(crew, tmp_path)
    lost = site.workers("-p", "1", "-s", "1", "-q", "bulk")  # and never the job that is to run on
    site.set_clock(3600)
    orphan = site.enqueue("work_once", "seconds=60", "--queue", "bulk")
    crew.eventually(lambda: site.began(orphan) == 1)
    foreman = site.workers("-p", "2", "-s", "4/process")
    running, delayed = site.enqueue("work", "seconds=12"), site.enqueue("work", "--delay", "9s")
    failed = site.enqueue("stumble")
    crew.eventually(lambda: site.began(running) == 1)
    assert "set back" not in foreman.log()

    site.set_clock(0)
    for pid in (lost.pid, *lost.workers()):
        os.kill(pid, signal.SIGKILL)
    later = site.enqueue("work", "--delay", "1s")
    crew.eventually(lambda: [site.began(job) for job in (failed, delayed, later)] == [2, 1, 1], 25)
    crew.eventually(lambda: site.began(orphan) == 2, 20)
    crew.eventually(lambda: any(entry.job == running for entry in crew.diary("ended")), 20)
    assert site.began(running) == 1
    assert "the store's clock was set back by 3600 s" in foreman.log()
    assert "the store's clock was set back by 36" in site.fairlane("doctor")
    assert foreman.stop() == 0
