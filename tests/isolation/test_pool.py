"""Connections that change hands between tenants, through errors and cancellations: no tenant meets another's rows."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import asyncpg
import pytest

from fairlane import tenant
from fairlane.isolation import atenant_transaction
from tests.isolation.house import House
from tests.isolation.invoices import EACH, make_invoices

ALTERNATIONS = 2_000
CONNECTIONS = 4
TENANTS = ("acme", "globex", "initech")


class Failed(Exception):
    pass


class Unreset(asyncpg.Connection):  # type: ignore[misc]
    """A pool still ends a transaction that its user left open (cancelled while it began), but it resets no setting."""

    def get_reset_query(self) -> str:
        return ""


async def use(conn: asyncpg.Connection, name: str, chance: random.Random) -> None:
    """One tenant's transaction, which may fail at any point; asserts on every row it meets."""
    with tenant(name):
        async with atenant_transaction(conn):
            rows = await conn.fetch("select tenant_id from app.invoice")
            assert [row[0] for row in rows] == [name] * EACH
            if chance.random() < 0.1:
                raise Failed
            if chance.random() < 0.1:
                await conn.execute("select 1 / 0")


async def alternate(pool: asyncpg.Pool, share: int, seed: int) -> Counter[str]:
    chance, ended = random.Random(seed), Counter[str]()
    for _ in range(share):
        conn = await pool.acquire()
        work = asyncio.ensure_future(use(conn, chance.choice(TENANTS), chance))
        if chance.random() < 0.1:
            for _ in range(chance.randrange(8)):
                await asyncio.sleep(0)
            work.cancel()
        try:
            await work
            ended["completed"] += 1
        except (Failed, asyncpg.DivisionByZeroError):
            ended["failed"] += 1
        except asyncio.CancelledError:
            ended["cancelled"] += 1
        await pool.release(conn)
        if chance.random() < 0.05:
            assert await pool.fetch("select 1 from app.invoice") == []
            ended["looked without a tenant"] += 1
    return ended


@pytest.mark.requirement("I10")
def test_thousands_of_alternations_of_tenants_over_four_connections_meet_no_foreign_row(house: House) -> None:
    make_invoices(house, tenants=TENANTS)

    async def story() -> Counter[str]:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the pool tells of transactions left open
        size = {"min_size": CONNECTIONS, "max_size": CONNECTIONS}
        async with asyncpg.create_pool(house.dsn("app"), **size, connection_class=Unreset) as pool:
            users = 2 * CONNECTIONS
            ends = await asyncio.gather(*(alternate(pool, ALTERNATIONS // users, seed) for seed in range(users)))
        return sum(ends, Counter())

    ended = asyncio.run(story())
    assert ended["completed"] + ended["failed"] + ended["cancelled"] == ALTERNATIONS
    assert min(ended["failed"], ended["cancelled"], ended["looked without a tenant"]) > ALTERNATIONS / 50
