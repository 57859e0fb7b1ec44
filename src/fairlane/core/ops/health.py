"""Whether a store can be reached and is durable."""

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
    memory_bytes: int | None = None
    """Memory that a store in memory uses; None: its jobs are on disk."""
    memory_limit_bytes: int | None = None
    """What it may use; None: no limit."""


class Check(Op[Health], frozen=True, kw_only=True):
    """Reach the store and read its own state."""

    repeatable: ClassVar[bool] = False
    """It reports how this connection is, not how the next one would be."""
