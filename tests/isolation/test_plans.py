"""Isolation costs the hot paths nothing: under the engine's policy they touch the pages they touched without."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import psycopg
import pytest

from fairlane.core.limits import Limit
from fairlane.stores.postgres import PostgresStore
from tests.plans.conftest import Session
from tests.support.stores import SCHEMA_TEMPLATE, Ground

WAITING, TENANTS = 50_000, 100


@pytest.fixture(scope="module")
def pair(ground: Ground) -> Iterator[tuple[Session, Session]]:
    """Two stores with the same backlog: one with one role, one isolated."""
    sessions = []
    for name in ("one_role", "separated"):
        dsn = ground.server.create_database(name, template=SCHEMA_TEMPLATE)
        if name == "separated":
            store = PostgresStore(dsn)
            store.isolator().apply()
            store.close()
        session = Session(dsn)
        session.conn.execute("alter table fairlane.ready set (autovacuum_enabled = off)")
        session.load(WAITING, tenants=TENANTS, first=1_000_000)
        sessions.append(session)
    yield sessions[0], sessions[1]
    for session in sessions:
        session.conn.close()


CLAIMS: dict[str, Callable[[Session], tuple[int, int]]] = {
    "one": lambda session: session.claim(1),
    "a hundred": lambda session: session.claim(100),
    "a hundred under limits": lambda session: session.claim(
        100, limits=(Limit(kind="tenant", name="*", running=5), Limit(kind="queue", name="default", running=200))
    ),
    "of one tenant": lambda session: session.claim(
        100,
        takes=[{"queue": "default", "band": 5, "tenant": "tenant-00007", "limit": 100}],
        discover=False,
    ),
}


@pytest.mark.requirement("I10")
@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_touches_the_same_pages_isolated_or_not(pair: tuple[Session, Session], claim: str) -> None:
    touched = []
    for session in pair:
        for _ in range(4):
            given, pages = CLAIMS[claim](session)
        assert given > 0
        touched.append(pages)
    assert touched[1] == pytest.approx(touched[0], rel=0.05)


ENQUEUE = [{"id": "01990000-0000-7000-8000-{:012x}", "type": "noop", "tenant": "tenant-00007", "payload": {}}]


@pytest.mark.requirement("I10")
def test_an_enqueue_touches_the_same_pages_isolated_or_not(pair: tuple[Session, Session]) -> None:
    touched = [min(_enqueued(session.conn, n) for n in range(8)) for session in pair]
    assert touched[1] == pytest.approx(touched[0], rel=0.1)


def _enqueued(conn: psycopg.Connection[tuple[object, ...]], n: int) -> int:
    jobs = json.dumps(ENQUEUE).replace("{:012x}", f"{n:012x}")
    query = "explain (analyze, buffers, format json) select fairlane.enqueue_v1(%s::json)"
    [row] = conn.execute(query, (jobs,)).fetchall()
    plan: dict[str, int] = row[0][0]["Plan"]  # type: ignore[index]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
