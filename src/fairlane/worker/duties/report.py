"""What a duty is, and what it says of one step."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from msgspec import Struct


class Report(Struct, frozen=True, kw_only=True):
    """What one step did, and when the next is due."""

    done: int = 0
    """Jobs moved, schedules fired, rows written: whatever the duty counts."""
    next_s: float | None
    """Seconds until the next step; 0: there is more to do now. None: there is nothing left, ever."""


class Duty(Protocol):
    name: str

    async def run_once(self, now: datetime) -> Report:
        """One bounded step. May be repeated, and may run in any number of workers at once."""
        ...


def until_minute_s(now: datetime) -> float:
    """Seconds until the next full minute."""
    return 60.0 - now.second - now.microsecond / 1_000_000
