"""Authenticates and authorizes the caller of a request, or raises the problem to answer with.

401  no valid token, session or host user
429  the same, after too many wrong guesses from this address; a valid credential is never braked
403  a change through a cookie, requested by a page of another site
403  a role that the route requires is missing, or a host user has no tenant
"""

from __future__ import annotations

import inspect
import ipaddress
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Literal
from uuid import UUID

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request

from fairlane.api.auth.sessions import SAFE_METHODS, may_be_of_another_site, secret_in
from fairlane.api.problems import Problem
from fairlane.client.admin.tokens import has_shape_of_secret, hash_of
from fairlane.client.app import Fairlane
from fairlane.client.rights import Right, missing_roles
from fairlane.core.clock import Clock
from fairlane.core.names import check_key, check_own_tenant
from fairlane.core.ops import Credential
from fairlane.errors import RoleMissing


class Person(Struct, frozen=True, kw_only=True):
    """A user authenticated by your application's `users` hook."""

    name: str
    """Recorded as the actor in the audit."""
    roles: tuple[str, ...]
    tenant: str | None = None
    """The tenant that they belong to; None only with `all_tenants`."""
    all_tenants: bool = False
    """Sees every tenant. Not the default: a user whose organization is unset must not see all of them."""


UsersHook = Callable[[Request], Awaitable[Person | None] | Person | None]
"""Returns the user who sent a request; None if your application does not know them."""


class Caller(Struct, frozen=True, kw_only=True):
    """The authenticated caller of a request."""

    name: str
    roles: tuple[str, ...]
    tenant: str | None
    by: Literal["token", "session", "host"]
    credential_id: UUID | None = None
    hash: str | None = None
    expires_at: datetime | None = None


def caller_of(credential: Credential, hash: str) -> Caller:
    assert credential.kind != "link"
    return Caller(
        name=credential.name,
        roles=credential.roles,
        tenant=credential.tenant,
        by=credential.kind,
        credential_id=credential.id,
        hash=hash,
        expires_at=credential.expires_at,
    )


def caller_for(person: Person) -> Caller:
    if (person.tenant is None) != person.all_tenants:
        raise Problem(
            403,
            "tenant_missing",
            "the application's `users` hook gave no tenant for you: it must give Person(…, tenant=…), or "
            "Person(…, all_tenants=True) for one who sees every tenant; nothing was changed",
        )
    return Caller(
        name=check_key("name", person.name),
        roles=tuple(person.roles),
        tenant=None if person.tenant is None else check_own_tenant(person.tenant),
        by="host",
    )


BURST = 20
"""Wrong guesses allowed before an address must wait."""
REFILL_S = 3.0
"""Seconds until one more guess is allowed."""
MOST_ADDRESSES = 10_000


class FailedGuesses:
    """Token buckets drained only by failures. Bounded: the address that failed longest ago is evicted first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Guesses left, and the time of that count."""

    def wait_s(self, address: str) -> float:
        """Seconds that this address must wait before its next wrong guess gets a 401 again; 0: none."""
        left = self._left(_network(address))
        return 0.0 if left >= 1.0 else (1.0 - left) * REFILL_S

    def note(self, address: str) -> None:
        network = _network(address)
        self._buckets[network] = (self._left(network) - 1.0, self._clock.monotonic())
        self._buckets.move_to_end(network)
        while len(self._buckets) > MOST_ADDRESSES:
            self._buckets.popitem(last=False)

    def _left(self, network: str) -> float:
        left, as_of = self._buckets.get(network, (float(BURST), 0.0))
        return min(float(BURST), left + (self._clock.monotonic() - as_of) / REFILL_S)


