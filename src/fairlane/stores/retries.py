"""Which failed calls to a server are sent again, and when."""

from __future__ import annotations

from typing import Any

from fairlane.core.chance import SystemChance
from fairlane.core.ops import Op
from fairlane.errors import NotAdmitted, StoreUnavailable

PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.4)
TRIES = len(PAUSES_S) + 1

_fraction = SystemChance().fraction


class Lost(Exception):
    """The connection broke: whether the call took effect is unknown."""


class Again(Exception):
    """The server has undone the call, or did nothing of it, and invites another try."""


BUSY = "is busy"
"""The problem of a store that answers, and is held up by others."""


def ends_sessions(error: Exception) -> bool:
    """Whether what a server answered may be true of its sessions for ever: read-only since they began, on a server
    that is one no more. They are given up, and later calls open others."""
    is_passing = isinstance(error, StoreUnavailable) and error.problem != BUSY and not isinstance(error, NotAdmitted)
    return is_passing or isinstance(error, Lost)


class Retries:
    """The failed tries of one operation; `silences`: what its driver raises where no answer came in time.

    An operation that the server rolled back is sent again. If the connection broke it may have been done: only a
    repeatable one is sent again. One that never reached the server is reported at once, unless an earlier try did.
    """

    def __init__(self, store: str, op: Op[Any], silences: tuple[type[Exception], ...]) -> None:
        self._store, self._op, self._silences = store, op, silences
        self._pauses = iter(PAUSES_S)
        self._may_be_done = False
        self._went_silent = False

    def pause_after(self, error: Exception) -> float:
        """How long to wait before the next try; raises what the caller is to get when there is none."""
        if isinstance(error, Lost):
            self._may_be_done = True
            if not self._op.repeatable:
                raise self._given_up("the connection broke", error) from None
        elif not isinstance(error, Again) and not self._may_be_done:
            raise error
        if isinstance(error.__cause__, self._silences):
            if self._went_silent:
                raise self._given_up("no answer, on a new connection either", error) from None
            self._went_silent = True
        pause_s = next(self._pauses, None)
        if pause_s is None:
            raise self._given_up(f"gave up after {TRIES} tries", error) from None
        # Callers that lost one race together must not all meet again in the next.
        return pause_s * (0.5 + _fraction())

    def _given_up(self, why: str, error: Exception) -> StoreUnavailable:
        text, problem = str(error), "cannot be reached"
        if isinstance(error, StoreUnavailable):
            text, problem = error.why, error.problem
        if self._may_be_done:
            act = type(self._op).__name__.lower()
            why = f"{why}; the {act} may or may not have taken effect: check before retrying"
        return StoreUnavailable(self._store, f"{why} ({text})", BUSY if isinstance(error, Again) else problem)
