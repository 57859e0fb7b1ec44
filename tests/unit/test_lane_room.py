"""How many jobs a lane asks for: enough work for 50 ms, in a bounded number of jobs."""

from __future__ import annotations

import pytest

from fairlane.core.profiles import Lane
from fairlane.worker.lanes import LaneState


def lane(slots: int, job_s: float) -> LaneState:
    """One whose jobs took so long until now."""
    state = LaneState(Lane("general", slots), ("default",), ("noop",))
    state.planner.accounts.claim("acme", 1, 0.0)
    state.planner.accounts.begin("acme", 0.0)
    state.planner.accounts.end("acme", 0.0, job_s)
    return state


@pytest.mark.parametrize(
    ("slots", "job_s", "asked"),
    [
        (10, 0.0, 10),  # nothing is known yet
        (10, 60.0, 10),  # long ones: its slots, and nothing ahead
        (10, 0.1, 10),  # 50 ms of work are five jobs more, and it asks for no less than its free slots
        (10, 0.005, 55),  # half of 10 + 100
        (10, 1e-6, 205),  # half of 10 + 400
        (1, 1e-6, 201),  # few slots, short jobs: no Turn for every ten
        (100, 1e-6, 500),  # half of 100 + 9 x 100
    ],
)
def test_a_lane_asks_for_half_of_what_it_may_hold(slots: int, job_s: float, asked: int) -> None:
    assert lane(slots, job_s).room() == asked
