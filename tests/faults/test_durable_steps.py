"""A worker is killed with SIGKILL inside and between the steps of a job: each effect is there once, where promised."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairlane import Fairlane
from fairlane.core.ops import Lapse
from tests.worker.foreman.conftest import every_crew, ground
from tests.worker.foreman.crew import Crew

__all__ = ["every_crew", "ground"]

ROOT = Path(__file__).parents[2]


def run(url: str, effects: Path, place: str) -> int:
    command = [sys.executable, "-m", "tests.faults.steps_process", url, str(effects), place]
    return subprocess.run(command, cwd=ROOT, check=False, timeout=120).returncode


@pytest.mark.requirement("L18")
@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("before charge", ["charge", "ship"]),
        ("between", ["charge", "ship"]),
        ("before ship", ["charge", "ship"]),
        ("at the end", ["charge", "ship"]),
        # At least once: killed between the effect and its record, the next attempt cannot know of it.
        ("behind charge", ["charge", "charge", "ship"]),
    ],
)
def test_a_job_whose_worker_was_killed_continues_behind_its_last_step(
    tmp_path: Path, place: str, expected: list[str]
) -> None:
    continues(f"sqlite:///{tmp_path}/jobs.db", tmp_path / "effects", place, expected)


@pytest.mark.requirement("L18")
@pytest.mark.parametrize(
    ("place", "expected"), [("between", ["charge", "ship"]), ("behind charge", ["charge", "charge", "ship"])]
)
@pytest.mark.parametrize("every_crew", ["postgres", "redis"], indirect=True)
def test_the_same_on_the_servers_that_processes_share(
    every_crew: Crew, tmp_path: Path, place: str, expected: list[str]
) -> None:
    continues(every_crew.url, tmp_path / "effects", place, expected)


def continues(url: str, effects: Path, place: str, expected: list[str]) -> None:
    with Fairlane(url) as app:
        order = app.task(name="order")(lambda: None)
        handle = order.enqueue()
        assert run(url, effects, place) == -signal.SIGKILL
        [gone] = app.workers.list().workers
        app.runtime.store.run(Lapse(worker=gone.id))
        assert run(url, effects, place) == 0
        assert effects.read_text().split() == expected
        assert app.jobs.handle(handle).result(timeout=1) == ["charge", "ship"]
        detail = app.jobs.detail(handle)
        assert detail is not None
        assert [(one.n, one.name) for one in detail.steps] == [(1, "charge"), (2, "ship")]


PLACES = ("in_charge", "charge_done", "slept", "paid", "in_ship", "end")


@pytest.mark.requirement("L18")
@pytest.mark.parametrize("task", ["fulfil", "fulfil_alone", pytest.param("afulfil", marks=pytest.mark.long)])
def test_jobs_of_a_killed_worker_or_process_continue_behind_their_last_step(every_crew: Crew, task: str) -> None:
    """One at a time: a worker that dies takes no other job with it between an effect and its record."""
    crew = every_crew
    handles = [crew.task(task).enqueue(place) for place in PLACES]
    crew.start("-p", "1", "-s", "1", "--lease", "3s")
    jobs = {str(handle.id) for handle in handles}
    crew.eventually(lambda: {entry.job for entry in crew.diary("slept")} == jobs, 60)
    for handle in handles:
        crew.app.signals.emit("paid", "by card", key=str(handle.id))
    for handle in handles:
        crew.eventually(lambda handle=handle: handle.status() == "completed", 60)
        assert handle.result(timeout=0) == ["charged", "by card", "shipped"]
    for event in ("killed", "charged", "shipped"):
        assert sorted(entry.job for entry in crew.diary(event)) == sorted(jobs), event
