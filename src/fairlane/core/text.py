"""Text for people, and text from outside as it may stand in a log line, on a terminal or in the header of a mail.

A tenant's name, an exception's message or a note may hold escape sequences, marks that turn the direction of writing,
line breaks and words that mail programs decode: shown as they are, they would forge lines, colours and headers.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import datetime

INDENT = "    "


def printable(text: str, *, keep: str = "", escaped: Callable[[str], str] | None = None) -> str:
    """The text with each character that prints nothing of its own made visible, as in `repr`; those of `keep` stay.

    These are control and format characters, direction marks, halves of surrogate pairs and unusual spaces.
    """
    if text.isprintable():
        return text
    escaped = escaped or _as_in_python
    return "".join(char if char.isprintable() or char in keep else escaped(char) for char in text)


def one_line(text: str) -> str:
    """The text on one line: white space of any kind becomes a single blank."""
    return printable(" ".join(text.split()))


def log_line(text: str, *, has_lines: bool = False) -> str:
    """The text as part of a log line; where it has lines of its own, as a traceback, they are indented.

    No line of it can be taken for one that the log itself began.
    """
    return printable(text.replace("\n", f"\n{INDENT}"), keep="\n\t") if has_lines else printable(text)


def plural(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`, `2 processes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}{'es' if noun.endswith('s') else 's'}"


def command(template: str, **words: object) -> str:
    """A command for people to copy, each word quoted where a shell would act on it; a tuple is several words.

    A tenant's name is what a customer has chosen: `acme; curl …` must stay a name.
    """
    quoted = {
        name: shlex.join(map(str, word)) if isinstance(word, tuple) else shlex.quote(str(word))
        for name, word in words.items()
    }
    return template.format(**quoted)


def header_text(text: str) -> str:
    """The text as the value of a mail's header: on one line, and without encoded words (`=?utf-8?q?…?=`)."""
    return one_line(text).replace("=?", "= ?")


def printable_json(text: str) -> str:
    """The same JSON document, its characters that print nothing written as escapes."""
    return printable(text, keep="\n", escaped=_as_in_json)


def _as_in_python(char: str) -> str:
    return ascii(char)[1:-1]


def _as_in_json(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def span_between(one: datetime, other: datetime) -> str:
    """How far two instants are apart, roughly."""
    s = abs((one - other).total_seconds())
    if s < 60:
        return f"{s:.1f} s"
    return f"{s / 60:.0f} min" if s < 7200 else f"{s / 3600:.1f} h"
