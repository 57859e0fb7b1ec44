"""Jobs that a lane passes over hide nothing behind them, and passing over them costs an idle worker next to nothing."""

from __future__ import annotations

import pytest

from fairlane.core.job import Lease
from fairlane.core.limits import Limit
from fairlane.core.ops import Turn
from fairlane.core.outcome import Completed, Released
from tests.unit.test_fairness_plan import WORKER, Lane

EVERY_TENANT = (Limit(kind="tenant", name="*", running=300),)
ONE_AT_A_TIME = (Limit(kind="type", name="slow", running=1),)


def asked(lane: Lane, limit: int = 10) -> tuple[list[Lease], int]:
    """What a wake-up brings, and in how many Turns: as long as there may be more where it did not look."""
    _, answer = lane.turn(limit, woken=True, settle=False)
    leases, turns = [*answer.leases], 1
    while lane.planner.is_searching:
        assert turns < 50
        leases += lane.turn(limit, settle=False)[1].leases
        turns += 1
    return leases, turns


def ended(lane: Lane, lease: Lease) -> None:
    lane.claim_no += 1
    done = Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no)
    lane.store.run(Turn(worker=WORKER, claim_no=lane.claim_no, outcomes=(done,)))


@pytest.mark.requirement("L15", "L17")
@pytest.mark.parametrize("hidden_by", [999, 1000, 3500, 12_000])
def test_jobs_of_unknown_types_hide_nothing_however_many_come_before(hidden_by: int) -> None:
    lane = Lane()
    lane.put(hidden_by, "acme", type="unknown")
    lane.put(2, "acme")
    found = [len(lane.turn(10)[1].leases)]
    while found[-1] or lane.planner.is_searching:
        found.append(len(lane.turn(10)[1].leases))
    assert sum(found) == 2
    assert len(found) <= 8


@pytest.mark.requirement("L15")
def test_a_line_that_was_looked_through_is_not_walked_again_for_a_new_job_at_its_end() -> None:
    lane = Lane()
    lane.put(3500, "acme", type="unknown")
    for _ in range(6):
        lane.turn(10)
    lane.put(1, "acme")
    assert len(lane.turn(10, woken=True)[1].leases) == 1


@pytest.mark.requirement("L15")
def test_a_job_that_came_back_in_the_middle_of_a_line_looked_through_is_found_in_time() -> None:
    lane = Lane()
    lane.put(1500, "acme", type="unknown")
    lane.put(1, "acme")
    lane.put(1500, "acme", type="unknown")
    [lease] = [lease for _ in range(6) for lease in lane.turn(10, settle=False)[1].leases]
    assert not lane.planner.is_searching
    lane.store.run(
        Turn(
            worker=WORKER,
            claim_no=0,
            outcomes=(Released(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no),),
        )
    )
    assert lane.turn(10)[1].leases == ()
    lane.now_s += 31.0
    assert [lease.attempt for _ in range(6) for lease in lane.turn(10)[1].leases] == [2]


@pytest.mark.requirement("L15")
@pytest.mark.parametrize("limits", [(), EVERY_TENANT], ids=["no limits", "limits"])
def test_an_idle_worker_behind_unknown_jobs_spends_a_hundredth_of_its_time_on_them(limits: tuple[Limit, ...]) -> None:
    lane = Lane(limits=limits)
    lane.put(8_000, "acme", type="unknown")
    asked(lane)
    turns, began_s = 0, lane.now_s
    while lane.now_s < began_s + 600:
        turns += asked(lane)[1]
        lane.now_s += 5.0
    assert turns * 0.01 <= 0.01 * 600


@pytest.mark.requirement("L15")
@pytest.mark.parametrize("limits", [(), EVERY_TENANT], ids=["no limits", "limits"])
def test_a_new_job_behind_unknown_ones_is_found_by_the_first_claim_whatever_limits_are_in_force(
    limits: tuple[Limit, ...],
) -> None:
    lane = Lane(limits=limits)
    lane.put(3_500, "acme", type="unknown")
    asked(lane)
    for _ in range(5):
        lane.put(1, "acme")
        lane.now_s += 0.5
        _, answer = lane.turn(10, woken=True)
        assert len(answer.leases) == 1


@pytest.mark.requirement("L15")
def test_a_more_urgent_job_before_a_line_looked_through_is_found_by_the_next_wake_up() -> None:
    lane = Lane()
    lane.put(3_500, "acme", type="unknown", scope="tenant")
    asked(lane)
    lane.now_s += 1.0
    lane.put(1, "acme", priority=1, scope="tenant")
    assert len(asked(lane)[0]) == 1


@pytest.mark.requirement("I2")
def test_jobs_held_back_by_a_limit_hide_nothing_and_are_first_when_there_is_room() -> None:
    lane = Lane(types=("slow", "noop"), limits=ONE_AT_A_TIME)
    lane.put(3_500, "acme", type="slow")
    lane.put(1, "acme")
    leases = [*asked(lane)[0], *asked(lane)[0]]
    assert sorted(lease.type for lease in leases) == ["noop", "slow"]
    for _ in range(3):
        lane.now_s += 0.2
        lane.put(1, "acme")
        assert [lease.type for lease in asked(lane)[0]] == ["noop"]
    [slow] = [lease for lease in leases if lease.type == "slow"]
    ended(lane, slow)
    [following] = asked(lane, 1)[0]
    assert (following.type, following.seq) == ("slow", slow.seq + 1)


@pytest.mark.requirement("I2")
def test_what_a_limit_held_back_in_the_middle_of_a_line_is_found_once_there_is_room() -> None:
    lane = Lane(types=("slow",), limits=ONE_AT_A_TIME)
    lane.put(1, "acme", type="slow")
    lane.put(2_500, "acme", type="unknown")
    lane.put(2, "acme", type="slow")
    [first] = asked(lane)[0]
    assert asked(lane)[0] == []
    lane.now_s += 1.0
    ended(lane, first)
    assert [lease.type for lease in asked(lane)[0]] == ["slow"]


@pytest.mark.requirement("I2")
def test_a_short_line_held_back_by_a_limit_costs_a_wake_up_one_turn() -> None:
    lane = Lane(types=("slow",), limits=ONE_AT_A_TIME)
    lane.put(50, "acme", type="slow")
    asked(lane)
    turns = 0
    for _ in range(100):
        lane.now_s += 0.02
        turns += asked(lane)[1]
    assert turns <= 150
