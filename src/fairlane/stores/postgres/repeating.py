"""Whether a call that failed is sent again, and after how long."""

from __future__ import annotations

from typing import Any

from psycopg.errors import ConnectionTimeout

from fairlane.core.chance import SystemChance
from fairlane.core.ops import Op
from fairlane.errors import StoreUnavailable
from fairlane.stores.postgres.translating import STORE, Again, Lost, NoAnswer

PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.4)
TRIES = len(PAUSES_S) + 1

_fraction = SystemChance().fraction


class Repeating:
    """The failed tries of one operation.

    Rolled back by the server: it is sent again. The connection broke: only what may be repeated is, for it may have been
    done. Never reached the server: reported at once, unless an earlier try did reach it.
    """

    def __init__(self, op: Op[Any]) -> None:
        self._op = op
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
        if isinstance(error.__cause__, NoAnswer | ConnectionTimeout):
            if self._went_silent:
                raise self._given_up("no answer, on a new connection either", error) from None
            self._went_silent = True
        pause_s = next(self._pauses, None)
        if pause_s is None:
            raise self._given_up(f"gave up after {TRIES} tries", error) from None
        # Those who lost one race together must not all meet again in the next.
        return pause_s * (0.5 + _fraction())

    def _given_up(self, why: str, error: Exception) -> StoreUnavailable:
        text = error.why if isinstance(error, StoreUnavailable) else str(error)
        if self._may_be_done:
            act = type(self._op).__name__.lower()
            why = f"{why}; the {act} may or may not have taken effect: look before repeating it"
        return StoreUnavailable(STORE, f"{why} ({text})")
