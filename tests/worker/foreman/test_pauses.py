"""How long a foreman waits before it starts a worker that keeps dying: no sum of pauses is a halt."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from fairlane.core.clock import FakeClock
from fairlane.testing.conformance.samples import NOON
from fairlane.worker.config import WorkerConfig
from fairlane.worker.foreman import supervisor
from fairlane.worker.foreman.foreman import Foreman, ForemanConfig
from fairlane.worker.foreman.supervisor import Supervisor


class Pausing(Foreman):
    """Its clock goes on by a second whenever a supervisor looks whether to wait any longer."""

    def __init__(self, *, ready_s: float = 0.0, lost_s: float = float("inf")) -> None:
        self.standing = FakeClock(NOON)
        self._from_s, self._to_s = self.standing.monotonic() + ready_s, self.standing.monotonic() + lost_s
        super().__init__(ForemanConfig(app="shop:app", worker=WorkerConfig(lease_s=15.0)), clock=self.standing)

    def has_ready_worker(self) -> bool:
        self.standing.advance(1)
        return self._from_s <= self.standing.monotonic() < self._to_s


def paused_s(foreman: Pausing, pause_s: float) -> float:
    began_s = foreman.standing.monotonic()
    asyncio.run(asyncio.wait_for(Supervisor(foreman, 0)._pause(pause_s), 20))
    return foreman.standing.monotonic() - began_s


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "LOOK_S", 0.0)


@pytest.mark.parametrize(
    ("foreman", "pause_s", "expected_s"),
    [
        ({}, 30.0, 30.0),
        ({"ready_s": float("inf")}, 30.0, 5.0),
        ({"ready_s": float("inf")}, 2.0, 2.0),
        ({"lost_s": 12.0}, 30.0, 12.0),
    ],
    ids=["another is ready", "none is ready", "a short pause", "the last one dies meanwhile"],
)
def test_a_pause_ends_within_a_third_of_the_lease_while_no_worker_is_ready(
    foreman: dict[str, float], pause_s: float, expected_s: float
) -> None:
    assert paused_s(Pausing(**foreman), pause_s) == pytest.approx(expected_s, abs=1.0)


def test_however_many_workers_die_while_they_start_one_is_tried_within_the_lease() -> None:
    """One of six is killed each second, as soon as it has begun to start: nothing has run, and all pause."""
    foreman = Pausing(ready_s=float("inf"))
    delays = [Supervisor(foreman, number)._delay for number in range(6)]
    for _ in range(20):
        assert max(delay.died(has_worked=False) for delay in delays) <= supervisor.LONGEST_S
    assert all(paused_s(foreman, delay.died(has_worked=False)) <= 6.0 for delay in delays)


def test_a_supervisor_that_is_woken_pauses_no_longer() -> None:
    async def story(foreman: Pausing) -> None:
        one = Supervisor(foreman, 0)
        pausing = asyncio.create_task(one._pause(1e9))
        await asyncio.sleep(0)
        one.stop(now=True)
        await asyncio.wait_for(pausing, 20)

    asyncio.run(story(cast("Any", Pausing())))
