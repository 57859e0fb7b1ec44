"""One request: its application, its caller, and its body, read within limits."""

from __future__ import annotations

import json
from typing import Annotated, NamedTuple

from fastapi import Depends
from msgspec.structs import replace
from starlette.requests import Request

from fairlane.api.auth.admission import Authenticator, Caller
from fairlane.api.problems import FieldError, Problem
from fairlane.api.sse import EventFeed
from fairlane.client.app import Fairlane
from fairlane.core.payload.codec import may_break
from fairlane.core.payload.json_scan import ScanLimits, scan

ENVELOPE_BYTES = 65_536
"""Bytes that a request may add to a payload of maximum size."""
ENVELOPE_DEPTH = 4
SCANNED_BYTES = 65_536
"""Texts up to this size are checked for repeated keys; longer ones only for harmful content."""


_NAME_BYTES = 400
"""Bytes of a credential's name beside its kind and id, which fit together where the store keeps who acted."""


class ApiState(NamedTuple):
    """State shared by all requests of one API."""

    app: Fairlane
    authenticator: Authenticator
    feed: EventFeed


class RequestContext(NamedTuple):
    """The application and caller of one request, as routes use them.

    Routes run in the context of the caller's tenant: the client's methods read and change nothing else.
    """

    state: ApiState
    caller: Caller

    @property
    def app(self) -> Fairlane:
        return self.state.app

    @property
    def by(self) -> str:
        """The actor recorded in the audit: the name with the kind and id of the credential, since names may repeat.

        A user of the host application has no credential of ours.
        """
        caller = self.caller
        if caller.credential_id is None:
            return caller.name
        name = caller.name.encode()[:_NAME_BYTES].decode(errors="ignore")
        return f"{name} ({caller.by} {caller.credential_id})"


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
    """Read the body of a request that may contain a payload within these limits.

    A body that is too large is refused before it is read in full, one that is too deep before it is parsed.
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
    """Whether a body is certainly valid: true for nearly all, and five times faster than a scan."""
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
