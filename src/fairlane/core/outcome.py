"""How an attempt ended, as values the worker decides and a store only applies."""

from __future__ import annotations

from msgspec import Raw, Struct

from fairlane.core.ids import OfLease, Seq
from fairlane.core.job import ErrorClass


class Failure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, already made storable (see `core.payload.storable`)."""

    error_class: ErrorClass
    error_type: str
    message: str
    fingerprint: str
    traceback: str | None = None


class Suspension(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The durable step in which a job gives its slot back: a sleep, or the wait for a signal."""

    n: int
    name: str
    signal: bool = False
    """It waits for the signal `name`; else it sleeps."""
    key: str = ""


class _Outcome(OfLease, Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True, gc=False):
    seq: Seq
    attempt: int
    claim_no: int
    ran_s: float | None = None
    """How long it ran by the worker's monotonic clock; None if it never started."""
    ended_ago_s: float = 0.0
    """How long ago it ended: a store turns both into instants of its own clock."""


class Completed(_Outcome, frozen=True, kw_only=True, tag="completed"):
    """It returned. `result` is JSON text."""

    result: Raw | None = None
    counts_as_failed: bool = False
    """It is not to run again, and what it was for has failed: the statistics count a failed attempt."""


class Retried(_Outcome, frozen=True, kw_only=True, tag="retried"):
    """It failed, is charged, and runs again after `delay_s`."""

    failure: Failure
    delay_s: float


class Died(_Outcome, frozen=True, kw_only=True, tag="died"):
    """It failed for the last time and goes to the dead letters.

    `charged` is False where nothing ran: a payload that could not be read, a crash limit.
    """

    failure: Failure
    charged: bool = True


class Cancelled(_Outcome, frozen=True, kw_only=True, tag="cancelled"):
    """It stopped because it was asked to, or because its code said so."""

    reason: str | None = None


class Snoozed(_Outcome, frozen=True, kw_only=True, tag="snoozed"):
    """Not now: it runs again after `delay_s`, uncharged."""

    delay_s: float
    recorded: bool = True
    """False where nothing ran: its breaker is open, or no process could be started for it. No attempt is kept of it."""
    failure: Failure | None = None
    """What it waits for. If not `recorded`, the first snooze of a series for this error type is kept all the same."""
    give_up_s: float | None = None
    """The job is dead of `failure`, uncharged, once its series of such snoozes is this old; None: it waits on."""
    suspension: Suspension | None = None
    """It sleeps, or waits for a signal and at most for `delay_s`. Comes without `failure`, and is recorded."""


class Released(_Outcome, frozen=True, kw_only=True, tag="released"):
    """Given back: prefetched and not started, or interrupted by a shutdown. Uncharged."""


class Crashed(_Outcome, frozen=True, kw_only=True, tag="crashed"):
    """The process it had to itself died under it. Uncharged, but counted: ready at once, or dead at MAX_CRASHES."""


Outcome = Completed | Retried | Died | Cancelled | Snoozed | Released | Crashed


def leaves_no_record(outcome: Outcome) -> bool:
    return isinstance(outcome, Snoozed) and not outcome.recorded
