"""An isolated PostgreSQL store, and log-in roles that are granted one thing each."""

from __future__ import annotations

from typing import Any, TypeVar, get_args

import psycopg
import pytest
from psycopg import sql

from fairlane.core.ops import Op, Purge
from fairlane.stores.base import Capability
from fairlane.stores.postgres import PostgresStore
from fairlane.stores.postgres.roles import Caller, callable_by
from fairlane.stores.postgres.store import call_for
from tests.isolation.every_operation import called
from tests.servers.postgres import PostgresServer

T = TypeVar("T")

GRANTED = {
    **{role: (role,) for role in ("worker", "api", "enqueue", "tokens", "read")},
    "app": (),
    "stranger": (),
}
"""Log-in roles, and what each is granted of Fairlane's."""


class House:
    """One isolated database; `dsn("api")` logs in as a role that is granted the api role and nothing else."""

    def __init__(self, server: PostgresServer, database: str, *, given_clock: bool = True) -> None:
        self.server, self.database = server, database
        self.superuser = server.dsn(database)
        store = PostgresStore(self.superuser)
        store.isolator().apply()
        store.close()
        with psycopg.connect(self.superuser, autocommit=True) as conn:
            if given_clock:  # tests give instants, whoever they log in as
                conn.execute(
                    "create or replace function fairlane.instant_of(_at timestamptz) returns timestamptz "
                    "language sql volatile return coalesce(_at, clock_timestamp())"
                )
            for kind, granted in GRANTED.items():
                login = sql.Identifier(self.login(kind))
                conn.execute(sql.SQL("create role {} login").format(login))
                for group in granted:
                    conn.execute(sql.SQL("grant {} to {}").format(sql.Identifier(f"fairlane_{group}"), login))
        for kind in GRANTED:
            require_held_by_policies(self.dsn(kind))

    def login(self, kind: str) -> str:
        return f"{self.database}_{kind}"

    def dsn(self, kind: str) -> str:
        return self.server.dsn(self.database, self.login(kind))

    def connect(self, kind: str, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn(kind), **options)

    def tables(self) -> list[str]:
        with psycopg.connect(self.superuser) as conn:
            rows = conn.execute(
                "select relname from pg_class where relnamespace = 'fairlane'::regnamespace and relkind = 'r' order by 1"
            )
            return [row[0] for row in rows]

    def everything(self) -> dict[str, list[Any]]:
        """Every row of every table."""
        with psycopg.connect(self.superuser) as conn:
            return {
                table: conn.execute(
                    sql.SQL("select t::text from fairlane.{} t order by 1").format(sql.Identifier(table))
                ).fetchall()
                for table in self.tables()
            }


class Separated:
    """The isolated store as its processes see it: each operation goes in as the first role that may ask it."""

    capabilities: frozenset[Capability] = PostgresStore.capabilities

    def __init__(self, house: House) -> None:
        self._house = house
        self._stores = {role: PostgresStore(house.dsn(role)) for role in get_args(Caller)}

    def run(self, op: Op[T]) -> T:
        if isinstance(op, Purge):
            self._purge()
            return None  # type: ignore[return-value]
        function = called(op)
        return next(self._stores[role] for role in get_args(Caller) if function in callable_by(role)).run(op)

    def _purge(self) -> None:
        """No role of an isolated store may remove the audit: only who is above all policies empties it, between tests."""
        with psycopg.connect(self._house.superuser) as conn:
            call = call_for(Purge())
            conn.execute(call.sql.replace("{schema}", "fairlane").encode(), call.params)

    def close(self) -> None:
        for store in self._stores.values():
            store.close()


def require_held_by_policies(dsn: str) -> None:
    """A test of isolation that runs above the policies would prove nothing: it fails here."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute(
            "select rolname, rolsuper, rolbypassrls, pg_has_role('fairlane_engine', 'member'), pg_has_role('fairlane_owner', 'member') "
            "from pg_roles where rolname = current_user"
        ).fetchone()
    assert row is not None
    if any(row[1:]):
        pytest.fail(
            f"role {row[0]} is above the policies: superuser, BYPASSRLS, or a member of the engine or the owner"
        )
