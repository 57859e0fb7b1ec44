"""Document I, row 5 of its tests: a job that is stuck is found, its process ended, and nobody else pays for it."""

from __future__ import annotations

import pytest

from tests.worker.foreman.conftest import every_crew, ground
from tests.worker.foreman.crew import Crew

__all__ = ["every_crew", "ground"]


@pytest.mark.requirement("I9", "I14", "W8", "D7")
def test_a_job_that_sleeps_on_its_loop_dies_alone_and_the_ten_claimed_with_it_run_elsewhere_uncharged(
    every_crew: Crew,
) -> None:
    crew = every_crew
    stuck, *quick = crew.app.enqueue_many(
        [crew.task("oversleep").bind(), *[crew.task("quick").bind() for _ in range(10)]]
    )
    foreman = crew.start("-p", "1", "-s", "12")
    [entry] = crew.began(stuck)
    crew.eventually(lambda: all(job.status() == "completed" for job in quick), 30)
    assert entry.pid not in foreman.workers()
    [letter] = crew.app.dead_letters.list().dead_letters
    assert (letter.job.id, letter.reason, letter.job.attempts) == (stuck.id, "Job exceeded timeout threshold", 1)
    assert crew.attempts(stuck) == [("lost", "JobStuck")]
    assert [crew.attempts(job) for job in quick] == [[("released", None), ("completed", None)]] * 10
    assert {job.job().attempts for job in quick} == {0}
    assert len(crew.diary("began")) == 11, "each was called once"
    assert foreman.stop() == 0
