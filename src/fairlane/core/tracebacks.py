"""Tracebacks as people read them: frames of their own code in full, runs of Fairlane's frames folded, none of drivers.

The one rule for pages, command line and logs. A page also folds frames of libraries, because it can unfold them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

E = TypeVar("E", bound=BaseException)

_FRAME = re.compile(r'^\s*File "(?P<path>[^"]+)", line (?P<line>\d+)')
_HERE = re.escape(str(Path(__file__).parents[1]))
_OWN = rf"^{_HERE}[/\\]|[/\\](site|dist)-packages[/\\]fairlane[/\\]"
"""Of this package, or of one installed where the job ran; a project may be in a directory called fairlane, too."""
OWN_FRAMES = re.compile(_OWN)
FOREIGN_FRAMES = re.compile(
    rf"{_OWN}|[/\\](site-packages|dist-packages|lib[/\\]python3[^/\\]*|asyncio|concurrent)[/\\]"
)
"""Of Fairlane and of libraries."""


def without_frames(error: E) -> E:
    """An error of a driver or a library, and those it comes from, without the frames they went through.

    What reports errors sends the variables of frames: of these, a store's password, a webhook's path, the arguments of
    a job. The text says what was wrong, and frames of a driver nothing more. (tests/faults/test_log_canaries.py)
    """
    seen: BaseException | None = error
    while seen is not None:
        seen.__traceback__, seen = None, seen.__cause__
    return error


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
