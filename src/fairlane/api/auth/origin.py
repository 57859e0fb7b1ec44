"""Where a browser's request comes from: another site's page must not act through somebody's session."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.requests import Request

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_from_our_own_page(request: Request) -> bool:
    """True only where the browser says so: its `Sec-Fetch-Site`, or failing that an `Origin` that is this very host."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    return _is_this_host(request, request.headers.get("origin"))


def is_from_another_site(request: Request) -> bool:
    """The browser says that it is; programs, which say nothing, are not."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        return site not in {"same-origin", "none"}
    return origin is not None and not _is_this_host(request, origin)


def is_on_loopback(request: Request) -> bool:
    """Asked from this machine for this machine by name, without TLS: no network is between."""
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
