"""One request: the application and the caller behind it, and its body, read within limits."""

from __future__ import annotations

import json
from typing import Annotated, NamedTuple

from fastapi import Depends
from msgspec.structs import replace
from starlette.requests import Request

from fairlane.api.auth.admission import Authenticator
from fairlane.api.auth.rights import Caller
from fairlane.api.problems import FieldError, Problem
from fairlane.api.sse import EventFeed
from fairlane.client.app import Fairlane
from fairlane.core.payload.codec import may_break
from fairlane.core.payload.json_scan import ScanLimits, scan

ENVELOPE_BYTES = 65_536
"""What a request may add to a payload of full size."""
ENVELOPE_DEPTH = 4
SCANNED_BYTES = 65_536
"""Texts up to this size are checked key by key for repetitions; longer ones only for what could harm."""


class ApiState(NamedTuple):
    """What all requests of one API share."""

    app: Fairlane
    authenticator: Authenticator
    feed: EventFeed


class RequestContext(NamedTuple):
    """What a route works with.

    It runs in the context of its caller's tenant: the client's verbs see and touch nothing else.
    """

    state: ApiState
    caller: Caller

    @property
    def app(self) -> Fairlane:
        return self.state.app

    @property
    def by(self) -> str:
        """The name that signs the acts of this request in the audit."""
        return self.caller.name

    def narrowed(self, tenant: str | None) -> str | None:
        """The tenant a listing asks for; a caller bound to a tenant always gets their own."""
        return tenant if self.caller.tenant is None else self.caller.tenant


def state_of(request: Request) -> ApiState:
    state: ApiState = request.app.state.fairlane
    return state


async def _state(request: Request) -> ApiState:
    return state_of(request)


async def _context(request: Request) -> RequestContext:
    return RequestContext(state_of(request), request.state.caller)


State = Annotated[ApiState, Depends(_state)]
Context = Annotated[RequestContext, Depends(_context)]


async def read_body(request: Request, payload: ScanLimits) -> bytes:
    """The body of a request that may hold a payload of these limits.

    Refused before it is read whole where it is too large, and before it is parsed where it is too deep.
    """
    limits = replace(
        payload, max_bytes=payload.max_bytes + ENVELOPE_BYTES, max_depth=payload.max_depth + ENVELOPE_DEPTH
    )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "unsupported_encoding", "send the body as it is, without Content-Encoding")
    _refuse_large(_announced(request), limits)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        _refuse_large(len(body), limits)
    text = bytes(body)
    if text and not _is_json(request):
        raise Problem(415, "unsupported_media_type", "send the body as JSON, with `Content-Type: application/json`")
    if text and not _is_plain(text, limits):
        problems = scan(text, limits) if len(text) <= SCANNED_BYTES or may_break(text, limits) else []
        if problems:
            found = [FieldError(where="body", message=problem) for problem in problems]
            raise Problem(400, "malformed_body", "the body is not JSON as we take it", errors=found)
    return text


def _is_plain(text: bytes, limits: ScanLimits) -> bool:
    """Whether a body has surely nothing wrong with it: true of nearly all, and five times faster than a scan."""
    if len(text) > SCANNED_BYTES or b"\\" in text or may_break(text, limits):
        return False
    try:
        json.loads(text.decode(), object_pairs_hook=_without_repetition, parse_constant=_refuse_constant)
    except ValueError:
        return False
    return True


def _without_repetition(pairs: list[tuple[str, object]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key comes twice")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _announced(request: Request) -> int:
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdecimal() and len(length) < 16 else 0


def _refuse_large(size: int, limits: ScanLimits) -> None:
    if size > limits.max_bytes:
        raise Problem(413, "body_too_large", f"a body may have {limits.max_bytes:,} bytes")


def _is_json(request: Request) -> bool:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type.startswith("application/") and media_type.endswith("json")
