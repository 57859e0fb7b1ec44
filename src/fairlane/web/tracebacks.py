"""Tracebacks as people read them: frames of their own code in full, runs of Fairlane's and the libraries' folded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from msgspec import Struct

_FRAME = re.compile(r'^\s*File "(?P<path>[^"]+)", line (?P<line>\d+)')
_FOREIGN = re.compile(r"[/\\](fairlane|site-packages|dist-packages|lib[/\\]python3[^/\\]*|asyncio|concurrent)[/\\]")


class TracebackPart(Struct, frozen=True):
    text: str
    folded: int
    """How many frames of others are folded here; 0: shown in full."""


def parts_of(traceback: str) -> tuple[TracebackPart, ...]:
    """The traceback in parts, in order: nothing is left out."""
    found = []
    for is_foreign, frames in groupby(_frames(traceback), lambda frame: frame[0]):
        texts = [text for _, text in frames]
        found.append(TracebackPart("\n".join(texts), len(texts) if is_foreign else 0))
    return tuple(found)


def _frames(traceback: str) -> Iterator[tuple[bool, str]]:
    """Each frame with the lines below it, and whether it is of others; other lines one by one."""
    frame: list[str] = []
    is_foreign = False
    for line in traceback.rstrip().splitlines():
        match = _FRAME.match(line)
        is_below = bool(frame) and line.startswith("    ")
        if match is None and is_below:
            frame.append(line)
            continue
        if frame:
            yield is_foreign, "\n".join(frame)
            frame = []
        if match is None:
            yield False, line
        else:
            frame, is_foreign = [line], _FOREIGN.search(match["path"]) is not None
    if frame:
        yield is_foreign, "\n".join(frame)
