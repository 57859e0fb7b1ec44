"""What a running attempt says of itself: progress and log lines, checked here, written by whoever runs it."""

from __future__ import annotations

import math
from typing import Protocol

from fairlane.core.job import Lease
from fairlane.core.payload.storable import safe_str
from fairlane.errors import InvalidOption

LINE_CHARS = 1_000


class NoteTaker(Protocol):
    """Takes what attempts say, from any thread, and writes it in its own time."""

    def take(self, lease: Lease, *, progress: float | None = None, line: str | None = None) -> None: ...


def check_progress(value: object) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or not 0 <= value <= 1
    ):
        raise InvalidOption("progress", value, "a number from 0 to 1")
    return float(value)


def log_line(message: object) -> str:
    """Text any store can keep, at most LINE_CHARS long."""
    return safe_str(message, LINE_CHARS)
