"""A claim whose transaction stays open: the next one neither waits for it nor takes its jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import psycopg
import pytest

from fairlane.core.ids import WorkerId
from fairlane.core.ops import Enqueue, Renew
from fairlane.stores.postgres import PostgresStore
from fairlane.testing.conformance.samples import Making
from tests.faults.places import Place

Held = Callable[[Place, WorkerId], AbstractContextManager[list[int]]]


def claim(conn: psycopg.Connection, worker: WorkerId, limit: int) -> list[int]:
    """The seqs one Turn leases, in order."""
    want = json.dumps([{"lane": "any", "queues": ["default"], "limit": limit, "start": limit}])
    rows = conn.execute(
        "select seq from fairlane.turn_v2(%s, 1, null, null, null, null, null, null, null, %s)", (worker, want)
    ).fetchall()
    return [seq for (seq,) in rows if seq is not None]


@contextmanager
def in_a_transaction(place: Place, worker: WorkerId) -> Iterator[list[int]]:
    with psycopg.connect(place.dsn) as conn:
        yield claim(conn, worker, 3)


@contextmanager
def behind_a_savepoint(place: Place, worker: WorkerId) -> Iterator[list[int]]:
    """Its rows name a subtransaction, which no snapshot lists: only the lock itself shows that they are taken."""
    with psycopg.connect(place.dsn) as conn:
        conn.execute("select pg_current_xact_id()")
        with conn.transaction():
            taken = claim(conn, worker, 3)
        place.rows("select pg_current_xact_id()")  # a later transaction ends: the subtransaction is no longer "newer"
        yield taken


@contextmanager
def by_two_sessions(place: Place, worker: WorkerId) -> Iterator[list[int]]:
    """Locked by hand and shared: the rows name no transaction at all."""
    with ExitStack() as stack:
        for _ in range(2):
            conn = stack.enter_context(psycopg.connect(place.dsn))
            rows = conn.execute("select seq from fairlane.ready order by seq limit 3 for share").fetchall()
        yield [seq for (seq,) in rows]


@pytest.mark.requirement("W5", "W15")
@pytest.mark.parametrize("held", [in_a_transaction, behind_a_savepoint, by_two_sessions])
def test_the_next_claim_neither_waits_for_an_open_one_nor_takes_its_jobs(
    place: Place, store: PostgresStore, held: Held
) -> None:
    making = Making()
    seqs = [r.seq for r in store.run(Enqueue(jobs=tuple(making.job() for _ in range(6)))).receipts]
    first, second = making.worker_id(), making.worker_id()
    for worker in (first, second):
        store.run(Renew(worker=worker, lease_s=3600))
    with held(place, first) as taken, psycopg.connect(place.dsn, autocommit=True) as conn:
        assert taken == seqs[:3]
        conn.execute("set lock_timeout = '5s'")  # whoever waits fails
        assert claim(conn, second, 6) == seqs[3:]
        assert claim(conn, making.worker_id(), 6) == []
    leased = place.rows("select seq, worker from fairlane.lease order by seq")
    owners = [first, first, first, second, second, second] if held is not by_two_sessions else [second] * 3
    assert [worker for _, worker in leased] == owners
