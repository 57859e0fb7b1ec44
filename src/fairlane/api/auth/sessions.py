"""Sessions: a browser's cookie, given in exchange for a one-time link."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from fairlane.api.auth.caller import Caller, caller_of
from fairlane.api.auth.credentials import PREFIX_LENGTH, has_the_shape, hash_of, new_secret
from fairlane.api.auth.origin import is_on_loopback
from fairlane.client.app import Fairlane
from fairlane.core.ops import IssueCredential, RedeemLink, RevokeCredential

COOKIE = "__Host-fairlane"
LOOPBACK_COOKIE = "fairlane_session"
"""Browsers take the `__Host-` prefix over TLS only, which nobody has on their own machine."""
SESSION_S = 12 * 3600.0


def secret_in(request: Request) -> str | None:
    name = LOOPBACK_COOKIE if _is_plain(request) else COOKIE
    return request.cookies.get(name)


async def opened(app: Fairlane, link: str) -> tuple[Caller, str] | None:
    """Use a link up: the session it is good for and the session's secret; None: it is good for nothing (any more)."""
    if not has_the_shape(link):
        return None
    found = (await app.runtime.access.arun(RedeemLink(hash=hash_of(link)))).credential
    if found is None:
        return None
    secret = new_secret(app.runtime.chance)
    issued = await app.runtime.access.arun(
        IssueCredential(
            id=app.runtime.new_job_id(),
            kind="session",
            name=found.name,
            prefix=secret[:PREFIX_LENGTH],
            hash=hash_of(secret),
            roles=found.roles,
            tenant=found.tenant,
            ttl_s=SESSION_S,
            by=found.name,
        )
    )
    assert issued.credential is not None
    return caller_of(issued.credential, hash_of(secret)), secret


async def closed(app: Fairlane, caller: Caller) -> None:
    if caller.by == "session" and caller.credential_id is not None:
        await app.runtime.access.arun(RevokeCredential(id=caller.credential_id, by=caller.name))


def set_cookie(request: Request, response: Response, secret: str) -> None:
    plain = _is_plain(request)
    response.set_cookie(
        LOOPBACK_COOKIE if plain else COOKIE,
        secret,
        max_age=int(SESSION_S),
        path="/",
        httponly=True,
        samesite="strict",
        secure=not plain,
    )


def forget_cookie(request: Request, response: Response) -> None:
    plain = _is_plain(request)
    name = LOOPBACK_COOKIE if plain else COOKIE
    response.delete_cookie(name, path="/", httponly=True, samesite="strict", secure=not plain)


def _is_plain(request: Request) -> bool:
    return request.url.scheme != "https" and is_on_loopback(request)
