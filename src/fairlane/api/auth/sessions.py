"""The session cookie, and the headers by which a browser reports where a request comes from."""

from __future__ import annotations

from typing import Literal
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from fairlane.core.ops import SESSION_S

COOKIE = "__Host-fairlane"
LOOPBACK_COOKIE = "fairlane_session"
"""Browsers accept the `__Host-` prefix only over TLS, which local servers rarely have."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def secret_in(request: Request) -> str | None:
    name = LOOPBACK_COOKIE if _is_plain(request) else COOKIE
    return request.cookies.get(name)


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


def forget_link(request: Request) -> None:
    """Take a log-in link out of the address, which access logs and tracing read when the request is over."""
    request.scope["query_string"] = b""


def may_be_of_another_site(request: Request, by: Literal["token", "session", "host"]) -> bool:
    """Whether a page of another site could have made a browser send this request with its user's credential.

    Browsers send cookies by themselves, and name the page in `Sec-Fetch-Site` or `Origin`. A program that acts for a
    user of the host application sends none of the three.
    """
    if by == "token":
        return False
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if by == "host" and site is None and origin is None and "cookie" not in request.headers:
        return False
    return site != "same-origin" if site is not None else not _is_this_host(request, origin)


def is_from_another_site(request: Request) -> bool:
    """Whether the browser reports a navigation; programs send no such header."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        return site not in {"same-origin", "none"}
    return origin is not None and not _is_this_host(request, origin)


def is_on_loopback(request: Request) -> bool:
    """Whether the request comes from this machine, addressed to it, without TLS: no network is involved."""
    client = request.client.host if request.client is not None else ""
    return client in _LOOPBACK_NAMES and request.url.hostname in _LOOPBACK_NAMES


def _is_this_host(request: Request, origin: str | None) -> bool:
    host = request.headers.get("host")
    if not origin or not host:
        return False
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False
