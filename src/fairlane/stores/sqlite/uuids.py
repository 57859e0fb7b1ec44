"""Ids out of their sixteen bytes, a third of the time `UUID(bytes=…)` takes: one is made for every lease."""

from __future__ import annotations

from uuid import UUID, SafeUUID

_set_int = UUID.int.__set__  # type: ignore[attr-defined, misc]
_set_is_safe = UUID.is_safe.__set__  # type: ignore[attr-defined, misc]
_UNKNOWN = SafeUUID.unknown
_new, _from_bytes = UUID.__new__, int.from_bytes


def uuid_from(raw: bytes) -> UUID:
    """Skips the checks of arguments that cannot be wrong here."""
    made = _new(UUID)
    _set_int(made, _from_bytes(raw, "big"))
    _set_is_safe(made, _UNKNOWN)
    return made
