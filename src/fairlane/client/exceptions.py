"""The last exceptions of jobs that ran in this process: bounded, for tests and for a look from outside."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from fairlane.core.ids import JobId
from fairlane.core.job import ErrorClass

KEPT = 100


class CaughtException(Struct, frozen=True, kw_only=True):
    """What one attempt raised. Its traceback is kept with the attempt, in the store."""

    id: JobId
    task: str
    tenant: str
    attempt: int
    type: str
    """Of the exception."""
    error: str
    error_class: ErrorClass
    is_final: bool
    """The job is dead of it."""
    at: datetime


class LastExceptions:
    """The newest KEPT of them, oldest first."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept: deque[CaughtException] = deque(maxlen=kept)
        self.total = 0
        """How many there have been, those no longer kept included."""

    def add(self, caught: CaughtException) -> None:
        self.total += 1
        self._kept.append(caught)

    def clear(self) -> None:
        self._kept.clear()

    def __iter__(self) -> Iterator[CaughtException]:
        return iter(tuple(self._kept))

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, at: int) -> CaughtException:
        return self._kept[at]
