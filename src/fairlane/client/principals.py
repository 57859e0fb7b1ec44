"""Who a job acts as: found by the application's own hook, for the tenant in force."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from fairlane.client.context import CurrentJob, job_in_force, tenant_in_force
from fairlane.client.settings.model import Settings
from fairlane.core.ids import SYSTEM_TENANT
from fairlane.errors import InvalidOption, MissingPrincipal

PrincipalHook = Callable[[str], Any] | Callable[[str], Awaitable[Any]]
"""Given a tenant, the principal its jobs act as (its active admin, say); None: it has none."""

Hook = TypeVar("Hook", bound=PrincipalHook)


class Principals:
    """The verbs of `Fairlane` about who acts."""

    if TYPE_CHECKING:
        settings: Settings

    _principal_hook: PrincipalHook | None = None

    def find_principal(self, hook: Hook) -> Hook:
        """Register the function that finds a tenant's principal; plain or async. It is asked once for each attempt, when the job asks."""
        if self._principal_hook is not None:
            raise InvalidOption("find_principal", hook, "one hook: another is registered already")
        self._principal_hook = hook
        return hook

    def principal(self) -> Any:
        """Who acts here, for the tenant in force: what the hook found. None without a hook, or for the application itself.

        A tenant for which the hook finds nobody: `MissingPrincipal`, which puts the job off until there is one; with
        `require_principal = false` the job goes on and None is returned.
        """
        hook, tenant, job = self._asked()
        if hook is None or tenant is None:
            return None
        if inspect.iscoroutinefunction(hook):
            raise InvalidOption("principal()", hook, "await app.aprincipal(): the hook is async")
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
        return self._principal_hook, None if tenant == SYSTEM_TENANT else tenant, job_in_force.get()

    def _checked(self, tenant: str, found: Any) -> Any:
        if found is None and self.settings.require_principal:
            raise MissingPrincipal(tenant)
        return found
