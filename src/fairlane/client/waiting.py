"""Waiting as a dependency: tests hand in a pause that moves their clock instead."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Protocol

FIRST_PAUSE_S = 0.005
LONGEST_PAUSE_S = 0.5
GROWTH = 1.5


class Pause(Protocol):
    def sleep(self, seconds: float) -> None: ...

    async def asleep(self, seconds: float) -> None: ...


class SystemPause:
    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        import asyncio  # here, for it doubles the time of importing fairlane

        await asyncio.sleep(seconds)


def growing_pauses() -> Iterator[float]:
    """Short at first, for jobs that end at once; then long enough not to trouble the store."""
    pause_s = FIRST_PAUSE_S
    while True:
        yield pause_s
        pause_s = min(pause_s * GROWTH, LONGEST_PAUSE_S)
