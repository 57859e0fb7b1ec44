"""Whether a worker may go on: pure rules over what its foreman sees of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from fairlane.worker.board import Running

Verdict = Literal["stuck", "lapsed", "untrusted", "silent", "not_starting"]

START_S = 120.0
"""How long an application may take to load."""
LET_GO_S = 3.0
"""Beyond twice its timeout an attempt gets this long: a runner may be just killing its process."""
MARGIN_S = 3.0
"""Attempts end this long before a heartbeat that cannot be renewed does."""


class Sight(Struct, frozen=True, kw_only=True):
    """One look at a worker. Instants are monotonic."""

    now_s: float
    lease_s: float
    started_s: float
    ticked_s: float | None
    """None: it has not said hello."""
    renewed_s: float | None
    """When the last heartbeat that reached the store was sent; None: not registered."""
    running: tuple[Running, ...] = ()
    at_work_s: float | None = None
    """When it was last seen running anything."""
    held: int = 0
    has_lapsed: bool = False
    """The store had forgotten it: whatever it runs belongs to somebody else."""
    is_halted: bool = False
    """Stopped by a signal: what it runs makes no progress."""


def judge(sight: Sight) -> Verdict | None:
    """Why this worker has to be killed; None while it may live."""
    if sight.ticked_s is None or sight.renewed_s is None:
        late = sight.ticked_s is None and sight.now_s - sight.started_s > START_S
        return "not_starting" if late else None
    if stuck(sight.running, sight.now_s):
        return "stuck"
    is_busy = bool(sight.running or sight.held)
    if is_busy and sight.has_lapsed:
        return "lapsed"
    if is_busy and sight.now_s - sight.renewed_s > trusted_s(sight.lease_s):
        return "untrusted"
    if sight.is_halted and sight.now_s - sight.ticked_s > sight.lease_s:
        return "silent"
    # At work it may be silent: something holds the interpreter, inside its deadline. Having let go it gets a lease to speak again: its first
    # words come after what it was at has ended. (tests/faults/test_worker_hostile.py)
    excused_s = max(sight.ticked_s, sight.at_work_s or 0.0)
    if not sight.running and sight.now_s - excused_s > sight.lease_s:
        return "silent"
    return None


def stuck(running: Iterable[Running], now_s: float) -> tuple[Running, ...]:
    """The attempts past their hard deadline."""
    return tuple(attempt for attempt in running if now_s - attempt.began_s > 2 * attempt.timeout_s + LET_GO_S)


def trusted_s(lease_s: float) -> float:
    """How long after its last renewal a worker may run anything."""
    return lease_s - min(MARGIN_S, lease_s / 4)


def self_trusted_s(lease_s: float) -> float:
    """The same for the worker itself, should its foreman not even be able to kill it."""
    return lease_s - min(MARGIN_S * 2 / 3, lease_s / 6)
