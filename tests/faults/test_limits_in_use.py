"""Places under a limit that another session is counting: who frees them takes them again, as many and no more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import psycopg
import pytest

from fairlane.core.job import Lease
from fairlane.core.limits import Limit, Rate
from fairlane.core.ops import Enqueue, Renew, SetLimit, Turn, TurnResult
from fairlane.stores.postgres import PostgresStore
from fairlane.testing.conformance.samples import NOON, Making, completed
from fairlane.testing.conformance.scene import wanting
from tests.faults.places import Place

WIDE = 96
LIMITS = {
    "queue": Limit(kind="queue", name="default", running=3),
    "wide, of a type": Limit(kind="type", name="mail.send", running=WIDE),
}


class Holder:
    """A worker that holds all places under a limit."""

    def __init__(self, place: Place, store: PostgresStore, limit: Limit) -> None:
        self.limit, self._store, self._claim_no = limit, store, 0
        making = Making()
        self._worker = making.worker_id()
        store.run(Enqueue(jobs=tuple(making.job(tenant="acme") for _ in range(2 * WIDE)), now=NOON))
        store.run(Renew(worker=self._worker, lease_s=600, now=NOON))
        assert limit.running is not None
        self.leases: list[Lease] = list(self.turn(limit.running).leases)
        assert len(self.leases) == limit.running
        # Another session counts under it, or claims beside others where it is wide.
        self.other = psycopg.connect(place.dsn, options="-c search_path=fairlane")
        how = "pg_advisory_xact_lock_shared" if limit.running == WIDE else "pg_advisory_xact_lock"
        self.other.execute(f"select {how}(limit_lock(%s, %s))".encode(), (limit.kind, limit.name))

    def turn(self, *wants: int, ends: int = 0, now: datetime = NOON, limit: Limit | None = None) -> TurnResult:
        self._claim_no += 1
        turn = Turn(
            worker=self._worker,
            claim_no=self._claim_no,
            outcomes=tuple(completed(self.leases.pop()) for _ in range(ends)),
            wants=tuple(wanting(number, lane=f"lane {place}") for place, number in enumerate(wants)),
            limits=(limit or self.limit,),
            now=now,
        )
        return self._store.run(turn)


@pytest.fixture(params=LIMITS)
def holder(place: Place, store: PostgresStore, request: pytest.FixtureRequest) -> Iterator[Holder]:
    holder = Holder(place, store, LIMITS[request.param])
    yield holder
    holder.other.close()


@pytest.mark.requirement("I2", "I5")
def test_who_frees_places_takes_them_again_while_another_counts(holder: Holder) -> None:
    assert len(holder.turn(2, ends=2).leases) == 2
    assert len(holder.turn(2).leases) == 0, "nothing is free"


@pytest.mark.requirement("I2")
def test_who_frees_places_gets_no_more_of_them_while_another_counts(holder: Holder) -> None:
    assert len(holder.turn(1, ends=3).leases) == 1
    assert len(holder.turn(2).leases) == 0, "what was free before is for those who count"
    assert len(holder.turn(3).leases) == 0
    holder.other.rollback()
    assert len(holder.turn(3).leases) == 2


@pytest.mark.requirement("I2")
def test_a_freed_place_is_taken_once_by_all_lanes_together(holder: Holder) -> None:
    assert len(holder.turn(1, 1, 1, ends=1).leases) == 1
    assert len(holder.turn(2, 2, ends=2).leases) == 2


@pytest.mark.requirement("I2")
def test_freed_places_above_a_limit_that_was_lowered_are_not_taken_again(holder: Holder, store: PostgresStore) -> None:
    holder.other.rollback()
    kind, name = holder.limit.kind, holder.limit.name
    store.run(SetLimit(limit=Limit(kind=kind, name=name, running=1), by="ada", now=NOON))
    holder.other.execute("select pg_advisory_xact_lock(limit_lock(%s, %s))", (kind, name))
    assert len(holder.turn(1, ends=1).leases) == 0


@pytest.mark.requirement("I2")
def test_a_rate_is_no_place_that_is_freed(place: Place, store: PostgresStore) -> None:
    limit = Limit(kind="queue", name="default", running=3, rate=Rate(4, 600.0))
    holder = Holder(place, store, limit)
    try:
        assert len(holder.turn(2, ends=2).leases) == 0, "another counts under it"
        holder.other.rollback()
        assert len(holder.turn(2).leases) == 1
    finally:
        holder.other.close()
