"""Values as people read them on a page: numbers, spans, instants, JSON, names of states."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from typing import Any

import msgspec
from markupsafe import Markup, escape

from fairlane.core.ops import ROUGH_CAP
from fairlane.core.text import printable, printable_json

MOST_TEXT = 100_000
"""Characters of one value on a page."""


def shown_text(value: Any) -> Any:
    """What a template writes: characters that print nothing of their own are made visible."""
    if value is None:
        return ""
    return printable(value, keep="\n\t") if type(value) is str else value


def number(value: float | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.3g}"


def rough(count: int) -> str:
    """A count; one that may be an estimate has two digits and a sign before it."""
    if count < ROUGH_CAP:
        return f"{count:,}"
    step = 10 ** (len(str(count)) - 2)
    return f"≈ {round(count / step) * step:,}"


def span(seconds: float | None) -> str:
    """At most two units: `12 ms`, `1.5 s`, `2 m 30 s`, `3 h 5 m`, `2 d 4 h`."""
    if seconds is None:
        return "–"
    if seconds < 0.9995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    for size, unit, smaller, name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit} {rest} {name}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def distance(at: datetime | None, now: datetime) -> str:
    if at is None:
        return "–"
    s = (now - at).total_seconds()
    if abs(s) < 1:
        return "now"
    away = abs(round(s))
    words = span(away if away < 60 or away >= 3600 else away // 60 * 60)
    return f"{words} ago" if s > 0 else f"in {words}"


def instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(at: datetime | None, now: datetime) -> Markup:
    """How long ago, or in how long; the instant itself on hover."""
    if at is None:
        return Markup("–")
    iso = at.astimezone(UTC).isoformat(timespec="milliseconds")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, instant(at), distance(at, now))


def percent(share: float | None) -> str:
    if share is None:
        return "–"
    return f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"


def indented_json(value: Any) -> str:
    """A value as JSON, keys in order; whole numbers keep every digit, text that is no JSON stays as it is.

    Of a long text the beginning is shown.
    """
    if isinstance(value, msgspec.Raw):
        value = json.loads(bytes(value))
    if isinstance(value, str):
        return _beginning(printable(value, keep="\n\t"))
    return _beginning(printable_json(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, default=str)))


def _beginning(text: str) -> str:
    left = len(text) - MOST_TEXT
    return text if left <= 0 else f"{text[:MOST_TEXT]}\n… and {left:,} characters more; the HTTP API shows them all"


def in_words(name: str) -> str:
    return name.replace("_", " ")


def worded(text: str) -> Markup:
    """A problem's text with its `commands` set as code."""
    parts = str(escape(text)).split("`")
    return Markup("".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts)))


def without_tenant(search: str) -> str:
    """A search without its word `tenant:`; one that cannot be read stays as it is."""
    try:
        words = shlex.split(search)
    except ValueError:
        return search
    kept = [word for word in words if not word.lower().startswith("tenant:")]
    return search if kept == words else " ".join(map(quoted, kept))


def quoted(word: str) -> str:
    """A word of a search as it is typed: in quotes if it has a blank, a quote or a backslash."""
    if word and not any(char.isspace() or char in "'\"\\" for char in word):
        return word
    name, colon, value = word.partition(":")
    inner = value if colon else name
    escaped = inner.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}:"{escaped}"' if colon else f'"{escaped}"'
