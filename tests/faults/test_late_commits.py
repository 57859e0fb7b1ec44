"""Acts whose commit is slow, or never comes: their records are sealed when they are there, and none is passed over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import psycopg
import pytest

from fairlane.core.audit_chain import seal, verify
from fairlane.core.ids import JobId
from fairlane.core.ops import ALL_TENANTS, Cancel, Enqueue, Op, ReadAuditChain, ReadUnsealed, SealAudit
from fairlane.stores.base import Store
from fairlane.stores.postgres.store import call_for
from fairlane.testing.conformance.samples import Making
from tests.support.stores import Ground, open_at

T = TypeVar("T")
pytestmark = pytest.mark.requirement("W12")


@pytest.fixture
def address(ground: Ground) -> str:
    return ground.address("postgres")


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    store = open_at("postgres", address)
    yield store
    store.close()


def send(conn: psycopg.Connection, op: Op[T]) -> T:
    """Run an operation on a connection of ours, whose transaction goes on."""
    call = call_for(op)
    return call.read(conn.execute(call.sql.replace("{schema}", "fairlane").encode(), call.params).fetchall())


def put(store: Store, count: int) -> list[JobId]:
    making = Making()
    jobs = tuple(making.job() for _ in range(count))
    store.run(Enqueue(jobs=jobs))
    return [job.id for job in jobs]


def seal_all(store: Store) -> list[str]:
    """Returns who did what was sealed."""
    there = store.run(ReadUnsealed())
    assert store.run(SealAudit(links=seal(there.last, there.records))).sealed
    return [record.by for record in there.records]


def test_a_record_that_commits_behind_its_elders_seal_is_sealed_next(store: Store, address: str) -> None:
    one, other = put(store, 2)
    with psycopg.connect(address) as conn:
        send(conn, Cancel(scope=ALL_TENANTS, id=one, by="slow"))
        store.run(Cancel(scope=ALL_TENANTS, id=other, by="quick"))
        assert seal_all(store) == ["quick"]
        assert store.run(ReadUnsealed()).records == ()
        conn.commit()
    assert seal_all(store) == ["slow"]
    chain = store.run(ReadAuditChain())
    quick, slow = (sealed.link for sealed in chain.sealed)
    assert slow.audit_id < quick.audit_id
    assert (verify(chain.sealed).links, verify(chain.sealed).broken, chain.unsealed) == (2, None, 0)


def test_an_act_that_is_rolled_back_leaves_no_gap_in_the_chain(store: Store, address: str) -> None:
    one, other = put(store, 2)
    with psycopg.connect(address) as conn:
        send(conn, Cancel(scope=ALL_TENANTS, id=one, by="slow"))
        conn.rollback()
    store.run(Cancel(scope=ALL_TENANTS, id=other, by="quick"))
    assert seal_all(store) == ["quick"]
    chain = store.run(ReadAuditChain())
    assert [sealed.link.n for sealed in chain.sealed] == [1]
    assert verify(chain.sealed).broken is None


def test_an_act_does_not_wait_for_a_seal_in_the_making(store: Store, address: str) -> None:
    one, other = put(store, 2)
    store.run(Cancel(scope=ALL_TENANTS, id=one, by="quick"))
    with psycopg.connect(address) as conn:
        there = send(conn, ReadUnsealed())
        assert send(conn, SealAudit(links=seal(there.last, there.records))).sealed
        with psycopg.connect(address, options="-c lock_timeout=2s") as impatient:
            send(impatient, Cancel(scope=ALL_TENANTS, id=other, by="at once"))
        conn.commit()
    assert seal_all(store) == ["at once"]
    assert verify(store.run(ReadAuditChain()).sealed).links == 2
