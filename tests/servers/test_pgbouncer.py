"""The test pooler pools by transaction, so that tests through it mean something."""

from __future__ import annotations

import psycopg
import pytest

from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import shared_server


@pytest.mark.parametrize("pool_size", [1, 2])
def test_through_the_pooler_connections_share_sessions_between_transactions(pool_size: int) -> None:
    server = shared_server()
    server.create_database(f"pooled_{pool_size}")
    with PgBouncer(server, pool_size=pool_size) as pooler:
        clients = [psycopg.connect(pooler.dsn(f"pooled_{pool_size}")) for _ in range(4)]
        backends = set()
        for client in clients:
            row = client.execute("select pg_backend_pid(), current_user").fetchone()
            client.commit()
            assert row is not None
            backends.add(row[0])
            assert row[1] == "postgres"
        assert len(backends) <= pool_size
        for client in clients:
            client.close()
    server.drop_database(f"pooled_{pool_size}")


def test_who_connects_through_the_pooler_keeps_their_role() -> None:
    server = shared_server()
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("create role pooled_worker login")
    with (
        PgBouncer(server) as pooler,
        psycopg.connect(pooler.dsn(user="pooled_worker"), prepare_threshold=None) as client,
    ):
        assert client.execute("select current_user").fetchone() == ("pooled_worker",)
