"""The door: finds out who makes a request, and whether they may.

wrong guesses from this address?  429     a good token, session or host user?  401
a change through a cookie, from another page?  403     the roles the route asks for?  403
"""

from __future__ import annotations

import inspect
from typing import Literal

from starlette.exceptions import HTTPException
from starlette.requests import Request

from fairlane.api.access.caller import Caller, UsersHook, caller_for, caller_of
from fairlane.api.access.failures import FailedGuesses
from fairlane.api.access.last_use import LastUse
from fairlane.api.access.origin import SAFE_METHODS, is_from_our_own_page
from fairlane.api.access.rights import Right, missing_role
from fairlane.api.access.secret import has_the_shape, hash_of, is_of
from fairlane.api.access.sessions import secret_in
from fairlane.api.problems import Problem
from fairlane.client.app import Fairlane
from fairlane.core.ops import FindCredential

NOBODY = "unauthenticated"
_BEARER = "bearer "


class Door:
    """Lets callers in, or raises the problem that keeps them out. Nothing is read of the body before."""

    def __init__(self, app: Fairlane, users: UsersHook | None = None) -> None:
        self._app, self._users = app, users
        self._last_use = LastUse(app)
        self.failures = FailedGuesses(app.clock)

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
        found = (await self._app.access.arun(FindCredential(kind=caller.by, hash=caller.hash))).credential
        return found is not None

    async def _by_secret(self, request: Request, kind: Literal["token", "session"], secret: str) -> Caller:
        address = address_of(request)
        self.refuse_guessers(address)
        if has_the_shape(secret):
            hashed = hash_of(secret)
            op = FindCredential(kind=kind, hash=hashed)
            found = (await self._app.access.arun(op)).credential
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
