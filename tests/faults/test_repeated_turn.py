"""A Turn sent again while its first sending still runs at the server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from fairlane.core.ops import Enqueue, Renew, Turn
from fairlane.stores.postgres import PostgresStore
from tests.faults.conftest import Stores
from tests.faults.places import Place
from tests.faults.waiting import eventually
from tests.support.acting import wanting
from tests.support.making import Making


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
