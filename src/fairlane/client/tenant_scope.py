"""Whose jobs a call may see: one tenant's, or everyone's.

Inside a job, and inside `with tenant(…)`, that is the one tenant's alone: asking for all means asking for that tenant's, and naming
another is refused. The reserved tenant `system` is the application itself and is not narrowed; `with all_tenants():` says out loud that
something is done for all.
"""

from __future__ import annotations

from fairlane.client.context import tenant_in_force
from fairlane.core.ids import SYSTEM_TENANT
from fairlane.core.names import check_tenant
from fairlane.core.ops import ALL_TENANTS, Scope, only
from fairlane.errors import PermissionDenied


def in_scope(tenant: str | int | None) -> Scope:
    """The scope of a call that names this tenant, or none, in the context it is made in."""
    named = None if tenant is None else check_tenant(tenant)
    in_force = tenant_in_force.get()
    if in_force is None or in_force == SYSTEM_TENANT:
        return ALL_TENANTS if named is None else only(named)
    if named is not None and named != in_force:
        raise PermissionDenied(f'tenant "{named}"', in_force)
    return only(in_force)


def require_tenant(tenant: str | None, what: str) -> None:
    """For what is one tenant's, or (None) everybody's: refused inside the context of a tenant it is not only of."""
    if tenant is None:
        require_all_tenants(what)
    else:
        in_scope(tenant)


def require_all_tenants(what: str) -> None:
    """For what concerns everybody: refused inside one tenant's context."""
    if in_scope(None) != ALL_TENANTS:
        raise PermissionDenied(what, tenant_in_force.get() or "")
