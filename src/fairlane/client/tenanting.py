"""Tenants: who they are, their weight and tier, and how much of theirs waits and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.client.handle import BY_DEFAULT
from fairlane.client.paging import page_size
from fairlane.client.steps import Ask, both
from fairlane.client.tenant_scope import in_scope
from fairlane.core.names import check_key, check_tenant, check_words
from fairlane.core.ops import GetTenant, PageTenants, SetTenant, TenantPage, TenantRecord
from fairlane.errors import InvalidOption, PermissionDenied

if TYPE_CHECKING:
    from fairlane.client.store_access import StoreAccess

HIGHEST_WEIGHT = 1_000.0


def _tenants(*, after: str = "", tier: str | None = None, limit: int = 50) -> Ask[TenantPage, TenantPage]:
    """One page of known tenants, by name; give a page's `next` as `after` to go on."""
    check_words("after", after)
    if tier is not None:
        check_words("tier", tier)
    return Ask(PageTenants(scope=in_scope(None), after=after, tier=tier, limit=page_size(limit)), lambda page: page)


def _get_tenant(name: str | int) -> Ask[TenantRecord | None, TenantRecord]:
    """One tenant; one that has never had a job is shown with the defaults."""
    tenant = check_tenant(name)
    op = GetTenant(scope=in_scope(tenant), name=tenant)
    return Ask(op, lambda record: _required(tenant, record))


def _set_tenant(
    name: str | int,
    *,
    weight: float | None = None,
    tier: str | None = None,
    by: str = BY_DEFAULT,
    notes: str | None = None,
) -> Ask[TenantRecord, TenantRecord]:
    """Set a tenant's weight (its share next to the others; 1 unless set) or tier, at run time. Workers follow within seconds."""
    tenant = check_tenant(name)
    in_scope(tenant)
    if weight is None and tier is None:
        raise InvalidOption("weight, tier", None, "at least one of them")
    op = SetTenant(
        name=tenant,
        weight=None if weight is None else _weight(weight),
        tier=None if tier is None else check_key("tier", tier),
        by=check_key("by", by),
        notes=notes,
    )
    return Ask(op, lambda record: record)


class Tenanting:
    """The verbs of `Fairlane` about tenants."""

    if TYPE_CHECKING:

        @property
        def access(self) -> StoreAccess: ...

    tenants, atenants = both(_tenants)
    get_tenant, aget_tenant = both(_get_tenant)
    set_tenant, aset_tenant = both(_set_tenant)


def _weight(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0.001 <= given <= HIGHEST_WEIGHT:
        raise InvalidOption("weight", given, f"a number from 0.001 to {HIGHEST_WEIGHT:g}")
    return float(given)


def _required(tenant: str, record: TenantRecord | None) -> TenantRecord:
    if record is None:
        raise PermissionDenied(f'tenant "{tenant}"', "another")
    return record
