"""Calls that meet the same keys in different orders wait for each other; they do not deadlock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from fairlane.core.clock import SystemClock
from fairlane.core.ops import ALL_TENANTS, Cancel, Enqueue, Turn
from fairlane.core.outcome import Outcome
from fairlane.core.workflows import GraphNode
from fairlane.stores.postgres import PostgresStore
from fairlane.testing.conformance.samples import Making, completed, died
from fairlane.testing.conformance.scene import Scene
from fairlane.testing.conformance.workflows import Flow
from tests.faults.eventually import eventually
from tests.faults.places import Place
from tests.support.stores import Face

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
        lambda: met.flow.add(
            {"c": []}, known=["a", "b"], seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no
        ),
    )
    assert added.refused == "not_allowed"


class RowLock:
    """Another session that has locked some rows, and asks for others once a call waits for it."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def meet(self, first: str, then: str, call: Callable[[], Any]) -> Any:
        with psycopg.connect(self._place.dsn) as other, ThreadPoolExecutor() as pool:
            other.execute(f"select from fairlane.{first} for update")
            waiting = pool.submit(call)
            eventually(lambda: self._place.sessions_waiting() == 1)
            other.execute("set local lock_timeout = '3s'")
            other.execute(f"select from fairlane.{then} for update")
            other.rollback()
            return waiting.result(timeout=8)


@pytest.mark.requirement("L18")
@pytest.mark.usefixtures("slow_rescue")
def test_a_turn_that_reclaims_meets_all_gates_before_any_figures(place: Place, store: PostgresStore) -> None:
    met = Meeting(place, store, [GraphNode("a"), GraphNode("b", ("a",)), GraphNode("c"), GraphNode("d", ("c",))])
    flow, scene = met.flow, met.flow.scene
    lost = flow.leases["c"]
    scene.run(Cancel(scope=ALL_TENANTS, id=lost.id, by="ada"))
    # Another worker has `c`, and its heartbeat has lapsed.
    place.rows("update fairlane.worker set expires_at = now() + interval '1 hour'")
    gone = scene.hire(0.001)
    place.rows("update fairlane.lease set worker = %s where seq = %s", gone, lost.seq)
    place.rows("update fairlane.worker set expires_at = now() - interval '1 s' where id = %s", gone)
    place.rows("update fairlane.worker set expires_at = now() + interval '1 hour' where id <> %s", gone)
    gate = "gate where n = (select gate from fairlane.node where name = 'd')"
    RowLock(place).meet(gate, "tally", lambda: met.settle(completed(flow.leases["a"])))
    assert flow.statuses()["d"] == "cancelled"
    assert flow.statuses()["b"] == "pending"


@pytest.mark.requirement("L18")
@pytest.mark.usefixtures("slow_rescue")
def test_a_retry_meets_dead_letters_before_the_gates(place: Place, store: PostgresStore) -> None:
    met = Meeting(place, store, [GraphNode("a"), GraphNode("b", ("a",))])
    met.settle(died(met.flow.leases["a"]))
    act = RowLock(place).meet("dead_letter", "gate", lambda: met.flow.retry("a"))
    assert (act.refused, act.jobs) == (None, 1)
