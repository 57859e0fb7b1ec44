"""Finds content that has no business in a job's payload: secrets, e-mail bodies, documents, card numbers.

By key names, nested, in any letter case and any style of separating words; and by values that give themselves away.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from fairlane.core.scan import shown_key
from fairlane.core.sensitive_names import is_email, names_id, sensitive_name
from fairlane.core.sensitive_values import REDACTED, sensitive_value

SensitivePolicy = Literal["refuse", "redact", "allow"]

_Step = str | int
_DEEPEST = 100
"""No payload nested deeper is ever accepted, so none is followed deeper."""


class Finding(NamedTuple):
    path: str
    why: str


def find(payload: object) -> list[Finding]:
    """Every sensitive value, with the path to it and the reason."""
    return [Finding(_shown(steps), why) for steps, why in _walk(payload)]


def redact(payload: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A copy with every sensitive value replaced, and the paths to them. In the copy `find` finds nothing."""
    found = [steps for steps, _ in _walk(payload)]
    copy = _copied(payload)
    for steps in found:
        holder: Any = copy
        for step in steps[:-1]:
            holder = holder[step]
        holder[steps[-1]] = REDACTED
    return copy, [_shown(steps) for steps in found]


def _walk(payload: object) -> Iterator[tuple[tuple[_Step, ...], str]]:
    waiting: list[tuple[tuple[_Step, ...], object, str]] = [((), payload, "")]
    while waiting:
        steps, value, parent = waiting.pop()
        if len(steps) > _DEEPEST:
            continue
        if isinstance(value, dict):
            email = is_email(value)
            inner: list[tuple[tuple[_Step, ...], object, str]] = []
            for key, item in value.items():
                name = str(key)
                why = sensitive_name(name, item, parent, in_email=email) or sensitive_value(item, is_id=names_id(name))
                if why:
                    yield (*steps, key), why
                elif isinstance(item, (dict, list, tuple)):
                    inner.append(((*steps, key), item, name))
            waiting += reversed(inner)
        elif isinstance(value, (list, tuple)):
            for at, item in enumerate(value):
                if why := sensitive_value(item, is_id=names_id(parent)):
                    yield (*steps, at), why
                elif isinstance(item, (dict, list, tuple)):
                    waiting.append(((*steps, at), item, parent))


def _copied(value: Any, depth: int = 0) -> Any:
    if depth > _DEEPEST:
        return value
    if isinstance(value, dict):
        return {key: _copied(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(item, depth + 1) for item in value]
    return value


def _shown(steps: tuple[_Step, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{shown_key(str(step))}" for step in steps).lstrip(".")


__all__ = ["REDACTED", "Finding", "SensitivePolicy", "find", "redact"]
