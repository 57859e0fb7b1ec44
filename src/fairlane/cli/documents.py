"""What commands print as JSON: values as they are, payloads and results as the JSON they hold."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from fairlane.core.job import Job


def document(value: object) -> Any:
    """A value of core as plain data. Stored JSON text stays exactly as it is, large numbers included."""
    if isinstance(value, Job):
        return {**_fields(value), "payload": _stored(value.payload), "result": _stored(value.result)}
    if isinstance(value, msgspec.Struct):
        return _fields(value)
    if isinstance(value, (list, tuple)):
        return [document(item) for item in value]
    if isinstance(value, dict):
        return {name: document(item) for name, item in value.items()}
    return value


def encoded(value: object, *, indented: bool) -> bytes:
    text = msgspec.json.encode(document(value))
    return msgspec.json.format(text, indent=2) if indented else text


def indented(text: str) -> str:
    """Stored JSON text for reading; what is no JSON stays as it is."""
    try:
        return msgspec.json.format(text.encode(), indent=2).decode()
    except (msgspec.MsgspecError, UnicodeError):
        return text


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    return {name: document(getattr(value, name)) for name in value.__struct_fields__}


def _stored(text: str | None) -> Raw | str | None:
    """Rows may have been written straight by SQL: what is no JSON is shown as the text it is."""
    if text is None:
        return None
    try:
        raw = text.encode()
        msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return text.encode(errors="backslashreplace").decode()
    return Raw(raw)
