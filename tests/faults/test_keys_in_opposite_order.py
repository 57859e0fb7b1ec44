"""Calls that meet the same keys in different orders wait for each other; they do not deadlock."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from fairlane.core.ops import Enqueue
from fairlane.stores.base import Store
from tests.faults.waiting import eventually
from tests.support.making import Making
from tests.support.stores import Ground, open_at

pytestmark = pytest.mark.requirement("W6", "L4")


@pytest.fixture
def address(ground: Ground) -> str:
    return ground.address("postgres")


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    store = open_at("postgres", address)
    yield store
    store.close()


@pytest.mark.parametrize("kind", ["idempotency_key", "dedup_key"])
def test_a_call_that_waits_for_a_key_holds_none_that_come_behind_it(store: Store, address: str, kind: str) -> None:
    making = Making()

    def enqueue(*names: str) -> list[str]:
        jobs = tuple(making.job(**{kind: name}) for name in names)
        return [receipt.disposition for receipt in store.run(Enqueue(jobs=jobs)).receipts]

    with (
        psycopg.connect(address) as other,
        psycopg.connect(address, autocommit=True) as looking,
        ThreadPoolExecutor() as pool,
    ):
        store.run(Enqueue(jobs=(making.job(**{kind: "m"}),)), on=other)
        waits = pool.submit(enqueue, "z", "m")
        try:
            eventually(lambda: looking.execute("select from pg_locks where not granted").fetchall())
            assert enqueue("z") == ["created"]
        finally:
            other.rollback()
        assert waits.result(timeout=20) == ["duplicate", "created"]
