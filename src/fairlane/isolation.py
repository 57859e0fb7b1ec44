"""Keeps tenants apart in an application's own PostgreSQL tables: the policy, and the tenant set for each transaction.

The guide is docs/guides/isolation.md.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from fairlane.client.context import in_scope, tenant_in_force
from fairlane.errors import InvalidOption
from fairlane.stores.base import driver_connection

C = TypeVar("C")

_TYPE = re.compile(r"[a-z][a-z0-9_ ]*")


def protect_sql(table: str, *, column: str = "tenant_id", type: str = "text") -> str:
    """SQL for a migration of yours: every role then sees and writes in `table` only the rows of the tenant that is set.

    `table` is `schema.table` or `table`, and like `column` as the catalog has it; `type` is the column's, and what a
    tenant's name is cast to. It binds the owner too, but no superuser and no role with BYPASSRLS. Other policies on the
    table can narrow this, never widen it. May be run again. TRUNCATE knows no policies: grant it to nobody.
    """
    target = ".".join(_quoted("table", part) for part in str(table).split(".", 1))
    if not _TYPE.fullmatch(str(type)):
        raise InvalidOption("type", type, "the name of a PostgreSQL type, such as text, bigint or uuid")
    cast = "" if type == "text" else f"::{type}"
    condition = f"{_quoted('column', column)} = nullif(current_setting('fairlane.tenant', true), ''){cast}"
    lines = [f"alter table {target} enable row level security;", f"alter table {target} force row level security;"]
    check = f"using ({condition})\n  with check ({condition})"
    # Permissive policies widen each other; the restrictive one holds whatever else is allowed.
    for name, kind in (("fairlane_tenant", "permissive"), ("fairlane_tenant_only", "restrictive")):
        lines += [
            f"drop policy if exists {name} on {target};",
            f"create policy {name} on {target} as {kind} for all to public\n  {check};",
        ]
    return "\n".join(lines) + "\n"


def isolate(conn: object, tenant: str | int | None = None) -> str:
    """Let the open transaction on `conn` see only the rows of the tenant in force, and return its name.

    `conn` is a psycopg connection, a Connection or Session of SQLAlchemy over PostgreSQL, or Django's `connection`. It
    holds until the transaction ends, so it is safe with pools. Inside a job the job's tenant is in force. Raises
    `PermissionDenied` for another tenant than the one in force, and in a transaction that is another tenant's already;
    `NoTransaction` where there is none to hold it.
    """
    from fairlane.stores.postgres.borrowed import set_tenant

    name = _tenant_for(tenant)
    set_tenant(driver_connection(conn), name)
    return name


async def aisolate(conn: object, tenant: str | int | None = None) -> str:
    """The twin of `isolate`, also for asyncpg and the async connections and sessions of psycopg and SQLAlchemy."""
    from fairlane.stores.postgres.borrowed import aset_tenant

    name = _tenant_for(tenant)
    await aset_tenant(conn, name)
    return name


@contextmanager
def tenant_transaction(conn: C, tenant: str | int | None = None) -> Iterator[C]:
    """A transaction on `conn`, isolated from its first statement; committed at the end, rolled back on an exception."""
    _tenant_for(tenant)
    with _begun(conn):
        isolate(conn, tenant)
        yield conn


@asynccontextmanager
async def atenant_transaction(conn: C, tenant: str | int | None = None) -> AsyncIterator[C]:
    _tenant_for(tenant)
    async with _begun(conn):
        await aisolate(conn, tenant)
        yield conn


def _tenant_for(tenant: str | int | None) -> str:
    """The one named, if it may be; else the one in force."""
    name = in_scope(tenant).tenant or tenant_in_force.get()
    if name is None:
        raise InvalidOption("tenant", None, "a name, or a tenant in force: inside a job, or inside `with tenant(…)`")
    return name


def _begun(conn: Any) -> Any:
    """psycopg and asyncpg: `transaction()`. SQLAlchemy: `begin()`, inside a transaction a savepoint."""
    if hasattr(conn, "transaction"):
        return conn.transaction()
    if not hasattr(conn, "begin_nested"):
        raise InvalidOption("conn", conn, "a psycopg, asyncpg or SQLAlchemy connection or session")
    return conn.begin_nested() if conn.in_transaction() else conn.begin()


def _quoted(option: str, name: object) -> str:
    if not isinstance(name, str) or not name or "\0" in name or len(name.encode()) > 63:
        raise InvalidOption(option, name, "a name of 1 to 63 bytes")
    return '"' + name.replace('"', '""') + '"'
