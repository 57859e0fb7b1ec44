"""A machine's clock that is set back, or forward, under a running store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fairlane.core.clock import FakeClock
from fairlane.core.ops import Check, Enqueue, Reclaim, Renew, Turn
from fairlane.stores.sqlite import SqliteStore
from fairlane.testing.conformance.samples import Making, completed
from fairlane.testing.conformance.scene import wanting


@pytest.mark.requirement("Q17")
@pytest.mark.parametrize("back_s", [1, 600])
def test_a_clock_set_back_never_gives_a_lapsed_worker_its_lease_again(tmp_path: Path, back_s: float) -> None:
    clock, making = FakeClock(), Making()
    store = SqliteStore(tmp_path / "jobs.db", clock=clock)
    worker, other = making.worker_id(), making.worker_id()
    store.run(Enqueue(jobs=(making.job(),)))
    store.run(Renew(worker=worker, lease_s=15))
    [lease] = store.run(Turn(worker=worker, claim_no=1, wants=(wanting(),))).leases
    clock.advance(16)
    store.run(Renew(worker=other))
    assert [taken.worker for taken in store.run(Reclaim()).reclaimed] == [worker]
    clock.advance(-back_s)
    assert store.run(Turn(worker=worker, claim_no=2, outcomes=(completed(lease),))).refused
    assert len(store.run(Turn(worker=other, claim_no=1, wants=(wanting(),))).leases) == 1
    store.close()


def test_a_clock_that_goes_back_a_little_is_held_at_what_the_file_has_seen(tmp_path: Path) -> None:
    clock, making = FakeClock(), Making()
    store = SqliteStore(tmp_path / "jobs.db", clock=clock)
    worker = making.worker_id()
    store.run(Renew(worker=worker, lease_s=15))
    clock.advance(15)
    seen = store.run(Check()).now
    for back_s in (0.5, 1.5):
        clock.advance(-back_s)
        turn = store.run(Turn(worker=worker, claim_no=2, wants=(wanting(),)))
        assert (turn.now, turn.registered) == (seen, False)
    clock.advance(2.5)
    assert store.run(Check()).now == seen + timedelta(seconds=0.5)
    store.close()


@pytest.mark.parametrize("writes", [True, False])
def test_a_clock_that_goes_back_further_is_taken_as_it_is_by_every_process(tmp_path: Path, writes: bool) -> None:
    """Time must not stand still until the clock catches up: nothing would be due, and no lost host be missed."""
    clock = FakeClock()
    first, second = (SqliteStore(tmp_path / "jobs.db", clock=clock) for _ in range(2))
    for store in (first, second):
        store.run(Enqueue(jobs=(Making().job(),)))
    clock.advance(-3600)
    for advance_s in (0, 1, 5, 0.5):
        clock.advance(advance_s)
        for store in (first, second, SqliteStore(tmp_path / "jobs.db", clock=clock)):
            store.run(Reclaim() if writes else Check())
            assert store.run(Check()).now == clock.now()
            if store not in (first, second):
                store.close()
    first.close()
    second.close()


def test_instants_keep_their_microseconds_before_and_after_1970(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    for at in (datetime(1969, 7, 20, 20, 17, 40, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC)):
        assert store.run(Check(now=at)).now == at
    store.close()
