"""When a foreman lets a worker live, and when it must not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlane.core.ids import Seq
from fairlane.worker.board import Board, RunningAttempt, board_file
from fairlane.worker.foreman.health import (
    LET_GO_S,
    START_S,
    WorkerHealth,
    check_s,
    kill_reason,
    self_trusted_s,
    stuck,
    trusted_s,
)
from fairlane.worker.foreman.supervisor import RestartDelay
from tests.unit.leases import a_lease

LEASE_S = 15.0


def at_work(began_s: float = 99.0, timeout_s: float = 60.0) -> RunningAttempt:
    return RunningAttempt(seq=Seq(1), attempt=1, claim_no=1, began_s=began_s, timeout_s=timeout_s)


def seen(**changes: Any) -> WorkerHealth:
    """A healthy worker at second 100."""
    sight = {"now_s": 100.0, "lease_s": LEASE_S, "started_s": 0.0, "ticked_s": 99.8, "renewed_s": 97.0}
    return WorkerHealth(**{**sight, **changes})


def test_a_worker_that_ticks_and_is_renewed_may_live() -> None:
    assert kill_reason(seen()) is None
    assert kill_reason(seen(running=(at_work(),), held=5)) is None


def test_a_silent_worker_may_live_while_what_it_runs_is_inside_its_deadline() -> None:
    assert kill_reason(seen(ticked_s=40.0, running=(at_work(began_s=40.0),))) is None


def test_a_silent_worker_without_an_excuse_is_killed_after_a_lease() -> None:
    assert kill_reason(seen(ticked_s=100 - LEASE_S)) is None
    assert kill_reason(seen(ticked_s=99.9 - LEASE_S)) == "silent"


def test_a_worker_that_was_silent_at_work_is_given_a_lease_to_speak_again_once_that_has_ended() -> None:
    assert kill_reason(seen(ticked_s=40.0, at_work_s=99.9)) is None
    assert kill_reason(seen(ticked_s=40.0, at_work_s=99.9 - LEASE_S)) == "silent"


def test_a_halted_worker_has_no_excuse() -> None:
    assert kill_reason(seen(ticked_s=40.0, running=(at_work(began_s=40.0),), is_halted=True)) == "silent"


def test_an_attempt_past_twice_its_timeout_condemns_its_worker_though_it_ticks() -> None:
    deadline_s = 2 * 10.0 + LET_GO_S
    assert kill_reason(seen(running=(at_work(100 - deadline_s, 10.0),))) is None
    assert kill_reason(seen(running=(at_work(99.9 - deadline_s, 10.0), at_work()))) == "stuck"


def test_while_a_loop_is_blocked_only_what_blocks_it_is_judged() -> None:
    late = at_work(99.9 - (2 * 10.0 + LET_GO_S), 10.0)
    blocks = msgspec.structs.replace(late, seq=Seq(2), on_loop_s=99.5)
    silent = {"ticked_s": 80.0}
    assert stuck(seen(**silent, running=(late, blocks))) == (blocks,)
    assert kill_reason(seen(**silent, running=(late, blocks))) == "stuck"
    patient = msgspec.structs.replace(blocks, timeout_s=60.0)
    assert kill_reason(seen(**silent, running=(late, patient))) is None, "it may go on: the others wait for it"


def test_a_loop_that_nobody_is_known_to_block_is_given_the_longest_of_their_times_and_none_is_blamed() -> None:
    late = at_work(99.9 - (2 * 10.0 + LET_GO_S), 10.0)
    silent = {"ticked_s": 80.0}
    assert kill_reason(seen(**silent, running=(late, at_work()))) is None
    assert kill_reason(seen(**silent, running=(late, late))) == "blocked"
    assert kill_reason(seen(**silent, running=(late,))) == "stuck"


def test_a_busy_worker_is_killed_before_its_lease_ends_unrenewed_and_an_idle_one_is_spared() -> None:
    late = {"renewed_s": 99.9 - trusted_s(LEASE_S)}
    assert kill_reason(seen(**late, running=(at_work(),))) == "untrusted"
    assert kill_reason(seen(**late, held=1)) == "untrusted"
    assert kill_reason(seen(**late)) is None


def test_a_worker_the_store_has_forgotten_is_killed_with_what_it_runs() -> None:
    assert kill_reason(seen(has_lapsed=True, running=(at_work(),))) == "lapsed"
    assert kill_reason(seen(has_lapsed=True)) is None


def test_an_application_that_never_loads_is_given_up() -> None:
    assert kill_reason(seen(ticked_s=None, renewed_s=None, started_s=100 - START_S)) is None
    assert kill_reason(seen(ticked_s=None, renewed_s=None, started_s=99 - START_S)) == "not_starting"


@pytest.mark.parametrize("lease_s", [0.5, 1.5, 15.0, 60.0])
def test_trust_ends_before_the_lease_the_foremans_first(lease_s: float) -> None:
    assert 0 < trusted_s(lease_s) < self_trusted_s(lease_s) < self_trusted_s(lease_s) + check_s(lease_s) < lease_s


def test_workers_that_die_while_they_start_are_followed_ever_later_and_those_that_have_worked_at_once() -> None:
    delay = RestartDelay()
    assert [delay.died(has_worked=False) for _ in range(9)] == [0, 1, 2, 4, 8, 16, 30, 30, 30]
    assert [delay.died(has_worked=True) for _ in range(9)] == [0] * 9
    assert [delay.died(has_worked=False) for _ in range(3)] == [0, 1, 2]


def test_a_board_shows_what_runs_to_whoever_has_the_same_memory() -> None:
    board = Board(board_file())
    board.reserve(3)
    lines = [board.line(number) for number in range(3)]
    lines[0].begin(a_lease(seq=Seq(7)), 1.5, 60.0)
    lines[2].begin(a_lease(seq=Seq(9), attempt=1, claim_no=4), 2.5, 30.0)
    lines[0].end()
    assert board.running() == (RunningAttempt(seq=Seq(9), attempt=1, claim_no=4, began_s=2.5, timeout_s=30.0),)
    assert board.renewed_s == 0.0
    board.renewed_s = 12.25
    assert board.renewed_s == 12.25
    assert len(board.running()) == 1
    with pytest.raises(IndexError, match="3 lines"):
        board.line(3)
