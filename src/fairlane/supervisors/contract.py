"""The queue contract in SQL: its files, how they are installed beside a store's schema, and a session that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql as quoting

from fairlane.client.settings.model import Settings
from fairlane.errors import ConfigError
from fairlane.stores.postgres.connection import Connection, PostgresConnector, parameters
from fairlane.stores.postgres.errors import unreachable
from fairlane.stores.postgres.schema import SchemaFiles

RELEASE = 1
"""Raised with the first change in functions/ after a release of Fairlane."""

QUEUE = "supervisors"
"""The queue in which every task of the contract is a job."""

WORKER_ROLE = "worker_service_user"

RUNNER = "internal.run_function"
"""What it refuses itself names it as the constraint: a function that lacks a right of its own has run and failed."""


_MISSING = (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction, psycopg.errors.UndefinedTable)


@contextmanager
def session(settings: Settings, url: str | None = None) -> Iterator[Connection]:
    """A connection for a few statements, as the role of an address; the store's by default."""
    params = parameters(url or settings.url, statement_timeout_s=settings.statement_timeout_s, lock_timeout_s=3.0)
    conn = PostgresConnector(params, settings.statement_timeout_s).connect(patient=True)
    try:
        yield conn
    except psycopg.Error as error:
        if isinstance(error, _MISSING) and not _is_installed(conn):
            way = "run `fairlane migrate up --with supervisors`, or `fairlane supervisors take-over` of another worker"
            raise ConfigError(f"the supervisors are not installed in this database; {way}") from error
        raise unreachable(error) from error
    finally:
        conn.close()


def _is_installed(conn: Connection) -> bool:
    conn.rollback()
    [(found,)] = conn.execute("select to_regclass('queues.schema_version') is not null").fetchall()
    return bool(found)


def contract_text(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")


def _rights(schema: str) -> str:
    return contract_text("rights.sql").replace(
        "{schema}", quoting.Literal(quoting.Identifier(schema).as_string(None)).as_string(None)
    )


CONTRACT = SchemaFiles(Path(__file__).parent, RELEASE, home="queues", guard=contract_text("guard.sql"), rights=_rights)
