"""Decides whether a worker has to be killed, from what its foreman observes: pure rules."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from fairlane.worker.board import RunningAttempt
from fairlane.worker.foreman.messages import Tick

KillReason = Literal["stuck", "blocked", "lapsed", "untrusted", "silent", "not_starting"]
Ending = KillReason | Literal["left", "overstayed", "refused", "broken", "crashed"]
"""Why a worker process has ended."""

START_S = 120.0
"""How long an application may take to load."""
STALLED_S = 120.0
"""Beyond its poll time, a turn loop may take this long for a step: the store's own timeouts end every wait before."""
LET_GO_S = 3.0
"""Beyond twice its timeout an attempt gets this long: its runner may be about to kill its child process."""
SILENT_S = 1.5
"""A worker that has not ticked for this long has a blocked loop: it ticks twice a second."""
MARGIN_S = 3.0
"""Attempts end this long before a heartbeat that cannot be renewed lapses."""


class WorkerHealth(Struct, frozen=True, kw_only=True):
    """What a foreman observes of a worker at one moment. Instants are monotonic."""

    now_s: float
    lease_s: float
    started_s: float
    ticked_s: float | None
    """None: it has not sent its hello."""
    waits_for_store: bool = False
    renewed_s: float | None
    """When the last heartbeat that reached the store was sent; None: not registered."""
    running: tuple[RunningAttempt, ...] = ()
    at_work_s: float | None = None
    """When it was last seen running anything."""
    held: int = 0
    has_lapsed: bool = False
    """The store had removed it: other workers may run its jobs."""
    is_halted: bool = False
    """Stopped by a signal: what it runs makes no progress."""

    @property
    def is_silent(self) -> bool:
        return self.ticked_s is not None and self.now_s - self.ticked_s > SILENT_S


def kill_reason(health: WorkerHealth) -> KillReason | None:
    """Why this worker has to be killed; None: it may run on."""
    if health.ticked_s is None or health.renewed_s is None:
        late = health.ticked_s is None and health.now_s - health.started_s > START_S
        return "not_starting" if late and not health.waits_for_store else None
    if judged := stuck(health):
        return "stuck" if len(judged) == 1 or not health.is_silent or _on_loop(health) else "blocked"
    is_busy = bool(health.running or health.held)
    if is_busy and health.has_lapsed:
        return "lapsed"
    if is_busy and health.now_s - health.renewed_s > trusted_s(health.lease_s):
        return "untrusted"
    if health.is_halted and health.now_s - health.ticked_s > health.lease_s:
        return "silent"
    # A worker may be silent while an attempt holds the interpreter within its deadline, and for one lease afterwards:
    # its next tick comes only after that attempt has ended. (tests/faults/test_worker_hostile.py)
    silent_since_s = max(health.ticked_s, health.at_work_s or 0.0)
    if not health.running and health.now_s - silent_since_s > health.lease_s:
        return "silent"
    return None


def recycle_reason(tick: Tick, poll_s: float) -> str | None:
    """Why a worker that is alive is replaced all the same, once its running jobs have ended: it makes no progress."""
    if tick.ended_slots:
        return f"{tick.ended_slots} of its slots have ended"
    if tick.stepped_ago_s > poll_s + STALLED_S:
        return f"its turn loop has not taken a step for {tick.stepped_ago_s:.0f} s"
    return None


def stuck(health: WorkerHealth) -> tuple[RunningAttempt, ...]:
    """The attempts past their hard deadline by their own doing.

    While the loop is blocked no other attempt can end, not even one in a thread: only the one that runs on the loop is
    judged. It is not known while code holds the interpreter lock: then all of them wait until the last is past it.
    """
    running = health.running
    late = tuple(a for a in running if hard_deadline_s(a) < health.now_s)
    if not health.is_silent:
        return late
    if on_loop := _on_loop(health):
        return tuple(attempt for attempt in on_loop if attempt in late)
    return late if len(late) == len(running) else ()


def _on_loop(health: WorkerHealth) -> tuple[RunningAttempt, ...]:
    return tuple(attempt for attempt in health.running if health.now_s - attempt.on_loop_s < SILENT_S)


def hard_deadline_s(attempt: RunningAttempt) -> float:
    return attempt.began_s + 2 * attempt.timeout_s + LET_GO_S


def check_s(lease_s: float) -> float:
    """How often a worker is checked, by its foreman and by itself: often enough to end before its lease does."""
    return min(0.5, lease_s / 12)


def trusted_s(lease_s: float) -> float:
    """How long after its last renewal a worker may run anything."""
    return lease_s - min(MARGIN_S, lease_s / 4)


def self_trusted_s(lease_s: float) -> float:
    """The same for the worker itself, in case its foreman cannot kill it."""
    return lease_s - min(MARGIN_S * 2 / 3, lease_s / 6)
