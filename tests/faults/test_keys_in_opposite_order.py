"""Calls that meet the same keys in different orders wait for each other; they do not deadlock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from fairlane.core.clock import SystemClock
from fairlane.core.ops import Enqueue, Turn
from fairlane.core.outcome import Outcome
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


@pytest.mark.requirement("L18")
def test_turns_that_end_nodes_of_one_workflow_meet_its_gates_before_its_figures(
    place: Place, store: PostgresStore
) -> None:
    with psycopg.connect(place.dsn, autocommit=True) as owner:
        owner.execute(f"alter database {owner.info.dbname} set deadlock_timeout = '15s'")  # nobody is saved by an error
    scene = Scene(Face(store, "sync"))
    scene.now = SystemClock().now()
    flow = Flow(scene, {"p0": [], "p1": [], "leaf": [], "child": ["p0", "p1"]}).put()
    assert sorted(flow.claim()) == ["leaf", "p0", "p1"]
    assert flow.worker is not None
    leases, worker = flow.leases, flow.worker

    def settle(*outcomes: Outcome) -> None:
        store.run(Turn(worker=worker, claim_no=1, outcomes=outcomes))

    with psycopg.connect(place.dsn) as other, ThreadPoolExecutor() as pool:
        other.execute("select from fairlane.gate for update")
        first = pool.submit(settle, completed(leases["p1"]))
        eventually(lambda: place.sessions_waiting() == 1)
        second = pool.submit(settle, completed(leases["leaf"]), died(leases["p0"]))
        eventually(lambda: place.sessions_waiting() == 2)
        other.rollback()
        first.result(timeout=8)
        second.result(timeout=8)
    assert flow.figures == (1, 0, 2, 1, 0, 0)
