"""Servers whose transactions are stricter by default than ours need: keys stay exact, and callers see no serialization failure."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from fairlane.core.ops import Enqueue, Renew, Turn
from fairlane.stores.postgres import PostgresStore
from fairlane.testing.conformance.samples import Making
from fairlane.testing.conformance.scene import wanting
from tests.faults.conftest import Stores
from tests.faults.places import Place
from tests.servers.pgbouncer import pgbouncer_program
from tests.support.stores import Ground

THREADS = 8
ROUNDS = 6
ways = pytest.mark.parametrize("way", ["directly", *(["through a pooler"] if pgbouncer_program() else [])])
levels = pytest.mark.parametrize("level", ["serializable", "repeatable read"])


def open_strict(ground: Ground, place: Place, stores: Stores, level: str, way: str) -> PostgresStore:
    """A store on a database whose sessions begin at this level. A pooler refuses our settings, so there the level holds."""
    place.rows(f"alter database \"{place.name}\" set default_transaction_isolation = '{level}'")
    return stores.open(place.dsn if way == "directly" else ground.pooler.dsn(place.name))


@pytest.mark.requirement("W6", "L4")
@ways
@levels
@pytest.mark.parametrize("kind", ["idempotency_key", "dedup_key"])
def test_many_threads_with_one_key_make_one_job(
    ground: Ground, place: Place, stores: Stores, way: str, level: str, kind: str
) -> None:
    store = open_strict(ground, place, stores, level, way)
    together = threading.Barrier(THREADS)

    def enqueue(thread: int) -> list[tuple[str, object]]:
        making, seen = Making(seed=thread), []
        for number in range(ROUNDS):
            op = Enqueue(jobs=(making.job(**{kind: f"key{number}"}),))
            together.wait(30)
            try:
                [receipt] = store.run(op).receipts
            except BaseException:
                together.abort()  # the others are not to wait for us
                raise
            seen.append((receipt.disposition, receipt.id))
        return seen

    with ThreadPoolExecutor(THREADS) as threads:
        seen = list(threads.map(enqueue, range(THREADS)))
    for number in range(ROUNDS):
        told = [told[number] for told in seen]
        assert Counter(disposition for disposition, _ in told) == {"created": 1, "duplicate": THREADS - 1}
        assert len({job for _, job in told}) == 1
    assert place.jobs() == ROUNDS


@pytest.mark.requirement("W5")
@ways
@levels
def test_many_threads_claim_every_job_once(ground: Ground, place: Place, stores: Stores, way: str, level: str) -> None:
    store = open_strict(ground, place, stores, level, way)
    making = Making()
    store.run(Enqueue(jobs=tuple(making.job(tenant=f"tenant{n % 3}") for n in range(120))))

    def claim_all(thread: int) -> list[int]:
        worker, claimed = Making(seed=thread + 1).worker_id(), []
        store.run(Renew(worker=worker, lease_s=3600))
        for claim_no in range(1, 200):
            leases = store.run(Turn(worker=worker, claim_no=claim_no, wants=(wanting(5),))).leases
            claimed += [lease.seq for lease in leases]
            if not leases and not place.number("select count(*) from fairlane.ready"):
                break
        return claimed

    with ThreadPoolExecutor(4) as threads:
        claimed = [seq for seqs in threads.map(claim_all, range(4)) for seq in seqs]
    assert len(claimed) == len(set(claimed)) == 120
