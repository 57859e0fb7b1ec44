"""The one codec of payloads and results: Python values to exact JSON text and back.

The same values are accepted whatever store is behind: what one of them could not keep is refused here, with all
problems at once. Nothing in a text names a class or a module to load.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from fairlane.core.encodable import plain, problems_in, too_deep
from fairlane.core.scan import LIMITS, Limits, may_break, scan
from fairlane.errors import InvalidPayload

_canonical = msgspec.json.Encoder(enc_hook=plain, order="sorted")
_as_read = msgspec.json.Encoder()
_read = msgspec.json.Decoder()
_UNSURE = object()


def encode(payload: object, *, task: str = "job", limits: Limits = LIMITS) -> Raw:
    """The payload as canonical JSON text, one object: equal payloads give equal text.

    Keys are sorted, whitespace is left out. Dates, UUIDs, decimals, enums, dataclasses, msgspec structs and pydantic models are taken.
    """
    text, problems = encode_value(payload, limits=limits)
    if text is not None and not text.startswith(b"{"):
        problems = [f"expected one object (a dict of named values), got {type(payload).__name__}"]
    if text is None or problems:
        raise InvalidPayload(task, problems)
    return Raw(text)


def encode_value(value: object, *, limits: Limits = LIMITS) -> tuple[bytes | None, list[str]]:
    """Any value as canonical JSON text, or every problem that stands in the way."""
    try:
        text = _canonical.encode(value)
    except RecursionError:
        return None, [too_deep(limits)]
    except Exception as error:  # noqa: BLE001 - a foreign model's dump may raise anything
        text = b""
        problems = problems_in(value, limits)
        if not problems:
            try:
                text = _canonical.encode(msgspec.to_builtins(value, enc_hook=plain, str_keys=True))
            except Exception:  # noqa: BLE001 - the same dump again
                problems = [str(error)]
        if problems:
            return None, problems
    # The encoder writes NaN and the infinities as null.
    if b"null" in text and (problems := problems_in(value, limits)):
        return None, problems
    if _plainly_read(text, limits) is _UNSURE and (problems := scan(text, limits)):
        return None, problems
    return text, []


def decode(text: bytes | str | Raw, *, task: str = "job", limits: Limits = LIMITS) -> dict[str, Any]:
    """The payload a stored text holds, checked again: rows may have been written straight by SQL."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
    value = _plainly_read(raw, limits)
    if value is _UNSURE:
        if problems := scan(raw, limits):
            raise InvalidPayload(task, problems)
        value = _read.decode(raw)
    if not isinstance(value, dict):
        raise InvalidPayload(task, [f"expected one object, the row holds {type(value).__name__}"])
    return value


def is_plain(text: str, keys: int, limits: Limits = LIMITS) -> bool:
    """Whether a text that reads as an object of so many keys needs no other look: nothing is nested or escaped in it, and no key came twice."""
    size = len(text)
    return (
        size <= limits.max_digits
        and 4 * size <= limits.max_bytes
        and "\\" not in text
        and "[" not in text
        and text.count("{") == 1
        and text.count(":") == keys <= limits.max_keys
    )


def size_warning(text: bytes | Raw, limits: Limits = LIMITS) -> str | None:
    """A sentence for a payload that is accepted but heavier than it should be."""
    size = memoryview(text).nbytes
    if size <= limits.warn_bytes:
        return None
    return (
        f"the payload has {size:,} bytes, more than the recommended {limits.warn_bytes:,}: pass ids instead of content"
    )


def _plainly_read(text: bytes, limits: Limits) -> Any:
    """The value of a text that the quick looks already clear; `_UNSURE` only means that `scan` has to look."""
    if may_break(text, limits):
        return _UNSURE
    try:
        value = _read.decode(text)
        # Written again it is the same, byte for byte: well-formed, and no key came twice.
        return value if _as_read.encode(value) == text else _UNSURE
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return _UNSURE
