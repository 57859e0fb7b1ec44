"""Migrates a PostgreSQL schema: numbered migrations first, then all functions at once, each step in one transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from psycopg import sql as quoting

from fairlane.errors import OldWorkersAlive, StoreUnavailable
from fairlane.stores.migrations import Migration, SchemaState, require
from fairlane.stores.postgres.connection import Connection, PostgresConnector
from fairlane.stores.postgres.errors import STORE, translated, unreachable
from fairlane.stores.postgres.roles import isolation_block, no_newer_functions
from fairlane.stores.postgres.schema import CORE, SchemaFiles, step_sql
from fairlane.stores.retries import BUSY, PAUSES_S, Again, Lost

T = TypeVar("T")

_BEGIN = (
    # Read committed: who waited for the lock must see what its holder did.
    "begin isolation level read committed;\nset local statement_timeout = 0;\n"
    # No function of a schema in which others may make some: they would run as the one who migrates.
    "set local search_path = pg_catalog, pg_temp;\n"
)
_COMMIT = "commit;\n"
_LOCKED = "-- From here on nobody else migrates this schema.\n"


def script(step: Migration, schema: str, part: SchemaFiles = CORE) -> str:
    """One step as plain SQL that can be run by hand, any number of times: all of it or nothing."""
    literal = quoting.Literal(schema).as_string(None)
    homes = (part.home, schema) if part.home else (schema,)
    path = ", ".join(quoting.Identifier(name).as_string(None) for name in homes)
    return (
        f"-- Fairlane {_title(step)}\n"
        f"{_BEGIN}"
        "set local lock_timeout = 0;\n"
        "set local client_min_messages = warning;\n"
        "set local standard_conforming_strings = on;\n"
        f"select pg_advisory_xact_lock(hashtext('fairlane migration'), hashtext({literal}));\n"
        f"{_LOCKED}"
        "set local lock_timeout = '3s';\n"
        f"{step_sql('place').replace('{schema}', quoting.Literal(homes[0]).as_string(None))}"
        f"set local search_path = {path}, pg_temp;\n"
        f"{part.guard}"
        f"{step_sql('books')}"
        f"{_body(step, part)}"
        f"{step_sql('describe')}"
        f"{step_sql('private')}"
        f"{isolation_block(schema)}"
        f"{part.rights(schema)}"
        f"{_COMMIT}"
    )


class PostgresMigrator:
    def __init__(self, connector: PostgresConnector, schema: str, part: SchemaFiles = CORE) -> None:
        self._connector, self._schema, self._part = connector, schema, part
        self._home = part.home or schema
        self.needed = part.migrations.needed

    def state(self) -> SchemaState:
        with self._connected() as conn:
            return self._state(conn)

    def require(self) -> None:
        require(self.state(), self.needed, f'schema "{self._home}"')

    def pending(self, to: int | None = None) -> tuple[Migration, ...]:
        with self._connected() as conn:
            return self._pending(conn, to)

    def up(self, to: int | None = None) -> tuple[Migration, ...]:
        """Functions of a newer release are left as they are, and so is a schema that is expanded further."""
        with self._connected() as conn:
            return tuple(step for step in self._pending(conn, to) if self._apply(conn, step, self._pending))

    def up_at_once(
        self, first: Callable[[Connection], object], last: Callable[[Connection], T], *, dry_run: bool = False
    ) -> T | None:
        """All pending steps in one transaction, between the two; None: there was nothing to do, and neither was called.

        With `dry_run` it is rolled back.
        """
        with self._connected() as conn:
            steps = self._pending(conn)
            if not steps:
                return None

            def apply() -> T:
                conn.execute(f"{_BEGIN}set local lock_timeout = '10s';".encode())
                first(conn)
                for step in steps:
                    text = script(step, self._schema, self._part)
                    conn.execute(text.replace(_BEGIN, "", 1).removesuffix(_COMMIT).encode())
                answer = last(conn)
                conn.execute(b"rollback" if dry_run else b"commit")
                return answer

            return _repeated(conn, apply)

    def contracting(self) -> tuple[Migration, ...]:
        with self._connected() as conn:
            return self._contracting(conn)

    def contract(self) -> tuple[Migration, ...]:
        with self._connected() as conn:
            steps = self._contracting(conn)
            if steps and (names := self._old_workers(conn)):
                raise OldWorkersAlive(names)
            return tuple(step for step in steps if self._apply(conn, step, self._contracting))

    def script(self, to: int | None = None) -> str:
        """Every step as one script; those that are done already do nothing."""
        steps = self._part.migrations.pending(SchemaState(), to)
        whole = steps if steps[-1].version < self.needed.expanded else (*steps, self._part.functions_step)
        return "\n".join(script(step, self._schema, self._part) for step in whole)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """A connection of its own. Closing it rolls back what was not committed: a step is whole, or not there."""
        conn = self._connector.connect(patient=True)
        try:
            yield conn
        except psycopg.Error as error:
            found = translated(error)
            if isinstance(found, Again):
                raise StoreUnavailable(STORE, str(found), BUSY) from error
            raise (unreachable(error) if isinstance(found, Lost) else found) from error
        finally:
            conn.close()

    def _apply(self, conn: Connection, step: Migration, due: Callable[[Connection], tuple[Migration, ...]]) -> bool:
        # The first part ends holding the lock: whoever waited for it finds the work done.
        head, mark, tail = script(step, self._schema, self._part).partition(_LOCKED)

        def apply() -> bool:
            conn.execute(head.encode())
            if step not in due(conn):
                conn.execute("rollback")
                return False
            conn.execute((mark + tail).encode())
            return True

        return _repeated(conn, apply)

    def _pending(self, conn: Connection, to: int | None = None) -> tuple[Migration, ...]:
        state, found_checksum, _ = self._books(conn)
        steps = self._part.migrations.pending(state, to)
        if to is not None and to < self.needed.expanded:  # the functions need every table of this release
            return steps
        is_same = state.functions == self.needed.functions and found_checksum in (self._part.checksum, None)
        return steps if is_same or state.functions > self.needed.functions else (*steps, self._part.functions_step)

    def _contracting(self, conn: Connection) -> tuple[Migration, ...]:
        state, _, has_obsolete = self._books(conn)
        steps = self._part.migrations.contracting(state)
        obsolete = Migration(0, "functions of earlier releases", "obsolete", step_sql("obsolete"))
        return (obsolete, *steps) if has_obsolete else steps

    def _old_workers(self, conn: Connection) -> list[str]:
        found = conn.execute(
            quoting.SQL(
                "select name from {} where expires_at > now() "
                "and (coalesce((figures->>'schema.version')::float8, 0) < %s "
                "or coalesce((figures->>'schema.functions')::float8, 0) < %s) order by 1"
            ).format(quoting.Identifier(self._schema, "worker")),
            (self.needed.expanded, self.needed.functions),
        )
        return [name for (name,) in found.fetchall()]

    def _state(self, conn: Connection) -> SchemaState:
        return self._books(conn)[0]

    def _books(self, conn: Connection) -> tuple[SchemaState, str | None, bool]:
        """The state, the checksum of the functions (None: this role may not read it), and whether some are obsolete."""
        # Read from the catalog: to_regclass may answer from a cache filled before we waited for the lock.
        found = conn.execute(
            "select has_table_privilege(c.oid, 'select'), obj_description(n.oid, 'pg_namespace') "
            "from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace "
            "where n.nspname = %s and c.relname = 'schema_version'",
            (self._home,),
        ).fetchone()
        if found is None:
            return SchemaState(), "", False
        if not found[0]:  # isolated: who only works or enqueues reads no table, but may know the state
            return SchemaState.described(found[1] or ""), None, False
        table = quoting.Identifier(self._home, "schema_version").as_string(None)
        rows = conn.execute(step_sql("read_books").replace("{table}", table).encode()).fetchall()
        expanded, contracted, functions, found_checksum, has_obsolete = rows[0]
        return SchemaState(expanded, contracted, functions), found_checksum or "", has_obsolete


def _repeated(conn: Connection, transaction: Callable[[], T]) -> T:
    """Running code takes tables in orders of its own: a migration may be what a deadlock undoes."""
    for pause_s in PAUSES_S:
        try:
            return transaction()
        except psycopg.errors.DeadlockDetected:
            conn.execute("rollback")
            time.sleep(pause_s)
    return transaction()


def _title(step: Migration) -> str:
    if step.phase == "functions":
        return f"{step.name}, release {step.version}"
    return f"schema, version {step.version}: {step.name} ({step.phase})"


def _body(step: Migration, part: SchemaFiles) -> str:
    if step.phase == "obsolete":
        return step.sql
    if step.phase == "functions":
        types, views = part.types_and_views
        record = step_sql("record_functions").replace("{release}", str(step.version))
        record = record.replace("{checksum}", part.checksum)
        names = {"{types}": types, "{views}": views}
        for mark, found in names.items():
            record = record.replace(mark, ", ".join(f"'{name}'" for name in found))
        return f"{no_newer_functions('schema_version', part)}{step_sql('first_functions')}{step.sql}\n{record}"
    row = f"({step.version}, '{step.phase}', '{step.name}')"
    return (
        "do $migration$ begin\n"
        f"if exists (select from schema_version where (version, phase) = ({step.version}, '{step.phase}')) then\n"
        "  return;\n"
        "end if;\n"
        f"execute $step$\n{step.sql}\n$step$;\n"
        f"insert into schema_version (version, phase, name) values {row};\n"
        "end $migration$;\n"
    )
