from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from fairlane.core.job import JobSpec
from fairlane.core.ops import ALL_TENANTS, Enqueue, EnqueueResult, GetJob
from fairlane.stores.base import Store
from fairlane.testing.conformance.samples import Making
from tests.borrowing.callers import EVERY_WAY, MAKE_ORDERS, Caller, Kind
from tests.support.stores import Ground, ground, open_at

__all__ = ["ground"]

_orders = itertools.count(1)
_seeds = itertools.count(1000)


class Desk:
    """One store and the callers that share its database."""

    def __init__(self, kind: Kind, colour: str, address: str, store: Store) -> None:
        self.kind, self.colour, self.address, self.store = kind, colour, address, store
        self.making = Making(seed=next(_seeds))

    def job(self, **options: Any) -> JobSpec:
        return self.making.job(**options)

    def new_order(self) -> int:
        return next(_orders)

    async def enqueue(self, caller: Caller, *jobs: JobSpec) -> EnqueueResult:
        op = Enqueue(jobs=jobs)
        if self.colour == "async":
            return await self.store.arun(op, on=caller.conn)
        return self.store.run(op, on=caller.conn)

    def is_there(self, job: JobSpec) -> bool:
        """Whether anybody else can see the job."""
        return self.store.run(GetJob(scope=ALL_TENANTS, id=job.id)) is not None

    async def has_order(self, number: int) -> bool:
        """Whether anybody else can see the order: adding it again would fail."""
        async with self.kind.open(self.address) as other:
            await other.begin()
            try:
                await other.order(number)
            except Exception:  # every driver has its own error for a taken key
                return True
            finally:
                await other.rollback()
            return False


_opened: dict[str, tuple[str, Store]] = {}


@pytest.fixture(scope="session")
def desks(ground: Ground) -> Iterator[dict[str, tuple[str, Store]]]:
    """One store of each kind for the whole run, with a table of the callers' own."""
    yield _opened
    for _, store in _opened.values():
        store.close()
    _opened.clear()


def _place(ground: Ground, kind: str) -> tuple[str, Store]:
    if kind not in _opened:
        address = ground.address(kind)
        _opened[kind] = address, open_at(kind, address)
        if kind == "postgres":
            import psycopg

            with psycopg.connect(address) as conn:
                conn.execute(MAKE_ORDERS)
        elif kind == "sqlite-apsw":
            import apsw

            apsw.Connection(address).execute(MAKE_ORDERS)
        else:
            import sqlite3

            made = sqlite3.connect(address)
            made.execute(MAKE_ORDERS)
            made.close()
    return _opened[kind]


@pytest.fixture(params=EVERY_WAY, ids=lambda way: f"{way[0]}-{way[1]}")
def desk(request: pytest.FixtureRequest, ground: Ground, desks: object) -> Desk:
    kind, colour = request.param
    return Desk(kind, colour, *_place(ground, kind.store))
