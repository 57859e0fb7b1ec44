"""Tenants' rows in an application's own PostgreSQL tables, kept apart by the database (docs/guides/isolation.md)."""

from fairlane.client.isolating import (
    aisolate as aisolate,
    atenant_transaction as atenant_transaction,
    isolate as isolate,
    protect_sql as protect_sql,
    tenant_transaction as tenant_transaction,
)
