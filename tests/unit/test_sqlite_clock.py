"""A machine's clock that is set back, or forward, under a running store."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from fairlane.core.clock import FakeClock
from fairlane.core.ops import Check, Enqueue, Reclaim, Renew, Turn
from fairlane.stores.sqlite import SqliteStore
from fairlane.testing.conformance.samples import Making
from fairlane.testing.conformance.scene import wanting


@pytest.mark.requirement("Q17")
def test_a_clock_set_back_never_gives_a_lapsed_worker_its_lease_again(tmp_path: Path) -> None:
    clock, making = FakeClock(), Making()
    store = SqliteStore(tmp_path / "jobs.db", clock=clock)
    worker = making.worker_id()
    store.run(Enqueue(jobs=(making.job(),)))
    store.run(Renew(worker=worker, lease_s=15))
    assert store.run(Turn(worker=worker, claim_no=1, wants=(wanting(),))).leases
    clock.advance(16)
    seen = store.run(Check()).now
    clock.advance(-600)
    turn = store.run(Turn(worker=worker, claim_no=2, wants=(wanting(),)))
    assert turn.now >= seen
    assert (turn.registered, turn.leases) == (False, ())
    assert [taken.worker for taken in turn.reclaimed] == [worker]
    store.close()


def test_another_process_started_after_the_clock_was_set_back_goes_on_from_what_the_file_has_seen(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    store = SqliteStore(tmp_path / "jobs.db", clock=clock)
    store.run(Enqueue(jobs=(Making().job(),)))
    latest = store.run(Reclaim()) and store.run(Check()).now
    store.close()
    clock.advance(-3600)
    again = SqliteStore(tmp_path / "jobs.db", clock=clock)
    health = again.run(Check())
    assert (latest - health.now).total_seconds() <= 1
    assert ["3600 s behind" in sentence for sentence in health.degraded] == [True]
    clock.advance(3600)
    assert again.run(Check()).degraded == ()
    again.close()


def test_instants_keep_their_microseconds_before_and_after_1970(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    for at in (datetime(1969, 7, 20, 20, 17, 40, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC)):
        assert store.run(Check(now=at)).now == at
    store.close()
