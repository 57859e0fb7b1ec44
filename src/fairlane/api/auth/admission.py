"""The door: finds out who makes a request, and whether they may.

wrong guesses from this address?  429     a good token, session or host user?  401
a change through a cookie, from another page?  403     the roles the route asks for?  403

When credentials were last used, told to the store now and then.

A limit on wrong guesses, for each address they come from.
"""

from __future__ import annotations

import inspect
import ipaddress
from collections import OrderedDict
from typing import Literal
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.requests import Request

from fairlane.api.auth.caller import Caller, UsersHook, caller_for, caller_of
from fairlane.api.auth.credentials import has_the_shape, hash_of, is_of
from fairlane.api.auth.origin import SAFE_METHODS, is_from_our_own_page
from fairlane.api.auth.rights import Right, missing_role
from fairlane.api.auth.sessions import secret_in
from fairlane.api.problems import Problem
from fairlane.client.app import Fairlane
from fairlane.core.clock import Clock
from fairlane.core.ops import FindCredential, SeeCredentials

BURST = 20
"""Wrong guesses before an address has to wait."""
REFILL_S = 3.0
"""Seconds for one more guess."""
MOST_ADDRESSES = 10_000


class FailedGuesses:
    """Token buckets that only failures empty. Bounded: the address that failed longest ago is forgotten first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Guesses left, and as of when."""

    def wait_s(self, address: str) -> float:
        """How long this address has to wait before the next guess is looked at; 0: not at all."""
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
    """Whoever has one IPv6 address has the 2**64 beside it."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 6 and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


EVERY_S = 60.0
MOST = 1_000


class LastUse:
    def __init__(self, app: Fairlane) -> None:
        self._app = app
        self._seen: set[UUID] = set()
        self._told_s: float | None = None

    async def note(self, id: UUID) -> None:
        """Told at once for the first one, then at most once in `EVERY_S`; what is beyond `MOST` meanwhile is forgotten."""
        if len(self._seen) < MOST:
            self._seen.add(id)
        now_s = self._app.runtime.clock.monotonic()
        if self._told_s is not None and now_s - self._told_s < EVERY_S:
            return
        seen, self._seen, self._told_s = tuple(self._seen), set(), now_s
        await self._app.runtime.access.arun(SeeCredentials(ids=seen))


NOBODY = "unauthenticated"
_BEARER = "bearer "


class Door:
    """Lets callers in, or raises the problem that keeps them out. Nothing is read of the body before."""

    def __init__(self, app: Fairlane, users: UsersHook | None = None) -> None:
        self._app, self._users = app, users
        self._last_use = LastUse(app)
        self.failures = FailedGuesses(app.runtime.clock)

    async def admit(self, request: Request, right: Right, *, is_house_wide: bool) -> Caller | None:
        """The caller; None where the route is open to everybody."""
        if right is Right.OPEN:
            return None
        caller = await self.caller(request)
        if caller.rides_on_a_cookie and request.method not in SAFE_METHODS and not is_from_our_own_page(request):
            raise Problem(403, "cross_site", "this change was asked for by a page of another site; nothing was changed")
        role = missing_role(caller.roles, right)
        if role is not None:
            raise Problem(403, "role_missing", f'this needs the role "{role}"; nothing was changed', role=role)
        if is_house_wide and caller.tenant is not None:
            raise Problem(
                403, "tenant_bound", "this concerns all tenants, and you are bound to one; nothing was changed"
            )
        return caller

    async def caller(self, request: Request) -> Caller:
        """Whoever asks; a problem with status 401 or 429 where that is nobody."""
        bearer = request.headers.get("authorization")
        if bearer is not None:
            secret = bearer[len(_BEARER) :].strip() if bearer[: len(_BEARER)].lower() == _BEARER else ""
            if self._users is not None and not has_the_shape(secret):
                return await self._by_hook(request)  # a token of the host application's own
            return await self._by_secret(request, "token", secret)
        cookie = secret_in(request)
        if cookie is not None:
            return await self._by_secret(request, "session", cookie)
        return await self._by_hook(request)

    async def is_still_good(self, caller: Caller, request: Request) -> bool:
        """For answers that go on for long: nobody revoked the credential meanwhile, and it has not expired.

        Of somebody the host application knows: its hook, asked about the same request again, still says the same of them.
        """
        if caller.hash is None or caller.by == "host":
            try:
                now = await self._by_hook(request)
            except (Problem, HTTPException):
                return False
            return (now.name, now.tenant, {*now.roles}) == (caller.name, caller.tenant, {*caller.roles})
        found = (await self._app.runtime.access.arun(FindCredential(kind=caller.by, hash=caller.hash))).credential
        return found is not None

    async def _by_secret(self, request: Request, kind: Literal["token", "session"], secret: str) -> Caller:
        address = address_of(request)
        self.refuse_guessers(address)
        if has_the_shape(secret):
            hashed = hash_of(secret)
            op = FindCredential(kind=kind, hash=hashed)
            found = (await self._app.runtime.access.arun(op)).credential
            if found is not None and is_of(found, secret):
                await self._last_use.note(found.id)
                return caller_of(found, hashed)
        self.failures.note(address)
        raise _nobody(f"this {kind} is not known, has expired or was revoked", ends_session=kind == "session")

    async def _by_hook(self, request: Request) -> Caller:
        person = None if self._users is None else self._users(request)
        if inspect.isawaitable(person):
            person = await person
        if person is None:
            raise _nobody(
                "give a token as `Authorization: Bearer fl_…`, or log in by a link: `fairlane tokens link NAME --role viewer` makes one"
            )
        return caller_for(person)

    def refuse_guessers(self, address: str) -> None:
        wait_s = self.failures.wait_s(address)
        if wait_s > 0:
            raise Problem(429, "too_many_failures", "too many wrong guesses from this address", retry_after_s=wait_s)


def address_of(request: Request) -> str:
    return request.client.host if request.client is not None else "unknown"


def _nobody(why: str, *, ends_session: bool = False) -> Problem:
    return Problem(401, NOBODY, f"{why}; nothing was changed", ends_session=ends_session)
