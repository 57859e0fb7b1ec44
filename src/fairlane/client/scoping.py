"""Whose jobs a call may see: one tenant's, or everyone's."""

from __future__ import annotations

from fairlane.core.names import check_tenant
from fairlane.core.ops import ALL_TENANTS, Scope, only


def in_scope(tenant: str | int | None) -> Scope:
    """None: all tenants. The tenant in force does not narrow it: reading is explicit."""
    return ALL_TENANTS if tenant is None else only(check_tenant(tenant))