def _network(address: str) -> str:
    """The network of an address: who owns one IPv6 address owns its whole /64."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 6 and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


LAST_USE_EVERY_S = 60.0
MOST_USED = 1_000


class LastUse:
    """Writes to the store when credentials were last used, at intervals instead of at every use."""

    def __init__(self, app: Fairlane) -> None:
        self._app = app
        self._used: set[UUID] = set()
        self._written_s: float | None = None

    async def note(self, id: UUID) -> None:
        """Write the first use at once, then at most every `LAST_USE_EVERY_S`; uses beyond `MOST_USED` are dropped."""
        if len(self._used) < MOST_USED:
            self._used.add(id)
        now_s = self._app.runtime.clock.monotonic()
        if self._written_s is not None and now_s - self._written_s < LAST_USE_EVERY_S:
            return
        used, self._used, self._written_s = tuple(self._used), set(), now_s
        await self._app.tokens.anote_use(used)


NOBODY = "unauthenticated"
_BEARER = "bearer "


class Authenticator:
    """Identifies the caller before the body is read."""

    def __init__(self, app: Fairlane, users: UsersHook | None = None) -> None:
        self._app, self._users = app, users
        self._last_use = LastUse(app)
        self.failures = FailedGuesses(app.runtime.clock)

    async def admit(self, request: Request, right: Right, *, for_all_tenants: bool) -> Caller | None:
        """The caller; None if the route is open to everybody."""
        if right is Right.OPEN:
            return None
        caller = await self.caller(request)
        if request.method not in SAFE_METHODS and may_be_of_another_site(request, caller.by):
            raise Problem(403, "cross_site", "this change was requested by a page of another site; nothing was changed")
        if missing := missing_roles(caller.roles, right):
            raise RoleMissing(missing)
        if for_all_tenants and caller.tenant is not None:
            raise Problem(
                403, "tenant_bound", "this concerns all tenants, and you are bound to one; nothing was changed"
            )
        return caller

    async def caller(self, request: Request) -> Caller:
        """The authenticated caller; raises a problem with status 401 or 429 if there is none."""
        bearer = request.headers.get("authorization")
        if bearer is not None:
            secret = bearer[len(_BEARER) :].strip() if bearer[: len(_BEARER)].lower() == _BEARER else ""
            if self._users is not None and not has_shape_of_secret(secret):
                return await self._by_hook(request)  # This may be a token of the host application.
            return await self._by_secret(request, "token", secret)
        cookie = secret_in(request)
        if cookie is not None:
            return await self._by_secret(request, "session", cookie)
        return await self._by_hook(request)

    async def is_still_good(self, caller: Caller, request: Request) -> bool:
        """For long responses: whether the credential is still valid, neither revoked nor expired.

        For a user of the host application: whether its hook still returns the same person for this request.
        """
        if caller.hash is None or caller.by == "host":
            try:
                now = await self._by_hook(request)
            except (Problem, HTTPException):
                return False
            return (now.name, now.tenant, {*now.roles}) == (caller.name, caller.tenant, {*caller.roles})
        return await self._app.tokens.ais_good(caller.by, caller.hash)

    async def _by_secret(self, request: Request, kind: Literal["token", "session"], secret: str) -> Caller:
        found = await self._app.tokens.afind(kind, secret)
        if found is not None:
            await self._last_use.note(found.id)
            return caller_of(found, hash_of(secret))
        self.count_failure(request)
        raise _nobody(f"this {kind} is not known, has expired or was revoked", ends_session=kind == "session")

    async def _by_hook(self, request: Request) -> Caller:
        person = None if self._users is None else self._users(request)
        if inspect.isawaitable(person):
            person = await person
        if person is None:
            raise _nobody(
                "give a token as `Authorization: Bearer fl_…`, or log in by a link: "
                "`fairlane tokens link NAME --role viewer` makes one"
            )
        return caller_for(person)

    def count_failure(self, request: Request) -> None:
        """Count a wrong guess, or answer 429 if its address has none left.

        Called only after the credential was looked up: whoever shares an address with a guesser is not locked out.
        """
        address = request.client.host if request.client is not None else "unknown"
        wait_s = self.failures.wait_s(address)
        if wait_s > 0:
            raise Problem(429, "too_many_failures", "too many wrong guesses from this address", retry_after_s=wait_s)
        self.failures.note(address)


def _nobody(why: str, *, ends_session: bool = False) -> Problem:
    return Problem(401, NOBODY, f"{why}; nothing was changed", ends_session=ends_session)
