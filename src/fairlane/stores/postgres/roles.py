"""Separates roles so that the database itself keeps tenants apart, and tells how a role stands."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import psycopg
from msgspec import json
from psycopg import sql as quoting

from fairlane.errors import ConfigError, SchemaOutOfDate, StoreError
from fairlane.stores.migrations import SchemaState, require
from fairlane.stores.postgres.connection import PostgresConnector
from fairlane.stores.postgres.errors import translated, unreachable
from fairlane.stores.postgres.schema import CORE, SchemaFiles, step_sql
from fairlane.stores.retries import Again, Lost

_FUNCTION = re.compile(r"((?:^--.*\n)+)create or replace function (\w+)", re.MULTILINE)
_ROLE = re.compile(r"^-- role: +(.+)$", re.MULTILINE)


Caller = Literal["worker", "api", "enqueue", "tokens"]


@cache
def callable_by(role: Caller) -> tuple[str, ...]:
    """The functions a role may call, as their headers in the SQL files say: `-- role:   worker, api`.

    A function without such a line belongs to the engine alone.
    """
    headers = {name: _ROLE.search(header) for header, name in _FUNCTION.findall(CORE.functions)}
    return tuple(sorted(name for name, found in headers.items() if found and role in found[1].split(", ")))


class Roles(NamedTuple):
    """The names of the roles; none of them logs in: grant all but the first two to your own."""

    owner: str
    engine: str
    worker: str
    api: str
    enqueue: str
    tokens: str
    read: str

    @classmethod
    def prefixed(cls, prefix: str) -> Roles:
        roles = cls(*(f"{prefix}_{part}" for part in cls._fields))
        if not prefix or "\0" in prefix or "$" in prefix or max(len(role.encode()) for role in roles) > 63:
            raise ConfigError(f"prefix = {prefix!r}: expected 1 to 55 bytes without $, for role names of at most 63")
        return roles


class Isolation(NamedTuple):
    """How tenants are kept apart for the role that asked."""

    state: Literal["database", "convention", "bypassed", "incomplete"]
    role: str
    says: str


def isolation_block(schema: str, prefix: str | None = None) -> str:
    """Separates the roles; without a prefix only where that was done before, for what has been added since."""
    text = Path(__file__).with_name("isolation.sql").read_text("utf-8")
    calls = json.encode({role: callable_by(role) for role in get_args(Caller)}).decode()
    for name, value in {"schema": schema, "calls": calls, "prefix": prefix}.items():
        text = text.replace(f"{{{name}}}", quoting.Literal(value).as_string(None).strip())
    return text


def no_newer_functions(table: str, part: SchemaFiles = CORE) -> str:
    """SQL that stops a script of this release where a newer one has applied its functions already."""
    return step_sql("no_newer_functions").replace("{table}", table).replace("{release}", str(part.release))


class PostgresIsolator:
    def __init__(self, connector: PostgresConnector, schema: str, *parts: SchemaFiles) -> None:
        """`parts`: what stands beside the store's schema, where it was installed, and follows its rights."""
        self._connector, self._schema, self._parts = connector, schema, parts

    def script(self, prefix: str | None = None) -> str:
        """The whole change as plain SQL that can be run by hand: all of it or nothing."""
        prefix = prefix or self._schema
        Roles.prefixed(prefix)
        schema = quoting.Literal(self._schema).as_string(None)
        return (
            "begin isolation level read committed;\n"
            "set local statement_timeout = 0;\n"
            "set local lock_timeout = 0;\n"
            "set local client_min_messages = warning;\n"
            "set local search_path = pg_catalog, pg_temp;\n"
            f"select pg_advisory_xact_lock(hashtext('fairlane migration'), hashtext({schema}));\n"
            "set local lock_timeout = '3s';\n"
            f"{no_newer_functions(quoting.Identifier(self._schema, 'schema_version').as_string(None))}"
            f"{isolation_block(self._schema, prefix)}"
            f"{''.join(part.rights(self._schema) for part in self._parts)}"
            "commit;\n"
        )

    def apply(self, prefix: str | None = None) -> Roles:
        """Make it so. Needs a role that owns the schema and may create roles, or a superuser."""
        text = self.script(prefix)
        needed = CORE.migrations.needed
        if self.look() is None:
            raise SchemaOutOfDate(0, needed.expanded, why=f'schema "{self._schema}" does not exist')
        conn = self._connector.connect(patient=True)
        try:
            [(comment,)] = conn.execute(_COMMENT, {"schema": self._schema}).fetchall()
            state = SchemaState.described(comment or "")
            require(state, needed)
            if state.functions > needed.functions:  # functions that this code does not know would lose their callers
                raise SchemaOutOfDate(state.functions, needed.functions, "functions")
            conn.execute(text.encode())
        except psycopg.errors.InsufficientPrivilege as error:
            step = (
                "connect as the owner of the schema with the right to create roles, or let a superuser run "
                "`fairlane migrate isolate --sql`"
            )
            raise StoreError(f"this role may not isolate the store ({error.diag.message_primary}); {step}") from error
        except psycopg.Error as error:
            found = translated(error)
            raise (unreachable(error) if isinstance(found, Lost | Again) else found) from error
        finally:
            conn.close()
        return Roles.prefixed(prefix or self._schema)

    def look(self) -> Isolation | None:
        """How tenants are kept apart for the role we connect as. None: there is no schema."""
        role, bypasses, engine, owner, acts_as, missing = self._state()
        if engine is None:
            return None
        if engine == owner:
            return Isolation("convention", role, "one role owns tables and functions: tenants are told apart by code")
        if missing:
            return Isolation("incomplete", role, f"not taken in yet: {', '.join(missing)}")
        if bypasses:
            return Isolation("bypassed", role, f'role "{role}" is superuser or has BYPASSRLS: no policy holds for it')
        if acts_as:
            return Isolation("bypassed", role, f'role "{role}" is a member of {" and ".join(acts_as)}')
        return Isolation("database", role, f'policies hold for role "{role}"')

    def worker_grant(self) -> str:
        """What lets the role we connect as run jobs."""
        role, _, engine, owner, *_ = self._state()
        if engine is not None and engine != owner:
            return f'`grant {engine.removesuffix("_engine")}_worker to "{role}"`'
        return (
            f'connect as "{owner}", who owns the schema, or separate the roles with `fairlane migrate isolate`, '
            f'and then `grant {self._schema}_worker to "{role}"`'
        )

    def _state(self) -> tuple[Any, ...]:
        conn = self._connector.connect()
        try:
            [row] = conn.execute(step_sql("isolation_state").encode(), {"schema": self._schema}).fetchall()
        except psycopg.Error as error:
            raise unreachable(error) from error
        finally:
            conn.close()
        return tuple(row)


_COMMENT = "select obj_description(oid, 'pg_namespace') from pg_catalog.pg_namespace where nspname = %(schema)s"
