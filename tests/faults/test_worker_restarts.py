"""Rolling restarts under load: nothing lost, nobody charged for being interrupted."""

from __future__ import annotations

import os
import signal

import pytest

from tests.worker.foreman.conftest import crew, ground, postgres_crew
from tests.worker.foreman.crew import Crew

__all__ = ["crew", "ground", "postgres_crew"]

RESTARTS = 100 if os.environ.get("FAIRLANE_LONG") else 1
JOBS_EACH = 40


@pytest.mark.requirement("L17", "Q8")
@pytest.mark.timeout(1800)
def test_rolling_restarts_under_load_lose_nothing_and_charge_only_failures(postgres_crew: Crew) -> None:
    crew = postgres_crew
    work, failing = [], []
    foreman = crew.start("-p", "1", "-s", "8", "--grace", "100ms")
    for _ in range(RESTARTS):
        work += crew.app.enqueue_many([crew.task("work").bind(0.02 * (i % 10)) for i in range(JOBS_EACH)])
        failing.append(crew.task("fail").enqueue())
        seen = len(crew.diary("began"))
        crew.eventually(lambda seen=seen: len(crew.diary("began")) > seen + 10)
        following = crew.start("-p", "1", "-s", "8", "--grace", "100ms")
        assert foreman.stop() == 0, foreman.log()
        foreman = following
    crew.eventually(lambda: all(handle.status() == "completed" for handle in work), 60)
    crew.eventually(lambda: all(handle.status() == "dead" for handle in failing), 30)
    assert foreman.stop() == 0
    assert {handle.job().attempts for handle in work} == {0}
    assert {handle.job().attempts for handle in failing} == {2}
    outcomes = {outcome for handle in work for outcome, _ in crew.attempts(handle)}
    assert outcomes <= {"completed", "released"}, "interrupted is not lost"


@pytest.mark.requirement("L17")
def test_a_stop_gives_back_at_once_what_has_not_begun_and_waits_for_what_runs(crew: Crew) -> None:
    running, waiting = crew.task("work").enqueue(1.0), crew.task("work").enqueue(0.0)
    foreman = crew.start("-p", "1", "-s", "1")
    crew.began(running)
    foreman.signal(signal.SIGTERM)
    assert foreman.wait() == 0
    assert running.status() == "completed"
    assert waiting.status() == "pending"
    assert not [e for e in crew.diary() if e.job == str(waiting.id)]


@pytest.mark.requirement("L17", "Q8")
def test_a_second_signal_ends_it_at_once_and_what_ran_is_given_back_uncharged(crew: Crew) -> None:
    handle = crew.task("work").enqueue(60.0)
    foreman = crew.start("-p", "1", "-s", "1")
    crew.began(handle)
    foreman.signal(signal.SIGINT)
    crew.eventually(lambda: "stopping: running jobs have 25 s" in foreman.log())
    foreman.signal(signal.SIGINT)
    assert foreman.wait(10) == 0
    assert handle.status() == "pending"
    assert crew.attempts(handle) == [("released", None)]
    assert handle.job().attempts == 0
