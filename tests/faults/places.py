"""A database of the test's own, reached directly, through a proxy, or past Fairlane altogether."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer


class Place:
    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server, self.name = server, name

    @property
    def dsn(self) -> str:
        return self.server.dsn(self.name)

    def through(self, port: int, options: str = "") -> str:
        """The same database by way of something that listens on another port."""
        return self.server.dsn(self.name, port=port) + (f"?{options}" if options else "")

    def rows(self, sql: str, *params: object) -> list[tuple[Any, ...]]:
        """What the database itself says."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            cursor = conn.execute(sql.encode(), params)
            return cursor.fetchall() if cursor.description else []

    def number(self, sql: str, *params: object) -> int:
        return int(self.rows(sql, *params)[0][0])

    def jobs(self) -> int:
        return self.number("select count(*) from fairlane.job")

    def sessions_waiting(self) -> int:
        """How many sessions here wait for a lock."""
        return self.number(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )

    def end_sessions(self) -> int:
        """End every other session here, as an administrator would."""
        return self.number(
            "select count(*) filter (where pg_terminate_backend(pid)) from pg_stat_activity "
            "where datname = current_database() and pid <> pg_backend_pid()"
        )


class ValkeyPlace:
    """A server of the test's own that keeps what it acknowledged."""

    def __init__(self, server: ValkeyServer) -> None:
        self.server = server

    def through(self, port: int) -> str:
        return f"redis://127.0.0.1:{port}/0"

    def end_sessions(self) -> int:
        return int(self.server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
