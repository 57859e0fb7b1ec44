"""Values as people read them: instants, spans, counts, and text that cannot harm a terminal."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with escape sequences, direction marks and other control characters made visible; tabs and newlines stay."""
    return _UNSAFE.sub(lambda found: ascii(found.group())[1:-1], text)


def one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def shortened(text: str, limit: int = 60) -> str:
    line = one_line(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def instant(at: datetime | None) -> str:
    """UTC, to the second: `2026-01-01T12:00:00Z`."""
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def span(length: timedelta) -> str:
    """At most two units, as the options take it: `1h30m`, `45s`."""
    left = max(round(length.total_seconds()), 0)
    parts = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def count(number: int, cap: int) -> str:
    """A count that stops at `cap`, which then means that many or more."""
    return f"{number}+" if number >= cap else str(number)


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
