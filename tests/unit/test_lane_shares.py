"""The slots of one worker command, dealt out to its processes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from fairlane.core.profiles import ANY, PROFILES, Lane, lanes_of, processes_for, share_of
from fairlane.core.queues import QueuePolicy, read_slots
from fairlane.errors import InvalidOption

FAST, GENERAL = PROFILES["production"].lanes
ISOLATION = lanes_of((), PROFILES["isolation"].queues, ())

lanes = st.lists(
    st.builds(lambda slots, each: (slots, each), st.integers(1, 40), st.booleans()), min_size=1, max_size=6
).map(lambda found: [Lane(f"lane{n}", slots, (ANY,), per_process=each) for n, (slots, each) in enumerate(found)])


def shares(lanes: Any, processes: int) -> list[dict[str, int]]:
    return [{lane.name: lane.slots for lane in share_of(lanes, n, processes)} for n in range(processes)]


@pytest.mark.requirement("D22", "L2", "L11")
def test_three_and_five_slots_are_three_and_five_over_any_number_of_processes() -> None:
    assert shares((FAST, GENERAL), 1) == [{"fast": 3, "general": 5}]
    assert shares((FAST, GENERAL), 2) == [{"fast": 2, "general": 2}, {"fast": 1, "general": 3}]
    assert shares((FAST, GENERAL), 4) == [{"fast": 1, "general": 1}] * 3 + [{"general": 2}]
    assert shares((FAST, GENERAL), 16)[:9] == [{"fast": 1}] * 3 + [{"general": 1}] * 5 + [{}]
    assert processes_for((FAST, GENERAL), 16) == 8


@pytest.mark.requirement("D22", "I1")
def test_four_eight_and_two_slots_are_that_over_two_processes_and_over_five() -> None:
    assert shares(ISOLATION, 2) == [{"critical": 2, "default": 4, "bulk": 1}] * 2
    assert sum(map(Counter, shares(ISOLATION, 5)), Counter()) == {"critical": 4, "default": 8, "bulk": 2}


@pytest.mark.requirement("D22")
@given(lanes=lanes, most=st.integers(1, 70))
def test_no_slot_is_lost_or_doubled_and_processes_have_equal_shares(lanes: list[Lane], most: int) -> None:
    there_are = processes_for(lanes, most)
    assert 1 <= there_are <= most
    found = [share_of(lanes, n, most) for n in range(most)]
    assert all(found[:there_are]), "each process has a slot"
    assert not any(found[there_are:])
    shared = [lane for lane in lanes if not lane.per_process]
    totals = [sum(lane.slots for lane in share if not lane.per_process) for share in found[:there_are]]
    assert sum(totals) == sum(lane.slots for lane in shared)
    assert max(totals) - min(totals) <= 1
    for lane in lanes:
        slots = [sum(part.slots for part in share if part.name == lane.name) for share in found[:there_are]]
        assert slots == [lane.slots] * there_are if lane.per_process else sum(slots) == lane.slots
        assert max(slots) - min(slots) <= 1
    for share in found:
        assert [lane.name for lane in share] == [lane.name for lane in lanes if lane.name in {x.name for x in share}]


def test_a_share_keeps_what_a_lane_serves_and_how() -> None:
    [fast, _] = share_of((FAST, GENERAL), 1, 2)
    assert (fast.queues, fast.prompt) == (FAST.queues, True)


@pytest.mark.requirement("D22")
def test_slots_of_each_process_give_every_process_work() -> None:
    lanes = (FAST, Lane("general", 100, per_process=True))
    assert processes_for(lanes, 4) == 4
    assert shares(lanes, 4) == [{"fast": 1, "general": 100}] * 3 + [{"general": 100}]


@pytest.mark.parametrize(
    ("given", "found"), [(3, (3, False)), ("3", (3, False)), (" 100/process ", (100, True)), (10_000, (10_000, False))]
)
def test_slots_are_a_number_or_a_number_for_each_process(given: int | str, found: tuple[int, bool]) -> None:
    assert read_slots(given, "slots") == found
    assert QueuePolicy(name="mail", slots=given).slots == given


@pytest.mark.parametrize("given", [0, -1, True, 2.0, 10_001, "", "0/process", "3/core", "3 /process", "x", "١", [3]])
def test_other_slots_are_refused_with_what_is_expected(given: Any) -> None:
    with pytest.raises(InvalidOption, match=r'slots of queue mail = .*1 to 10,000.*"100/process"'):
        QueuePolicy(name="mail", slots=given)
