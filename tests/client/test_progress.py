"""What a running job reports of itself: progress and log lines."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane import AttemptCancelled, CurrentJob, Fairlane, InvalidOption, LeaseLost, current_job
from fairlane.core.job import Lease
from fairlane.testing import run_due


class Notes:
    def __init__(self) -> None:
        self.taken: list[float | str | None] = []

    def take(self, lease: Lease, *, progress: float | None = None, line: str | None = None) -> None:
        self.taken.append(progress if line is None else line)


@pytest.fixture
def job(app: Fairlane) -> CurrentJob:
    @app.task(name="t")
    def t() -> None: ...

    t.enqueue()
    [ran] = run_due(app)
    return CurrentJob(ran.lease, Notes())


def taken(job: CurrentJob) -> list[Any]:
    notes = job._notes
    assert isinstance(notes, Notes)
    return notes.taken


@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan"), float("inf"), "0.5", True, None, 10**400, -(10**400)])
def test_progress_is_a_number_from_0_to_1(job: CurrentJob, bad: Any) -> None:
    with pytest.raises(InvalidOption, match="a number from 0 to 1"):
        job.progress(bad)
    job.progress(0)
    job.progress(1)
    job.progress(0.5)
    assert taken(job) == [0.0, 1.0, 0.5]


def test_whatever_a_job_logs_can_be_kept(job: CurrentJob) -> None:
    class Hostile:
        def __str__(self) -> str:
            raise RuntimeError

    for message in ("plain", "nul \x00 and \ud800", 5, Hostile(), "x" * 10_000):
        job.log(message)
    lines = taken(job)
    assert lines[:3] == ["plain", "nul \ufffd and \ufffd", "5"]
    assert all(len(line) <= 1_000 for line in lines)


@pytest.mark.requirement("L9")
def test_a_job_that_should_stop_hears_it_when_it_speaks(job: CurrentJob) -> None:
    job.check()
    job.stopping = "cancel"
    for speak in (job.check, lambda: job.progress(0.5), lambda: job.log("x")):
        with pytest.raises(AttemptCancelled, match="cancel"):
            speak()
    job.stopping = "lease_lost"
    with pytest.raises(LeaseLost):
        job.check()
    assert taken(job) == []


def test_without_a_worker_what_a_job_says_goes_nowhere(app: Fairlane) -> None:
    @app.task(name="say")
    def say() -> str:
        current_job().progress(0.5)
        current_job().log("hello")
        return "said"

    handle = say.enqueue()
    run_due(app)
    assert handle.result(timeout=0) == "said"
