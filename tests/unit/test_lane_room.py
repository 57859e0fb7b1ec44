"""How many jobs a lane asks for: enough work for 50 ms, in a bounded number of jobs."""

from __future__ import annotations

import pytest

from fairlane.core.profiles import Lane
from fairlane.worker.lanes import LaneState
from tests.unit.leases import a_lease


def lane(slots: int, *jobs_s: float) -> LaneState:
    """One whose jobs took so long until now."""
    state = LaneState(Lane("general", slots), ("default",), ("noop",))
    for job_s in jobs_s:
        run_one(state, job_s)
    return state


def run_one(state: LaneState, job_s: float) -> None:
    job = a_lease()
    state.planner.accounts.claim(job.tenant, 1, 0.0)
    state.begin(job, 0.0)
    state.end(job, 0.0, job_s)


@pytest.mark.parametrize(
    ("slots", "jobs", "job_s", "asked"),
    [
        (10, 0, 0.0, 10),  # nothing is known yet
        (10, 1000, 60.0, 10),  # long ones: its slots, and nothing ahead
        (10, 1000, 0.1, 10),  # 50 ms of work are five jobs more, and it asks for no less than its free slots
        (10, 1000, 0.005, 55),  # half of 10 + 100
        (10, 1, 1e-6, 50),  # one short job says little: half of 10 + 9 x 10
        (10, 200, 1e-6, 105),  # half of 10 + 200
        (10, 1000, 1e-6, 205),  # half of 10 + 400
        (1, 1000, 1e-6, 201),  # few slots, short jobs: no Turn for every ten
        (100, 1000, 1e-6, 500),  # half of 100 + 9 x 100
    ],
)
def test_a_lane_asks_for_half_of_what_it_may_hold(slots: int, jobs: int, job_s: float, asked: int) -> None:
    assert lane(slots, *[job_s] * jobs).room() == asked


def test_a_job_that_is_long_or_holds_others_up_ends_a_row_of_short_ones() -> None:
    state = lane(10, *[1e-6] * 1000, 0.06, *[1e-6] * 300)
    assert state.room() == 155
    state.is_clogged = True
    assert state.room() == 10
    run_one(state, 0.01)
    assert state.room() < 55
