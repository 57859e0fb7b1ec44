"""Around every answer: headers that tell browsers to be careful, and paths that end as ours do."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
