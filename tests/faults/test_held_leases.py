"""What workers note of the leases they hold: never too few, known whatever happens, and limits of those who come late."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from fairlane.core.job import Lease
from fairlane.core.limits import Limit
from fairlane.core.ops import Enqueue, Lapse, Reclaim, Renew, Retire, SetLimit, Turn
from fairlane.stores.postgres import PostgresStore
from fairlane.testing.conformance.samples import OUTCOMES, Making
from fairlane.testing.conformance.scene import wanting
from tests.faults.eventually import eventually
from tests.faults.places import Place

HELD = "select sum(held), count(*) - count(held), (select count(*) from lease where counted > 1) from claim_made"
LIMITS = (
    Limit(kind="type", name="mail.send", running=300),
    Limit(kind="tenant", name="*", running=300),
    Limit(kind="queue", name="default", running=300),
    Limit(kind="named", name="smtp", types=("mail.send", "other"), running=300),
)


@pytest.mark.requirement("I2")
@pytest.mark.parametrize("seed", range(4))
def test_the_leases_that_workers_note_are_never_fewer_than_they_hold(
    place: Place, store: PostgresStore, seed: int
) -> None:
    chance, making = random.Random(seed), Making(seed)
    store.run(SetLimit(limit=LIMITS[0], by="ada"))
    workers: dict[object, list[Lease]] = {}
    turns: dict[object, Turn] = {}
    with psycopg.connect(place.dsn, autocommit=True, options="-c search_path=fairlane") as conn:
        for _ in range(120):
            if len(workers) < 3:
                workers[worker := making.worker_id()] = []
                store.run(Renew(worker=worker, lease_s=600))
            worker = chance.choice(list(workers))
            leases = workers[worker]
            step = chance.choices(("turn", "again", "limit", "leave", "enqueue"), (60, 10, 4, 4, 20))[0]
            if step == "enqueue":
                store.run(Enqueue(jobs=tuple(making.job(chance.choice(("mail.send", "other"))) for _ in range(9))))
            elif step == "limit":
                store.run(SetLimit(limit=chance.choice(LIMITS), by="ada"))
            elif step == "leave":
                del workers[worker]
                store.run(chance.choice((Retire(worker=worker), Lapse(worker=worker), Reclaim())))
            elif step == "again" and worker in turns:
                workers[worker] = [*leases, *(one for one in store.run(turns[worker]).leases if one not in leases)]
            else:
                ended = [leases.pop() for _ in range(chance.randint(0, len(leases)))]
                turns[worker] = turn = Turn(
                    worker=worker,
                    claim_no=(turns[worker].claim_no if worker in turns else 0) + chance.choice((1, 1, 40)),
                    outcomes=tuple(OUTCOMES[chance.choice(list(OUTCOMES))](lease) for lease in ended),
                    wants=(wanting(chance.randint(1, 5)),) if chance.random() < 0.7 else (),
                    limits=LIMITS if chance.random() < 0.5 else (),
                )
                leases += store.run(turn).leases
            noted, unknown, held = conn.execute(HELD).fetchone() or ()
            assert unknown == 0
            assert (noted or 0) >= held, step


def test_a_worker_whose_every_other_turn_claims_nothing_notes_what_it_holds_all_the_same(
    place: Place, store: PostgresStore
) -> None:
    making = Making()
    worker, limits = making.worker_id(), LIMITS[:1]
    store.run(Renew(worker=worker, lease_s=600))
    store.run(Enqueue(jobs=tuple(making.job() for _ in range(70))))
    for claim_no in range(
        1, 140, 2
    ):  # ends in Turns of their own: noted is the number of all claims, until it is counted
        leases = store.run(Turn(worker=worker, claim_no=claim_no, wants=(wanting(1),), limits=limits)).leases
        ends = tuple(OUTCOMES["completed"](lease) for lease in leases)
        store.run(Turn(worker=worker, claim_no=claim_no + 1, outcomes=ends, limits=limits))
    assert place.number("select held from fairlane.claim_made") < 10


@pytest.mark.requirement("I2")
def test_a_worker_that_registers_while_a_limit_is_set_claims_under_it(place: Place, store: PostgresStore) -> None:
    making = Making()
    worker = making.worker_id()
    store.run(Enqueue(jobs=tuple(making.job() for _ in range(5))))
    with psycopg.connect(place.dsn) as other, ThreadPoolExecutor(1) as thread:
        limit = '{"limit": {"kind": "type", "name": "mail.send", "running": 1}, "by": "ada"}'
        other.execute("select fairlane.set_limit_v1(%s)", (limit,))

        def begin() -> int:
            store.run(Renew(worker=worker, lease_s=600))
            return len(store.run(Turn(worker=worker, claim_no=1, wants=(wanting(5),))).leases)

        begun = thread.submit(begin)
        eventually(place.sessions_waiting)
        other.commit()
        assert begun.result(20) == 1
