"""Ctrl-C and its like as facts to look at: nothing is torn in the middle, and the demonstration ends in order."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any, Self

HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Notes signals while its block lasts. For the main thread."""

    def __init__(self) -> None:
        self._signals: list[int] = []
        self._when_ending = 0
        self._before: dict[signal.Signals, Any] = {}

    @property
    def heard(self) -> bool:
        return bool(self._signals)

    @property
    def heard_again(self) -> bool:
        """Since the end was begun."""
        return len(self._signals) > self._when_ending

    @property
    def exit_code(self) -> int:
        """As a shell tells it: 130 for a Ctrl-C; 0: nobody interrupted."""
        return 128 + self._signals[0] if self._signals else 0

    def ending(self) -> None:
        self._when_ending = len(self._signals)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in HEARD}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
