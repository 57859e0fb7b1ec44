"""Removes secrets from what is about to be kept or shown: errors, tracebacks, log lines, people's notes, results.

Recognises passwords inside URLs, values after a name that announces a secret, authorization headers, keys and tokens of
known shapes.
"""

from __future__ import annotations

import re
from typing import Any

from fairlane.core.payload import secrets
from fairlane.core.payload.secrets import REDACTED

_WINDOW = 32_768
"""Of a very long text only this much of either end is examined and kept; the rest is blanked."""

_DEEPEST = 100
"""No result nested deeper is ever kept by a worker."""

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,30}PRIVATE KEY-----|\Z)", re.DOTALL
)
_IN_A_URL = re.compile(r"(?P<kept>://[^\s/:@]{0,100}:)[^\s/]{1,300}(?=@)")
_HEADER = re.compile(
    r"""(?P<kept>\b(?:(?:proxy-)?authorization|x-api-key|x-auth-token)["']?\s*[:=]\s*)
        (?: "[^"\r\n]*"? | '[^'\r\n]*'? | (?:(?:bearer|basic|digest|negotiate|token|apikey)\s+)?[^\s"']+ )
      | (?P<cookie>\b(?:set-)?cookie["']?\s*[:=]\s*)(?: "[^"\r\n]*"? | '[^'\r\n]*'? | [^"'\r\n]+ )""",
    re.VERBOSE | re.IGNORECASE,
)
_NAMED = re.compile(
    r"""(?P<kept>(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|signing[_-]?key)
        (?: \s*=\s* | \\*["']\s*[:=]\s* ))
        (?: \\*"[^"\r\n]*"? | \\*'[^'\r\n]*'? | [^\s&"',;)}\]]+ )""",
    re.VERBOSE | re.IGNORECASE,
)
_SHAPED = re.compile(
    r"""(?P<kept>\b[Bb]earer\s+)[A-Za-z0-9._~+/=-]{8,}
      | (?<![\w-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*
      | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
      | \b(?:gh[pousr]_[A-Za-z0-9]{36,} | github_pat_[A-Za-z0-9_]{60,} | glpat-[A-Za-z0-9_-]{20,}
           | xox[abprs]-[A-Za-z0-9-]{10,}
           | [sr]k_live_[A-Za-z0-9]{16,} | AIza[A-Za-z0-9_-]{35,} | fl_[A-Za-z0-9_-]{43})
    """,
    re.VERBOSE,
)
_FINDERS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (_PRIVATE_KEY, ("-----begin",)),
    (_IN_A_URL, ("://",)),
    (_HEADER, ("authorization", "cookie", "x-api-key", "x-auth-token")),
    (_NAMED, ("pass", "pwd", "secret", "token", "key")),
    (_SHAPED, ("earer", "eyj", "akia", "asia", "gh", "glpat-", "xox", "k_live_", "aiza", "fl_")),
)
"""Each with what is in every text where it finds something: looking for that first is many times quicker."""
_CUT_OFF = re.compile(r"\S{1,400}\Z")
_CUT_ON = re.compile(r"\A\S{1,400}")


def without_secrets(text: str) -> str:
    """The text with `[redacted]` in place of secrets. Hides too much rather than too little.

    Call it before a text is cut: half a secret is not found any more.
    """
    if len(text) > 2 * _WINDOW:
        head, tail = _CUT_OFF.sub("", text[:_WINDOW]), _CUT_ON.sub("", text[-_WINDOW:])
        return _hidden(head) + "." * (len(text) - len(head) - len(tail)) + _hidden(tail)
    return _hidden(text)


def value_without_secrets(value: Any) -> Any:
    """JSON as people may see it: without what has no business in a payload, and without secrets inside its texts."""
    shown, _ = secrets.redact({"": value})
    return _texts_hidden(shown[""])


def _texts_hidden(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return _hidden(value)  # whole, however long: programs read results, and a blanked middle would be wrong data
    if depth > _DEEPEST:
        return REDACTED
    if isinstance(value, dict):
        return {key: _texts_hidden(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_texts_hidden(item, depth + 1) for item in value]
    return value


def _hidden(text: str) -> str:
    lowered = text.lower()
    for finder, marks in _FINDERS:
        if any(mark in lowered for mark in marks):
            text = finder.sub(_replaced, text)
    return text


def _replaced(found: re.Match[str]) -> str:
    kept = found.groupdict()
    return (kept.get("kept") or kept.get("cookie") or "") + REDACTED
