"""Looks over raw JSON text before anything parses it, reporting every problem with its path.

Iterative: no nesting, however deep, can exhaust the stack; no number, however long, is ever converted.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NoReturn

from msgspec import Struct

from fairlane.core.text import printable
from fairlane.errors import InvalidOption

MOST_PROBLEMS = 20
SHOWN_KEY = 40


class ScanLimits(Struct, frozen=True, kw_only=True):
    """How large and how odd a payload may be."""

    warn_bytes: int = 10_240
    max_bytes: int = 1_048_576
    max_depth: int = 64
    max_keys: int = 10_000
    """Per object."""
    max_digits: int = 300
    """Of one number."""

    def __post_init__(self) -> None:
        for option in self.__struct_fields__:
            value = getattr(self, option)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidOption(option, value, "a whole number from 1 on")


LIMITS = ScanLimits()

_SPACE = re.compile(rb"[ \t\r\n]*")
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"')
_WORD = re.compile(rb"true|false|null")
_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)")


def scan(text: bytes, limits: ScanLimits = LIMITS) -> list[str]:
    """Every problem of a JSON text, up to twenty; none: it is well-formed and within the limits."""
    if len(text) > limits.max_bytes:
        return [f"{len(text):,} bytes are more than the {limits.max_bytes:,} allowed: pass ids instead of content"]
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return [f"not valid UTF-8 at byte {error.start}"]
    scanner = _Scanner(text, limits)
    with suppress(_StopScanning):
        scanner.run()
    return scanner.problems


_NOT_STRUCTURE = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[^\[\]{}:"]++', re.DOTALL)
_OPENING, _CLOSING = b"[{", b"]}"
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_MARKS = bytes(code for code in range(256) if code not in _OPENING + _CLOSING + b'"')


def is_too_deep_or_wide(text: bytes, limits: ScanLimits) -> bool:
    """Whether a text nests deeper, or an object has more keys, than allowed; also of brackets that do not match.

    Twenty times faster than `scan`: only brackets and colons outside of quotes are looked at. Where no quote is escaped
    and there are few colons the innermost brackets are removed again and again: ten times faster still.
    """
    if text.count(b":") <= limits.max_keys and (b"\\" not in text or b'\\"' not in text):
        brackets = text.translate(_SQUARE, _NO_MARKS).replace(b'""', b"")
        if b'"' in brackets:  # of a string that holds brackets
            brackets = b"".join(text.split(b'"')[::2]).translate(_SQUARE, _NO_MARKS)
        for _ in range(limits.max_depth):
            if not brackets:
                return False
            brackets = brackets.replace(b"[]", b"")
        return bool(brackets)
    keys: list[int] = []
    for mark in _NOT_STRUCTURE.sub(b"", text):
        if mark in _OPENING:
            keys.append(0)
            if len(keys) > limits.max_depth:
                return True
        elif not keys:
            return True
        elif mark in _CLOSING:
            keys.pop()
        else:
            keys[-1] += 1
            if keys[-1] > limits.max_keys:
                return True
    return bool(keys)


def shown_key(key: str) -> str:
    """A key as it may stand in a path: short, and nothing in it that could break a line or a log."""
    text = key if len(key) <= SHOWN_KEY else key[:SHOWN_KEY] + "…"
    return printable(text)


class _StopScanning(Exception):
    """Nothing after this point can be understood, or enough was found."""


class _Level:
    """One array or object that is still open."""

    def __init__(self, is_object: bool) -> None:
        self.is_object = is_object
        self.keys: set[str] = set()
        self.count = 0
        self.label = ""


class _Scanner:
    def __init__(self, text: bytes, limits: ScanLimits) -> None:
        self.text, self.limits = text, limits
        self.at = 0
        self.open: list[_Level] = []
        self.problems: list[str] = []

    def run(self) -> None:
        self._skip_space()
        self._value()
        while self.open:
            self._next_item(self.open[-1])
        self._skip_space()
        if self.at < len(self.text):
            self._stop("text follows the value")

    def _next_item(self, level: _Level) -> None:
        """Read one more item of the innermost open level, or its end."""
        self._skip_space()
        closing = b"}" if level.is_object else b"]"
        if self._take(closing):
            self.open.pop()
            return
        if level.count and not self._take(b","):
            self._stop(f"expected , or {closing.decode()}")
        self._skip_space()
        level.count += 1
        if level.is_object:
            self._key(level)
        else:
            level.label = f"[{level.count - 1}]"
        self._value()

    def _key(self, level: _Level) -> None:
        key = self._string("a key in quotes")
        name = _meant(key[1:-1])
        level.label = "." + shown_key(name)
        if name in level.keys:
            self._report("this key comes twice")
        level.keys.add(name)
        if level.count == self.limits.max_keys + 1:
            level.label = ""
            self._report(f"more than {self.limits.max_keys:,} keys in one object")
        self._skip_space()
        if not self._take(b":"):
            self._stop("expected : after a key")
        self._skip_space()

    def _value(self) -> None:
        first = self.text[self.at : self.at + 1]
        if first in (b"{", b"["):
            if len(self.open) >= self.limits.max_depth:
                self._stop(f"nested deeper than {self.limits.max_depth} levels")
            self.at += 1
            self.open.append(_Level(first == b"{"))
        elif first == b'"':
            self._string("text")
        elif match := _NUMBER.match(self.text, self.at):
            self._number(match.group())
            self.at = match.end()
        elif match := _WORD.match(self.text, self.at):
            self.at = match.end()
        else:
            self._stop("expected a value")

    def _string(self, expected: str) -> bytes:
        match = _STRING.match(self.text, self.at)
        if match is None:
            self._stop(f"expected {expected}, whole and with valid escapes")
        self.at = match.end()
        if b"\\u" in match.group():
            self._check_escapes(match.group())
        return match.group()

    def _check_escapes(self, string: bytes) -> None:
        high_ends_at = -1
        lone = False
        for escape in _ESCAPE.finditer(string):
            code = int(escape.group(1), 16) if escape.group(1) else -1
            if high_ends_at >= 0 and not (escape.start() == high_ends_at and 0xDC00 <= code <= 0xDFFF):
                lone, high_ends_at = True, -1
            if code == 0:
                self._report("text holds a NUL character, which not every store can keep")
            elif 0xD800 <= code <= 0xDBFF:
                high_ends_at = escape.end()
            elif 0xDC00 <= code <= 0xDFFF:
                lone, high_ends_at = lone or high_ends_at < 0, -1
        if lone or high_ends_at >= 0:
            self._report("a lone surrogate is not valid Unicode text")

    def _number(self, number: bytes) -> None:
        digits = sum(48 <= byte <= 57 for byte in number) if len(number) > self.limits.max_digits else 0
        if digits > self.limits.max_digits:
            self._report(f"a number of {digits:,} digits, more than {self.limits.max_digits} allowed: use text")
        elif (b"e" in number or b"E" in number or b"." in number) and abs(float(number)) == float("inf"):
            self._report("a number too large for a float: use text")

    def _take(self, mark: bytes) -> bool:
        if self.text.startswith(mark, self.at):
            self.at += 1
            return True
        return False

    def _skip_space(self) -> None:
        if match := _SPACE.match(self.text, self.at):
            self.at = match.end()

    def _path(self) -> str:
        path = "$" + "".join(level.label for level in self.open)
        return path if len(path) <= 200 else path[:120] + "…" + path[-79:]

    def _report(self, problem: str) -> None:
        self.problems.append(f"{self._path()}: {problem}")
        if len(self.problems) >= MOST_PROBLEMS:
            raise _StopScanning

    def _stop(self, problem: str) -> NoReturn:
        self._report(f"{problem} (byte {self.at})")
        raise _StopScanning


def _meant(inside: bytes) -> str:
    """The text a quoted key stands for, so that two spellings of one key are seen as one."""
    if b"\\" not in inside:
        return inside.decode()
    halves = _ESCAPE.sub(_unescaped, inside).decode("utf-8", "surrogatepass")
    return halves.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescaped(escape: re.Match[bytes]) -> bytes:
    if escape.group(1):
        return chr(int(escape.group(1), 16)).encode("utf-8", "surrogatepass")
    letter = escape.group()[1:]
    return {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f"}.get(letter, letter)
