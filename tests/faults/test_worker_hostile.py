"""Tasks that hold the interpreter, never stop, or end their process: each is dealt with, and the others go on."""

from __future__ import annotations

import pytest

from tests.worker.foreman.conftest import crew, ground, postgres_crew
from tests.worker.foreman.crew import Crew

__all__ = ["crew", "ground", "postgres_crew"]


@pytest.mark.requirement("Q17")
def test_a_task_that_holds_the_interpreter_lock_for_three_leases_keeps_its_lease(crew: Crew) -> None:
    handle = crew.task("hold_lock").enqueue(4.5)
    foreman = crew.start("-p", "1", "-s", "2", "--lease", "1500ms")
    rival = crew.start("-p", "1", "-s", "2", "--lease", "1500ms")
    crew.eventually(lambda: handle.status() == "completed", 20)
    assert crew.attempts(handle) == [("completed", None)]
    assert len(crew.began(handle)) == 1
    assert foreman.stop() == 0
    assert rival.stop() == 0


@pytest.mark.requirement("I9", "I14")
def test_a_task_that_never_yields_is_buried_as_stuck_and_its_process_killed(crew: Crew) -> None:
    # Three begin before it and cannot end while it runs, in a thread or on its loop; the others are never called.
    names = ("nap", "brief", "nap", "spin", *("prompt",) * 6)
    together = crew.app.enqueue_many([crew.task(name).bind() for name in names])
    stuck, innocents = together[3], [*together[:3], *together[4:]]
    foreman = crew.start("-p", "1", "-s", "10")
    [entry] = crew.began(stuck)
    crew.eventually(lambda: all(job.status() == "completed" for job in innocents), 20)
    assert crew.attempts(stuck) == [("lost", "JobStuck")]
    assert all(crew.attempts(job) == [("released", None), ("completed", None)] for job in innocents)
    assert {job.job().attempts for job in innocents} == {0}
    began = [bool(crew.app.jobs.detail(job.id).attempts[0].started_at) for job in innocents]
    assert began == [True] * 3 + [False] * 6, "the records say which of them had begun"
    [letter] = crew.app.dead_letters.list().dead_letters
    assert letter.reason == "Job exceeded timeout threshold"
    assert entry.pid not in foreman.workers()
    assert "past twice its timeout" in foreman.log()
    assert foreman.stop() == 0


@pytest.mark.requirement("I9")
def test_a_task_that_ignores_cancellation_is_buried_and_what_shared_its_process_runs_again_uncharged(
    postgres_crew: Crew,
) -> None:
    crew = postgres_crew
    innocent, stuck = crew.app.enqueue_many([crew.task("work_once").bind(30.0), crew.task("ignore").bind()])
    foreman = crew.start("-p", "1", "-s", "4")
    [entry] = crew.began(innocent)
    crew.eventually(lambda: stuck.status() == "dead", 20)
    crew.eventually(lambda: innocent.status() == "completed", 20)
    assert crew.attempts(stuck) == [("lost", "JobStuck")]
    assert crew.attempts(innocent) == [("released", None), ("completed", None)], "not lost: nobody suspects it"
    assert innocent.job().attempts == 0
    assert entry.pid not in foreman.workers()
    assert foreman.stop() == 0


@pytest.mark.requirement("I9")
@pytest.mark.long
def test_a_thread_that_ignores_its_timeout_is_fenced_and_its_process_replaced(crew: Crew) -> None:
    handle = crew.task("block_for_ever").enqueue()
    foreman = crew.start("-p", "1", "-s", "4", "--lease", "1s", "--grace", "1s")
    [entry] = crew.began(handle)
    crew.eventually(lambda: handle.status() == "dead", 20)
    assert crew.attempts(handle) == [("dead", "TimeoutError")]
    crew.eventually(lambda: foreman.workers() and entry.pid not in foreman.workers(), 20)
    assert "threads ignore" in foreman.log()
    assert foreman.stop() == 0


def test_log_handlers_that_raise_cost_a_worker_neither_slots_nor_its_process(crew: Crew) -> None:
    spoilt = [crew.task("sabotage").using(max_attempts=1).enqueue("log") for _ in range(4)]
    foreman = crew.start("-p", "1", "-s", "4")
    crew.eventually(lambda: all(handle.status() == "dead" for handle in spoilt))
    [pid] = foreman.workers()
    later = crew.app.enqueue_many([crew.task("work").bind() for _ in range(20)])
    crew.eventually(lambda: all(handle.status() == "completed" for handle in later))
    assert foreman.workers() == [pid]
    assert foreman.stop() == 0
    assert "a log handler raised SystemExit" in foreman.log()


def test_a_worker_whose_engine_fails_lets_its_jobs_end_and_is_replaced(crew: Crew) -> None:
    foreman = crew.start("-p", "1", "-s", "4")
    running = crew.task("work").enqueue(1.0)
    [entry] = crew.began(running)
    spoilt = crew.task("sabotage").enqueue("turns")
    crew.began(spoilt)
    later = crew.app.enqueue_many([crew.task("work").bind() for _ in range(20)])
    crew.eventually(lambda: all(handle.status() == "completed" for handle in (running, spoilt, *later)))
    assert entry.pid not in foreman.workers()
    assert crew.attempts(running) == crew.attempts(spoilt) == [("completed", None)]
    assert "this worker's engine failed" in foreman.log()
    assert foreman.stop() == 0


def test_a_job_that_cancels_every_task_of_its_process_is_charged_and_ends(crew: Crew) -> None:
    foreman = crew.start("-p", "1", "-s", "4")
    spoilt = crew.task("sabotage").using(max_attempts=1).enqueue("tasks")
    crew.eventually(lambda: spoilt.status() in {"dead", "completed"})
    later = crew.app.enqueue_many([crew.task("work").bind() for _ in range(20)])
    crew.eventually(lambda: all(handle.status() == "completed" for handle in later))
    assert len(crew.began(spoilt)) == 1
    assert foreman.stop() == 0


def test_what_a_task_says_begins_no_line_of_the_log(crew: Crew) -> None:
    words = "no\x1b[2J\x9b31m\u202e\n2026-01-01 12:00:00,000 CRITICAL root[1]: FAKE LOG LINE\r\u2028FAKE"
    handle = crew.task("complain").enqueue(words)
    foreman = crew.start("-p", "1", "-s", "1")
    crew.eventually(lambda: handle.status() == "dead", 20)
    crew.eventually(lambda: "FAKE LOG LINE" in foreman.log(), 20)
    assert foreman.stop() == 0
    lines = foreman.log().splitlines()
    assert all(line.isprintable() for line in lines)
    assert [line for line in lines if line.startswith(("2026-01-01 12", "FAKE"))] == []
    assert handle.job().last_error == words, "the record keeps what was said"
