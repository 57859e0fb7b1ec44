"""Keeping a store in order: its check, retention, and a purge for tests."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from msgspec import Struct

from fairlane.core.ops.base import Op


class Health(Struct, frozen=True, kw_only=True):
    now: datetime
    store: str
    """`memory`, `sqlite`, `postgresql`, …"""
    server: str
    """The server's or library's own version."""
    schema_version: int
    durable: bool
    degraded: tuple[str, ...] = ()
    """What keeps it from being durable or safe, one sentence each with the remedy."""


class Check(Op[Health], frozen=True, kw_only=True):
    """Reach the store and read its own state."""

    answer: ClassVar[object] = Health
    repeatable: ClassVar[bool] = False
    """It tells how the connection is, not how the next one would be."""


class Retained(Struct, frozen=True, kw_only=True):
    jobs: int
    """Jobs removed with all their facts and keys."""


class Retain(Op[Retained], frozen=True, kw_only=True):
    """Remove finished jobs past their age, oldest first, at most `limit`, with their attempts, keys and dead letters.

    First completed and cancelled ones that finished before `finished_before`, by (`finished_at`, seq); then dead ones, only when their dead
    letter was closed before `closed_before`, by (`closed_at`, seq), never while pending review.
    """

    answer: ClassVar[object] = Retained

    finished_before: datetime | None = None
    closed_before: datetime | None = None
    stats_before: datetime | None = None
    """Also remove figures of minutes before this, oldest first, a few thousand at a time; they do not count against `limit`."""
    limit: int = 1000


class Purged(Struct, frozen=True, kw_only=True):
    jobs: int


class Purge(Op[Purged], frozen=True, kw_only=True):
    """Remove every job, worker, audit record, breaker, schedule, pause, limit, tenant and figure, and everything else kept beside them; their numbers are not given again. For tests: the client refuses it in production."""

    answer: ClassVar[object] = Purged
