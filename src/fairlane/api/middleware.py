"""Middleware: one length for a body, security headers, a trailing slash, HEAD for every GET, the methods of a 405."""

from __future__ import annotations

from contextlib import suppress

from starlette.requests import Request
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fairlane.api.problems import Problem

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
}
_RAW = tuple((name.lower().encode(), value.encode()) for name, value in HEADERS.items())
_SLASHED = "/api/jobs"


class OneLength:
    """Refuses a body with two lengths: to a proxy that believes the other one, its rest is a second request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = [name for name, _ in scope.get("headers", ())]
        if b"transfer-encoding" in names and b"content-length" in names:
            problem = Problem(400, "two_lengths", "give Content-Length or Transfer-Encoding, not both")
            response = problem.response(Request(scope))
            response.headers["Connection"] = "close"
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class CarefulHeaders:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = message["headers"]
                names = {name for name, _ in given}
                message["headers"] = [*given, *(header for header in _RAW if header[0] not in names)]
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


class EndingSlash:
    """`/api/jobs/queues` means `/api/jobs/queues/`: no redirect, which would lose the body of a POST."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _SLASHED in scope["path"] and not scope["path"].endswith("/"):
            scope = {**scope, "path": scope["path"] + "/", "raw_path": (scope.get("raw_path") or b"") + b"/"}
        await self._app(scope, receive, send)


class AllowedMethods:
    """A 405 names all methods of the path, whichever routes they belong to."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_allowed(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 405:
                others = [header for header in message["headers"] if header[0] != b"allow"]
                message["headers"] = [*others, (b"allow", ", ".join(_allowed(scope)).encode())]
            await send(message)

        await self._app(scope, receive, send_allowed if scope["type"] == "http" else send)


class HeadAsGet:
    """Answers HEAD like GET without the body: routes need no HEAD handler, and no stream starts."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.start":
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                raise _Answered

        with suppress(_Answered):
            await self._app({**scope, "method": "GET"}, receive, send_head)


def _allowed(scope: Scope) -> list[str]:
    routes = [route for route in scope["app"].routes if route.matches(scope)[0] is not Match.NONE]
    methods = {method for route in routes for method in getattr(route, "methods", None) or ()}
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()))


class _Answered(Exception):
    """Nothing more needs to be sent."""
