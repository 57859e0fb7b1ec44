"""The table of moves is the life of a job: complete, and without a way back from its end."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, strategies as st

from fairlane.core.lifecycle import FINAL_PLACES, MOVES, Place, is_legal, targets

PLACES: tuple[Place, ...] = get_args(Place)


def reachable_from(start: Place) -> set[Place]:
    found, waiting = {start}, [start]
    while waiting:
        new = targets(waiting.pop()) - found
        found |= new
        waiting += new
    return found


def test_every_place_can_be_reached_by_a_new_job() -> None:
    assert reachable_from("new") == set(PLACES)


@pytest.mark.parametrize("place", sorted(FINAL_PLACES))
def test_nothing_leaves_a_final_place_except_by_retention(place: Place) -> None:
    leaving = [move for move in MOVES if move.source == place]
    assert [(move.verb, move.target) for move in leaving] == [("retain", "removed")]


def test_a_removed_job_stays_removed_and_nothing_returns_to_new() -> None:
    assert targets("removed") == frozenset()
    assert all(move.target != "new" for move in MOVES)


@pytest.mark.parametrize("place", [place for place in PLACES if place not in FINAL_PLACES | {"removed"}])
def test_every_unfinished_job_can_still_reach_every_end(place: Place) -> None:
    assert reachable_from(place) >= FINAL_PLACES


@given(st.lists(st.sampled_from(MOVES), max_size=40))
def test_no_path_of_legal_moves_revives_a_finished_job(moves: list[tuple[str, Place, Place, str]]) -> None:
    here: Place = "new"
    finished = False
    for verb, source, target, _ in moves:
        if source != here:
            continue
        assert is_legal(verb, source, target)
        here = target
        finished = finished or here in FINAL_PLACES
        assert not finished or here in FINAL_PLACES | {"removed"}


def test_only_workers_and_duties_move_a_job_under_lease_to_completed() -> None:
    assert {(move.verb, move.actor) for move in MOVES if move.target == "completed"} == {("complete", "worker")}


def test_no_move_is_listed_twice() -> None:
    assert len({(move.verb, move.source, move.target) for move in MOVES}) == len(MOVES)
