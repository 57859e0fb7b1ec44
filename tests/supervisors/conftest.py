"""A database with the queue contract for every test, copied from one template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from fairlane.stores.postgres import PostgresStore
from fairlane.supervisors.contract import CONTRACT
from tests.support.stores import SCHEMA_TEMPLATE, Ground, ground

__all__ = ["ground"]

TEMPLATE = "supervisors_template"


class Database:
    """A database with the contract in it, and a session of its owner."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.owner = psycopg.connect(dsn, autocommit=True)

    def ask(self, query: str, *params: object) -> list[Any]:
        return self.owner.execute(query.encode(), params or None).fetchall()

    def one(self, query: str, *params: object) -> Any:
        [(value,)] = self.ask(query, *params)
        return value

    def do(self, script: str, *params: object) -> None:
        self.owner.execute(script.encode(), params or None)

    def worker(self) -> psycopg.Connection[Any]:
        """A session with the rights of `worker_service_user`, and no others."""
        conn = psycopg.connect(self.dsn, autocommit=True)
        conn.execute("set session authorization worker_service_user")
        return conn


def install(dsn: str) -> None:
    store = PostgresStore(dsn)
    store.migrator().up()
    store.migrator(CONTRACT).up()
    store.close()


@pytest.fixture(scope="session")
def template(ground: Ground) -> str:
    install(ground.server.create_database(TEMPLATE, template=SCHEMA_TEMPLATE))
    return TEMPLATE


@pytest.fixture(scope="session")
def shared(ground: Ground, template: str) -> Iterator[Database]:
    found = Database(ground.server.create_database("supervisors", template=template))
    yield found
    found.owner.close()


@pytest.fixture
def db(shared: Database) -> Database:
    """The database of all tests that leave its schema alone, emptied."""
    shared.do(_EMPTY)
    return shared


_EMPTY = """
select fairlane.purge_v1('{}');
alter table queues.error disable trigger user;
delete from queues.error;
alter table queues.error enable trigger user;
do $$ declare _schema name; begin
for _schema in select nspname from pg_namespace
  where nspname !~ '^(pg_|information_schema)' and nspname not in ('fairlane', 'queues', 'internal', 'public') loop
  execute format('drop schema %I cascade', _schema);
end loop;
end $$;
reset all;
"""
