"""Whether a store can be reached and is durable, and what follows when its clock is set back."""

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


CLOCK_HELD_S = 2.0
"""A store may hold its time where it was while its clock is behind by no more than this."""


class BroughtBack(Struct, frozen=True, kw_only=True):
    now: datetime
    behind_s: float = 0.0
    """By how much the clock was set back; 0: nothing in the store says that it was."""
    moved: int = 0
    """Jobs that this step made due earlier."""
    more: bool = False
    """Jobs are left to be examined: send it again, without `behind_s`."""


class BringBack(Op[BroughtBack], frozen=True, kw_only=True):
    """After the store's clock was set back: what began in the future begins now.

    A store's time follows its clock, also backwards: what was written while the clock was ahead would else wait until
    that future comes. Where the caller has seen it go back (`behind_s`), in one commit:

      heartbeats  renewed in the future: renewed now, for as long
      leases      claimed or begun in the future: now, for as long; a due time in the future: now
      duties      taken in the future: now
      breakers    each instant in the future: now; `retry_at` as long after `opened_at` as it was
      alerts      each instant in the future: now
      limits      a pause ends, whenever it began; claims and tokens counted in the future count from now

    Nothing that runs ends by it: a worker that lives renews in time. Then the waiting jobs are examined, the newest
    first, up to `limit` in each call: one that is ready is due now at the latest. One that is scheduled by a delay, a
    retry or a snooze that began in the future is due as long from now as it was from then, with its wait or sleep. What
    was given as an instant (`run_at`) stays. Held jobs that were due at their enqueue are due when they are released.

    Without `behind_s` a call goes on with the examination. Where there is none, it begins if a heartbeat was renewed, a
    duty taken or the newest job enqueued more than CLOCK_HELD_S in the future: for a worker that has just started.
    To begin once more changes nothing more; the examination starts anew.
    """

    behind_s: float | None = None
    limit: int = 1000


class SetBack(Struct, frozen=True, kw_only=True):
    now: datetime
    at: datetime | None = None
    """When the clock was set back last, as far as it was noticed."""
    behind_s: float = 0.0
    """By how much: until so long after `at`, instants written before it lie in the future."""


class ReadSetBack(Op[SetBack], frozen=True, kw_only=True):
    """When a worker last noticed that the store's clock was set back."""
