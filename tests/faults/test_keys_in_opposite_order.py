"""Calls that meet the same keys in different orders wait for each other; they do not deadlock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from fairlane.core.ops import Enqueue
from fairlane.stores.postgres import PostgresStore
from tests.faults.eventually import eventually
from tests.faults.places import Place
from tests.support.samples import Making

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
