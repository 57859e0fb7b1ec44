"""A migrated database of its own, and sessions that count what a Turn touches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from fairlane.core.limits import Limit
from fairlane.stores.postgres import PostgresStore
from fairlane.stores.postgres.turn import claim_limits
from tests.servers.postgres import PostgresServer

WORKER = "00000000-0000-7000-8000-000000000001"
LOAD = """
with line as (
  select n, 'tenant-' || lpad(mod(n, %(tenants)s)::text, 5, '0') as tenant from generate_series(1, %(count)s) n
), filed as (
  insert into fairlane.job (seq, id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, enqueued_at, due_at)
  select %(first)s + n, gen_random_uuid(), %(type)s, tenant, 'default', 5, 0, '{}', 1, 5, %(due)s::timestamptz, %(due)s::timestamptz from line where n <= %(filed)s
)
insert into fairlane.ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped)
select %(first)s + n, 'default', 5, tenant, 0, %(due)s::timestamptz, %(type)s, 0, 0, 0, false, false from line
"""


class Session:
    """One session as a worker has it: its plans are cached at the first call and kept."""

    def __init__(self, dsn: str) -> None:
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.claim_no = 0
        self.rows = 0
        """How many ready rows the last claim read."""
        self.entries = 0
        """And how many entries of their index, also of rows that are gone."""
        renew = {"worker": WORKER, "lease_s": 36000, "name": "", "queues": [], "types": [], "figures": {}}
        self.conn.execute("select fairlane.renew_v1(%s)", (json.dumps(renew),))

    def claim(self, limit: int = 100, *, limits: tuple[Limit, ...] = (), **want: object) -> tuple[int, int]:
        """Claim and undo it; how many jobs it gave, and how many pages it touched."""
        self.claim_no += 1
        wants = json.dumps(
            [{"lane": "plan", "queues": ["default"], "limit": limit, "start": limit, "types": ["noop"], **want}]
        )
        with self.conn.transaction(force_rollback=True):
            before, entries = self.rows_read(), self._entries_read()
            plan = self._explained(wants, claim_limits(limits))
            self.rows, self.entries = self.rows_read() - before, self._entries_read() - entries
            row = self.conn.execute("select count(*) from fairlane.lease where worker = %s", (WORKER,)).fetchone()
        assert row is not None
        return row[0], plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]

    def rows_read(self) -> int:
        row = self.conn.execute(
            "select seq_tup_read + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables where relid = 'fairlane.ready'::regclass"
        ).fetchone()
        assert row is not None
        return int(row[0])

    def _entries_read(self) -> int:
        row = self.conn.execute("select pg_stat_get_xact_tuples_returned('fairlane.ready_line'::regclass)").fetchone()
        assert row is not None
        return int(row[0])

    def _explained(self, wants: str, limits: str | None) -> dict[str, Any]:
        row = self.conn.execute(
            "explain (analyze, buffers, format json) select * from fairlane.turn_v2(%s, %s, null, null, null, null, null, null, null, %s, "
            "limits => %s)",
            (WORKER, self.claim_no, wants, limits),
        ).fetchone()
        assert row is not None
        plan: dict[str, Any] = row[0][0]["Plan"]
        return plan

    def load(
        self, count: int, *, tenants: int = 1, type: str = "noop", first: int = 0, due: str = "2026-01-02"
    ) -> None:
        """Put ready rows in without ANALYZE; only the first few thousand have a job, which is what claims read."""
        self.conn.execute(
            LOAD,
            {"count": count, "tenants": tenants, "type": type, "first": first, "due": due, "filed": min(count, 20_000)},
        )


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    # Nothing here is kept: that it is written only takes time.
    with PostgresServer(
        {"autovacuum": "off", "max_wal_size": "4GB", "fsync": "off", "full_page_writes": "off"}
    ) as server:
        store = PostgresStore(server.create_database("plans_template"))
        store.migrator().up()
        store.close()
        yield server


@pytest.fixture
def database(server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"plans_{abs(hash(request.node.name)) % 10**9}"
    yield server.create_database(name, template="plans_template")
    server.drop_database(name)


@pytest.fixture
def session(database: str) -> Iterator[Session]:
    session = Session(database)
    yield session
    session.conn.close()
