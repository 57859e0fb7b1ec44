"""How soon a worker that died is started again."""

from __future__ import annotations

FIRST_S, LONGEST_S, SETTLED_S = 1.0, 30.0, 60.0


class Backoff:
    """The first death is answered at once; more of them in short order after 1 s, 2 s, 4 s … 30 s."""

    def __init__(self) -> None:
        self._deaths = 0

    def died_after(self, lived_s: float) -> float:
        """How long to wait before the next start."""
        if lived_s >= SETTLED_S:
            self._deaths = 0
        self._deaths += 1
        if self._deaths == 1:
            return 0.0
        return min(FIRST_S * 2.0 ** min(self._deaths - 2, 10), LONGEST_S)
