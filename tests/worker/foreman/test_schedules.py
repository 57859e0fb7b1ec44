"""An interval of a second, fired by workers of two foremen: each instant once, whoever comes first."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fairlane.core.schedules import NOMINAL_HEADER, SCHEDULE_HEADER
from tests.faults.eventually import eventually
from tests.worker.foreman.crew import Crew


@pytest.mark.requirement("L12")
def test_two_foremen_fire_each_second_once(crew: Crew) -> None:
    # `all`: on a machine that is busy for longer than a second, no instant is left out.
    crew.app.schedules.add("tick", crew.task("work"), every=1, catch_up="all", catch_up_limit=1000)

    def instants() -> list[str]:
        jobs = crew.app.jobs.list(limit=200).jobs
        return [job.headers[NOMINAL_HEADER] for job in reversed(jobs) if job.headers[SCHEDULE_HEADER] == "tick"]

    first, second = crew.start(), crew.start()
    eventually(lambda: len(instants()) >= 8, within_s=90)
    assert first.stop() == 0
    met = len(instants())
    eventually(lambda: len(instants()) >= met + 4, within_s=90)  # without the first it goes on
    crew.app.schedules.pause("tick")
    eventually(lambda: all(job.status == "completed" for job in crew.app.jobs.list(limit=200).jobs), within_s=60)
    assert second.stop() == 0

    found = sorted(instants())
    schedule = crew.app.schedules.get("tick")
    assert schedule.last_at is not None
    begin = int(schedule.last_at.timestamp()) - len(found) + 1
    assert found == [instant_text(begin + number) for number in range(len(found))]
    assert len(crew.diary("began")) == len(found)


def instant_text(stamp: int) -> str:
    return datetime.fromtimestamp(stamp, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
