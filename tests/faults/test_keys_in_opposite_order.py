"""Calls that meet the same keys in different orders wait for each other; they do not deadlock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from fairlane.core.clock import SystemClock
from fairlane.core.ops import Enqueue, Turn
from fairlane.core.outcome import Outcome
from fairlane.core.workflows import GraphNode
from fairlane.stores.postgres import PostgresStore
from tests.faults.eventually import eventually
from tests.faults.places import Place
from tests.support.samples import Making, completed, died
from tests.support.scene import Scene
from tests.support.stores import Face
from tests.support.workflows import Flow

pytestmark = pytest.mark.requirement("W6", "L4")


@pytest.mark.parametrize("kind", ["idempotency_key", "dedup_key"])
def test_a_call_that_waits_for_a_key_holds_none_that_come_behind_it(
    place: Place, store: PostgresStore, kind: str
) -> None:
    making = Making()

    def enqueue(*names: str) -> list[str]:
        jobs = tuple(making.job(**{kind: name}) for name in names)
        return [receipt.disposition for receipt in store.run(Enqueue(jobs=jobs)).receipts]

    with (
        psycopg.connect(place.dsn) as other,
        ThreadPoolExecutor() as pool,
    ):
        store.run(Enqueue(jobs=(making.job(**{kind: "m"}),)), on=other)
        waits = pool.submit(enqueue, "z", "m")
        try:
            eventually(lambda: place.sessions_waiting() == 1)
            assert enqueue("z") == ["created"]
        finally:
            other.rollback()
        assert waits.result(timeout=20) == ["duplicate", "created"]


@pytest.fixture
def slow_rescue(place: Place) -> None:
    """A deadlock is not resolved by an error before the test ends."""
    with psycopg.connect(place.dsn, autocommit=True) as owner:
        owner.execute(f"alter database {owner.info.dbname} set deadlock_timeout = '15s'")


class Meeting:
    """Two calls that wait for a row, in this order, until it is let go."""

    def __init__(self, place: Place, store: PostgresStore, graph: list[GraphNode]) -> None:
        self._place, self._store = place, store
        scene = Scene(Face(store, "sync"))
        scene.now = SystemClock().now()
        self.flow = Flow(scene, graph).put()
        self.flow.claim()

    def settle(self, *outcomes: Outcome) -> None:
        assert self.flow.worker is not None
        assert not self._store.run(Turn(worker=self.flow.worker, claim_no=1, outcomes=outcomes)).refused

    def run(self, table: str, *calls: Callable[[], Any]) -> list[Any]:
        with psycopg.connect(self._place.dsn) as other, ThreadPoolExecutor() as pool:
            other.execute(f"select from fairlane.{table} for update")
            waiting = []
            for call in calls:
                waiting.append(pool.submit(call))
                eventually(lambda: self._place.sessions_waiting() == len(waiting))
            other.rollback()
            return [one.result(timeout=8) for one in waiting]


@pytest.mark.requirement("L18")
@pytest.mark.usefixtures("slow_rescue")
def test_turns_that_end_nodes_of_one_workflow_meet_its_gates_before_its_figures(
    place: Place, store: PostgresStore
) -> None:
    parents = [GraphNode("p0"), GraphNode("p1"), GraphNode("leaf")]
    met = Meeting(place, store, [*parents, GraphNode("child", ("p0", "p1"))])
    leases = met.flow.leases
    met.run(
        "gate",
        lambda: met.settle(completed(leases["p1"])),
        lambda: met.settle(completed(leases["leaf"]), died(leases["p0"])),
    )
    assert met.flow.figures == (1, 0, 2, 1, 0, 0)


@pytest.mark.requirement("L18")
@pytest.mark.usefixtures("slow_rescue")
def test_who_adds_nodes_meets_their_parents_before_the_gates(place: Place, store: PostgresStore) -> None:
    met = Meeting(place, store, [GraphNode("a"), GraphNode("b"), GraphNode("end", everyone=True)])
    added, _ = met.run(
        "gate",
        lambda: met.flow.add({"c": ["a"]}, known=["a", "b", "end"]),
        lambda: met.settle(completed(met.flow.leases["a"])),
    )
    assert added.added == 1
    assert met.flow.claim() == ["c"]


@pytest.mark.requirement("L18")
@pytest.mark.usefixtures("slow_rescue")
def test_a_job_that_adds_nodes_meets_the_workflow_before_its_own_lease(place: Place, store: PostgresStore) -> None:
    met = Meeting(place, store, [GraphNode("a"), GraphNode("b")])
    lease = met.flow.leases["a"]
    _, added = met.run(
        "workflow",
        met.flow.cancel,
        lambda: met.flow.add({"c": []}, known=["a", "b"], seq=lease.seq, attempt=lease.attempt),
    )
    assert added.refused == "not_allowed"
