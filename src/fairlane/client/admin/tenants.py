"""`app.tenants`: list tenants with their jobs, set weight and tier, and find the principal of their jobs."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, Unpack

from fairlane.client.admin.filters import page_size
from fairlane.client.admin.pauses import PausingVerbs
from fairlane.client.context import NOBODY, CurrentJob, in_scope, job_in_force, tenant_in_force
from fairlane.client.handle import ActOptions, audited
from fairlane.client.rights import Right
from fairlane.client.steps import Steps, ask, both
from fairlane.core.ids import SYSTEM_TENANT
from fairlane.core.names import check_key, check_tenant, check_words
from fairlane.core.ops import GetTenant, PageTenants, PauseKind, SetTenant, TenantPage, TenantRecord
from fairlane.errors import InvalidOption, MissingPrincipal, PermissionDenied

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime

PrincipalHook = Callable[[str], Any] | Callable[[str], Awaitable[Any]]
"""Returns the principal a tenant's jobs act as, such as its active admin; None if it has none."""

Hook = TypeVar("Hook", bound=PrincipalHook)

HIGHEST_WEIGHT = 1_000.0


class TenantAdmin(PausingVerbs):
    """Methods for tenants."""

    __slots__ = ("_find_principal",)
    _kind: ClassVar[PauseKind] = "tenant"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._find_principal: PrincipalHook | None = None

    def _list(self, *, after: str = "", tier: str | None = None, limit: int = 50) -> Steps[TenantPage]:
        """One page of known tenants, by name; pass a page's `next` as `after` for the next one."""
        check_words("after", after)
        if tier is not None:
            check_words("tier", tier)
        return (yield from ask(PageTenants(scope=in_scope(None), after=after, tier=tier, limit=page_size(limit))))

    def _get(self, name: str | int) -> Steps[TenantRecord]:
        """One tenant; one that has never had a job is shown with the defaults."""
        tenant = check_tenant(name)
        record = yield from ask(GetTenant(scope=in_scope(tenant), name=tenant))
        if record is None:
            raise PermissionDenied(f'tenant "{tenant}"', "another")
        return record

    def _set(
        self,
        name: str | int,
        *,
        weight: float | None = None,
        tier: str | None = None,
        **about: Unpack[ActOptions],
    ) -> Steps[TenantRecord]:
        """Set a tenant's weight (its share relative to other tenants; 1 unless set) or tier, at run time.

        Workers apply it within seconds.
        """
        tenant = check_tenant(name)
        in_scope(tenant)
        if weight is None and tier is None:
            raise InvalidOption("weight, tier", None, "at least one of them")
        op = SetTenant(
            name=tenant,
            weight=None if weight is None else _weight(weight),
            tier=None if tier is None else check_key("tier", tier),
            **audited(about),
        )
        return (yield from ask(op))

    list, alist = both(_list, Right.READ)
    get, aget = both(_get, Right.READ)
    set, aset = both(_set, Right.ACT)

    def find_principal(self, hook: Hook) -> Hook:
        """Register the function that finds a tenant's principal; plain or async.

        It is called at most once per attempt, when the job first requests the principal.
        """
        if self._find_principal is not None:
            raise InvalidOption("find_principal", hook, "one hook: another is registered already")
        self._find_principal = hook
        return hook

    def principal(self) -> Any:
        """The principal of the current tenant, as the hook returns it.

        None without a hook, or for the application itself. If the hook returns None, raises `MissingPrincipal`, which
        postpones the job until there is a principal; with `require_principal = false` it returns None.
        """
        hook, tenant, job = self._asked()
        if hook is None or tenant is None:
            return None
        if inspect.iscoroutinefunction(hook):
            raise InvalidOption("principal()", hook, "await app.tenants.aprincipal(): the hook is async")
        if job is None:
            return self._checked(tenant, hook(tenant))
        if tenant not in job.principals:
            job.principals[tenant] = hook(tenant)
        return self._checked(tenant, job.principals[tenant])

    async def aprincipal(self) -> Any:
        hook, tenant, job = self._asked()
        if hook is None or tenant is None:
            return None
        if job is not None and tenant in job.principals:
            return self._checked(tenant, job.principals[tenant])
        found = hook(tenant)
        if inspect.isawaitable(found):
            found = await found
        if job is not None:
            job.principals[tenant] = found
        return self._checked(tenant, found)

    def _asked(self) -> tuple[PrincipalHook | None, str | None, CurrentJob | None]:
        tenant = tenant_in_force.get()
        return self._find_principal, None if tenant in (SYSTEM_TENANT, NOBODY) else tenant, job_in_force.get()

    def _checked(self, tenant: str, found: Any) -> Any:
        if found is None and self._runtime.settings.require_principal:
            raise MissingPrincipal(tenant)
        return found


def _weight(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0.001 <= given <= HIGHEST_WEIGHT:
        raise InvalidOption("weight", given, f"a number from 0.001 to {HIGHEST_WEIGHT:g}")
    return float(given)
