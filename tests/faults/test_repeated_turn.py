"""A Turn sent again while its first sending still runs at the server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from fairlane.core.ops import Enqueue, Lapse, Reclaim, Renew, Retire, Turn
from fairlane.stores.postgres import PostgresStore
from fairlane.testing.conformance.samples import Making
from fairlane.testing.conformance.scene import wanting
from tests.faults.conftest import Stores
from tests.faults.eventually import eventually
from tests.faults.places import Place

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.requirement("W5", "Q17")
@pytest.mark.parametrize("round_", range(3))
def test_a_repeated_turn_waits_for_the_first_and_returns_its_leases(
    place: Place, stores: Stores, store: PostgresStore, round_: int
) -> None:
    making = Making(seed=round_)
    store.run(Enqueue(jobs=tuple(making.job() for _ in range(50))))
    worker = making.worker_id()
    store.run(Renew(worker=worker, lease_s=3600))
    turn = Turn(worker=worker, claim_no=1, wants=(wanting(5),))
    senders = [stores.open(place.dsn) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads, psycopg.connect(place.dsn) as busy:
        busy.execute("select from fairlane.worker for update")  # holds up every turn of this worker
        running = [threads.submit(sender.run, turn) for sender in senders]
        eventually(lambda: place.sessions_waiting() == len(senders))
        busy.rollback()
        first, second = (turn.result(20) for turn in running)
    assert [lease.seq for lease in first.leases] == [lease.seq for lease in second.leases]
    assert place.number("select count(*) from fairlane.lease") == 5


@pytest.mark.requirement("W5")
def test_of_a_workers_claims_only_the_last_is_remembered_and_nothing_once_it_has_left(
    place: Place, store: PostgresStore
) -> None:
    making = Making()
    store.run(Enqueue(jobs=tuple(making.job() for _ in range(20)), now=NOON))
    stays, leaves, dies, lapses = (making.worker_id() for _ in range(4))
    for worker in (stays, leaves, dies, lapses):
        store.run(Renew(worker=worker, lease_s=10 if worker == lapses else 3600, now=NOON))
        for claim_no in (1, 2, 40, 41):
            store.run(Turn(worker=worker, claim_no=claim_no, wants=(wanting(1),), now=NOON))
    remembered = "select count(*) from fairlane.claim_made where worker = %s"
    assert [place.number(remembered, worker) for worker in (stays, leaves, dies, lapses)] == [1, 1, 1, 1]
    store.run(Retire(worker=leaves, now=NOON))
    store.run(Lapse(worker=dies, now=NOON))
    store.run(Reclaim(now=NOON + timedelta(seconds=10)))
    assert [place.number(remembered, worker) for worker in (stays, leaves, dies, lapses)] == [1, 0, 0, 0]
