"""Bringing a database's schema up to date: numbered migrations, run under one lock, each in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files

import psycopg
from psycopg import sql as quoting

from fairlane.errors import SchemaOutOfDate
from fairlane.stores.base import Migration
from fairlane.stores.postgres.answering import Connection
from fairlane.stores.postgres.connecting import Connector
from fairlane.stores.postgres.function_set import functions
from fairlane.stores.postgres.translating import SCHEMA_VERSION, Again, Lost, translated, unreachable


def migrations() -> tuple[Migration, ...]:
    tables = (files("fairlane.stores.postgres") / "migrations" / "0001_foundation.expand.sql").read_text("utf-8")
    return (Migration(1, "foundation", "expand", f"{tables}\n{functions()}"),)


def script(migration: Migration, schema: str) -> str:
    """One migration as plain SQL that can be run by hand: all of it or nothing."""
    name = quoting.Identifier(schema).as_string(None)
    literal = quoting.Literal(schema).as_string(None)
    return (
        f"-- Fairlane schema, version {migration.version}: {migration.name} ({migration.phase})\n"
        # Read committed: who waited for the lock must see what its holder did.
        "begin isolation level read committed;\n"
        "set local statement_timeout = 0;\n"
        "set local lock_timeout = 0;\n"
        "set local client_min_messages = warning;\n"
        f"select pg_advisory_xact_lock(hashtext('fairlane migration'), hashtext({literal}));\n"
        "set local lock_timeout = '3s';\n"
        f"create schema if not exists {name};\n"
        f"set local search_path = {name}, pg_temp;\n"
        "create table if not exists schema_version (version integer primary key, name text not null, applied_at timestamptz not null default now());\n"
        f"{migration.sql}\n"
        f"insert into schema_version (version, name) values ({migration.version}, '{migration.name}');\n"
        # The comment lets a check read the version in the same query that finds the schema missing.
        f"comment on schema {name} is 'Fairlane jobs, schema version {migration.version}';\n"
        "commit;\n"
    )


class PostgresMigrator:
    needed = SCHEMA_VERSION

    def __init__(self, connector: Connector, schema: str) -> None:
        self._connector, self._schema = connector, schema

    def current(self) -> int:
        with self._connected() as conn:
            return self._current(conn)

    def pending(self) -> tuple[Migration, ...]:
        current = self.current()
        return tuple(m for m in migrations() if m.version > current)

    def sql(self) -> str:
        """Every migration as one script, made without a connection."""
        return "\n".join(script(m, self._schema) for m in migrations())

    def up(self) -> tuple[Migration, ...]:
        with self._connected() as conn:
            current = self._current(conn)
            if current > self.needed:
                raise SchemaOutOfDate(current, self.needed)
            return tuple(m for m in migrations() if m.version > current and self._apply(conn, m))

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """A connection for one visit. Closing it rolls back what was not committed: a migration is there whole, or not at all."""
        conn = self._connector.connect(patient=True)
        try:
            yield conn
        except psycopg.Error as error:
            found = translated(error)
            raise (unreachable(error) if isinstance(found, Lost | Again) else found) from error
        finally:
            conn.close()

    def _apply(self, conn: Connection, migration: Migration) -> bool:
        # The first part ends holding the lock: whoever waited for it finds the work done.
        head, mark, tail = script(migration, self._schema).partition("set local lock_timeout = '3s'")
        conn.execute(head.encode())
        if self._current(conn) >= migration.version:
            conn.execute("rollback")
            return False
        conn.execute((mark + tail).encode())
        return True

    def _current(self, conn: Connection) -> int:
        # Read from the catalog: to_regclass may answer from a cache filled before we waited for the lock.
        found = conn.execute(
            "select has_table_privilege(c.oid, 'select'), obj_description(n.oid, 'pg_namespace') "
            "from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace "
            "where n.nspname = %s and c.relname = 'schema_version'",
            (self._schema,),
        ).fetchone()
        if found is None:
            return 0
        if not found[0]:  # isolated: who only works or enqueues reads no table, but may know the version
            version = (found[1] or "").rpartition(" ")[2]
            return int(version) if version.isdigit() else 0
        table = quoting.Identifier(self._schema, "schema_version")
        row = conn.execute(quoting.SQL("select coalesce(max(version), 0) from {}").format(table)).fetchone()
        return int(row[0]) if row else 0
