"""A table of the application's own, with rows of two tenants, protected as the guide says."""

from __future__ import annotations

import psycopg
from psycopg import sql

from fairlane.isolation import protect_sql
from tests.isolation.house import House

EACH = 3
"""How many invoices each tenant has."""


def make_invoices(house: House, *, tenants: tuple[str, ...] = ("acme", "globex")) -> None:
    app = sql.Identifier(house.login("app"))
    with psycopg.connect(house.superuser, autocommit=True) as conn:
        conn.execute("drop schema if exists app cascade")
        conn.execute(sql.SQL("create schema app authorization {}").format(app))
        # The application owns its table, as most do: only `force` holds an owner to a policy.
        conn.execute(sql.SQL("set role {}").format(app))
        conn.execute(
            "create table app.invoice (id integer primary key, tenant_id text not null, cents integer not null)"
        )
        for start, tenant in enumerate(tenants):
            conn.execute(
                "insert into app.invoice select n, %s, 100 from generate_series(%s::integer, %s::integer) n",
                (tenant, start * EACH + 1, start * EACH + EACH),
            )
        conn.execute(protect_sql("app.invoice", column="tenant_id").encode())
