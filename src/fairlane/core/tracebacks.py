"""Tracebacks as people read them: frames of their own code in full, runs of Fairlane's frames folded.

The one rule for pages, command line and logs. A page also folds frames of libraries, because it can unfold them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from msgspec import Struct

_FRAME = re.compile(r'^\s*File "(?P<path>[^"]+)", line (?P<line>\d+)')
_OWN = (
    r"[/\\]fairlane[/\\](alerts|api|client|contrib|core|metrics|stores|supervisors|testing|web|worker)[/\\]"
    r"|[/\\]fairlane[/\\](__init__|__main__|errors|extras|isolation)\.py$"
)
"""Of Fairlane, wherever it is installed: a project in a directory called fairlane has other ones inside."""
OWN_FRAMES = re.compile(_OWN)
FOREIGN_FRAMES = re.compile(
    rf"{_OWN}|[/\\](site-packages|dist-packages|lib[/\\]python3[^/\\]*|asyncio|concurrent)[/\\]"
)
"""Of Fairlane and of libraries."""


class TracebackPart(Struct, frozen=True):
    text: str
    folded: int
    """How many frames are folded here; 0: shown in full."""


def parts_of(traceback: str, folds: re.Pattern[str] = FOREIGN_FRAMES) -> tuple[TracebackPart, ...]:
    """The traceback in parts, in order: nothing is left out. Frames of the files that match `folds` are folded."""
    found = []
    for is_folded, frames in groupby(_frames(traceback, folds), lambda frame: frame[0]):
        texts = [text for _, text in frames]
        found.append(TracebackPart("\n".join(texts), len(texts) if is_folded else 0))
    return tuple(found)


def folded(traceback: str) -> str:
    """The traceback with each run of Fairlane's own frames as one line."""
    return "\n".join(
        part.text if not part.folded else f"  … {part.folded} frame{'' if part.folded == 1 else 's'} of Fairlane"
        for part in parts_of(traceback, OWN_FRAMES)
    )


def _frames(traceback: str, folds: re.Pattern[str]) -> Iterator[tuple[bool, str]]:
    """Each frame with the lines below it, and whether it is folded; other lines one by one."""
    frame: list[str] = []
    is_folded = False
    for line in traceback.rstrip().splitlines():
        match = _FRAME.match(line)
        is_below = bool(frame) and line.startswith("    ")
        if match is None and is_below:
            frame.append(line)
            continue
        if frame:
            yield is_folded, "\n".join(frame)
            frame = []
        if match is None:
            yield False, line
        else:
            frame, is_folded = [line], folds.search(match["path"]) is not None
    if frame:
        yield is_folded, "\n".join(frame)
