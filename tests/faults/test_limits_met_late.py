"""Jobs that arrive while a Turn is on its way are under the same limits as those that were there before."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from fairlane.core.limits import Limit, Rate
from fairlane.core.ops import Enqueue, Renew, Turn
from fairlane.stores.postgres import PostgresStore
from fairlane.testing.conformance.samples import Making
from fairlane.testing.conformance.scene import wanting
from tests.faults.eventually import eventually
from tests.faults.places import Place

LIMITS = {
    "queue": Limit(kind="queue", name="default", running=1),
    "rate of a queue": Limit(kind="queue", name="default", rate=Rate(1, 600.0)),
    "every tenant in a queue": Limit(kind="tenant", name="*", queue="default", running=1),
}


@pytest.mark.requirement("I2")
@pytest.mark.parametrize("what", LIMITS)
def test_a_queue_that_was_empty_when_its_limit_was_looked_at_is_not_claimed_beyond_it(
    place: Place, store: PostgresStore, what: str
) -> None:
    making = Making()
    worker, limits = making.worker_id(), (LIMITS[what],)
    store.run(Renew(worker=worker, lease_s=600))
    store.run(Turn(worker=worker, claim_no=1, wants=(wanting(9),), limits=limits))
    with psycopg.connect(place.dsn) as other, ThreadPoolExecutor(1) as thread:
        # Holds a Turn up that has looked at the limits: it says next that it waits.
        other.execute("select from fairlane.worker for no key update")
        turn = Turn(worker=worker, claim_no=2, wants=(wanting(9),), limits=limits, waiting=True)
        late = thread.submit(store.run, turn)
        eventually(place.sessions_waiting)
        store.run(Enqueue(jobs=tuple(making.job(tenant="acme") for _ in range(5))))
        other.rollback()
        claimed = len(late.result(20).leases)
    claimed += len(store.run(Turn(worker=worker, claim_no=3, wants=(wanting(9),), limits=limits)).leases)
    assert claimed == 1
