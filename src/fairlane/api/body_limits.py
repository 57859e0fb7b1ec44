"""How large and how deep a request's body may be; looked at before anything parses it."""

from __future__ import annotations

import json

from msgspec.structs import replace
from starlette.requests import Request

from fairlane.api.problems import FieldError, Problem
from fairlane.core.payload.codec import may_break
from fairlane.core.payload.json_scan import ScanLimits, scan

ENVELOPE_BYTES = 65_536
"""What a request may add to a payload of full size."""
ENVELOPE_DEPTH = 4
SCANNED_BYTES = 65_536
"""Texts up to here are looked at key by key (what comes twice); longer ones only for what could harm."""


def body_limits(payload: ScanLimits) -> ScanLimits:
    return replace(payload, max_bytes=payload.max_bytes + ENVELOPE_BYTES, max_depth=payload.max_depth + ENVELOPE_DEPTH)


async def read_body(request: Request, limits: ScanLimits) -> bytes:
    """The body, refused before it is whole where it is too large, and before it is parsed where it is too deep."""
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
    """Whether a body surely has nothing to complain about: what nearly all have, told five times quicker than by a scan."""
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
