"""Signals: what an application says has happened, for jobs that wait for it.

emit ──▶ signal (kept for a while) ──▶ step of each job that waits for (tenant, name, key), which is then due
                 ▲
job ── TakeSignal, or its Turn: also finds what was emitted before it came to wait

Each signal reaches each job once. A job waits in `scheduled`, due at its timeout.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Raw, Struct

from fairlane.core.ops.base import Op, Scope

DELIVER_LIMIT = 1000


class Emitted(Struct, frozen=True, kw_only=True):
    repeated: bool
    """This very id was there already: nothing was written."""
    delivered: int = 0
    """Jobs it ended the wait of, at once."""


class Emit(Op[Emitted], frozen=True, kw_only=True):
    """Keep a signal, and end the wait of up to DELIVER_LIMIT jobs for it, by seq; Deliver does the rest.

    A job waits if it is in `scheduled` since it came to wait. Its wait is recorded as its step with the signal's data,
    and it is due now; workers that wait are woken.
    """

    id: UUID
    """Made by the client: repeated after a lost reply, a signal is there once."""
    tenant: str
    name: str
    key: str = ""
    data: Raw
    """JSON text."""
    deliver: bool = True
    """False: leave all of it to Deliver. So it is on a connection of the caller's, whose transaction holds no lock
    that a worker could wait for."""


class Delivered(Struct, frozen=True, kw_only=True):
    count: int
    """Jobs whose wait ended."""
    more: bool = False
    """It stopped at its limit: there may be more to deliver."""


class Deliver(Op[Delivered], frozen=True, kw_only=True):
    """End waits for signals that have not reached all who wait: up to `limit` jobs, of up to `limit` signals.

    The oldest signal first, by the instant and then the id of its emission; its jobs by seq.
    """

    limit: int = DELIVER_LIMIT


class Signal(Struct, frozen=True, kw_only=True):
    id: UUID
    tenant: str
    name: str
    key: str
    data: str
    """JSON text."""
    at: datetime
    """When it was emitted."""


class SignalPage(Struct, frozen=True, kw_only=True):
    signals: tuple[Signal, ...]


class ListSignals(Op[SignalPage], frozen=True, kw_only=True):
    """The newest signals that are kept, newest first, at most `limit` (1 to MAX_PAGE)."""

    scope: Scope
    name: str | None = None
    key: str | None = None
    limit: int = 50
