"""A payload as it is typed: `name=value` pairs, one JSON object, or JSON on stdin."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from fairlane.core.payload.codec import decode
from fairlane.core.payload.json_scan import ScanLimits
from fairlane.errors import InvalidOption

STDIN = "-"


def read_payload(task: str, pairs: Sequence[str], text: str | None, limits: ScanLimits) -> dict[str, Any]:
    """The payload, checked as one that was written by a stranger. Refused with every problem at once."""
    if text is not None and pairs:
        raise click.UsageError("give the payload once: as name=value, or with --payload", click.get_current_context())
    if text is None:
        return _from_pairs(pairs)
    raw = sys.stdin.buffer.read(limits.max_bytes + 1) if text == STDIN else text
    return decode(raw, task=task, limits=limits)


def _from_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    payload: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidOption("argument", pair, "name=value, as in user_id=7")
        if name in payload:
            raise InvalidOption("argument", pair, f"{name} once only")
        payload[name] = _value(value)
    return payload


def _value(text: str) -> Any:
    """JSON where it is JSON (`7`, `true`, `[1, 2]`, `"7"`), else the text itself."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return text
