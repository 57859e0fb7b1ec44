"""One request: its application, its caller, and its body, read within limits."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeVar

from fastapi import Depends
from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request

from fairlane.api.auth.admission import Authenticator, Caller
from fairlane.api.problems import FieldError, Problem
from fairlane.api.sse import EventFeed
from fairlane.client.app import Fairlane
from fairlane.core.payload.codec import may_break
from fairlane.core.payload.json_scan import ScanLimits, scan

P = ParamSpec("P")
T = TypeVar("T")

ENVELOPE_BYTES = 65_536
"""Bytes that a request may add to a payload of maximum size."""
ENVELOPE_DEPTH = 4
QUICK_BYTES = 16_384
"""Bodies, payloads and results up to this size are examined on the event loop; longer ones in a thread."""
ARRIVAL_S = 10.0
"""How long a request may take to arrive."""
_UNSURE = object()
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

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
        return actor_of(self.caller)


def actor_of(caller: Caller) -> str:
    """The actor recorded in the audit: the name with the kind and id of the credential, since names may repeat.

    A user of the host application has no credential of ours.
    """
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


class ReadRequest(Request):
    """A request whose body has been read and checked."""

    def __init__(self, request: Request, text: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._text, self._value = text, value

    async def body(self) -> bytes:
        return self._text

    async def json(self) -> Any:
        return self._value


async def read_request(request: Request, payload: ScanLimits) -> ReadRequest:
    """Read the body of a request that may contain a payload within these limits.

    A body that is too large is refused before it is read in full, one that is too deep before it is parsed. Larger
    ones are checked in a thread: other requests go on.
    """
    limits = replace(
        payload, max_bytes=payload.max_bytes + ENVELOPE_BYTES, max_depth=payload.max_depth + ENVELOPE_DEPTH
    )
    text = await read_text(request, limits.max_bytes)
    if not text:
        return ReadRequest(request, text, None)
    if not _is_json(request):
        raise Problem(415, "unsupported_media_type", "send the body as JSON, with `Content-Type: application/json`")
    return ReadRequest(request, text, await examined(len(text), read_json, text, limits))


async def examined(size: int, examine: Callable[P, T], *args: P.args, **given: P.kwargs) -> T:
    """What `examine` returns about texts of this size. Long ones are examined in a thread: other requests go on."""
    if size <= QUICK_BYTES:
        return examine(*args, **given)
    return await asyncio.to_thread(examine, *args, **given)


async def read_text(request: Request, most_bytes: int) -> bytes:
    """The body of a request; one that is too large is refused before it is read in full."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "unsupported_encoding", "send the body as it is, without Content-Encoding")
    _refuse_large(_announced(request), most_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(ARRIVAL_S):
            async for chunk in request.stream():
                body += chunk
                _refuse_large(len(body), most_bytes)
    except TimeoutError:
        raise Problem(408, "body_too_slow", f"the body did not arrive within {ARRIVAL_S:g} s") from None
    except ClientDisconnect:
        raise Problem(400, "body_incomplete", "the connection ended before the body did") from None
    return bytes(body)


def read_json(text: bytes, limits: ScanLimits) -> Any:
    """The value of a body or field. Nearly all are valid: only one that may not be is scanned, for all its problems."""
    value = _UNSURE if may_break(text, limits) or _SURROGATE.search(text) else _parsed(text)
    if value is _UNSURE:
        if problems := scan(text, limits):
            found = [FieldError(where="body", message=problem) for problem in problems]
            raise Problem(400, "malformed_body", "the body is not JSON as we take it", errors=found)
        value = json.loads(text)
    return value


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text.decode(), object_pairs_hook=_without_repetition, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return _UNSURE


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key comes twice")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _announced(request: Request) -> int:
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdecimal() and len(length) < 16 else 0


def _refuse_large(size: int, most: int) -> None:
    if size > most:
        raise Problem(413, "body_too_large", f"a body may have {most:,} bytes")


def _is_json(request: Request) -> bool:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type.startswith("application/") and media_type.endswith("json")
