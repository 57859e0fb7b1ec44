"""Leaves tenants alone whose line was empty: for a moment, longer each time, until it has jobs again."""

from __future__ import annotations

REST_S = 0.02
LONGEST_S = 0.5
KEPT = 10_000


class Rests:
    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}
        self._next_s: dict[str, float] = {}
        """How long the next rest will be, of those that have rested since they last gave anything."""
        self._first_s = float("inf")

    def __len__(self) -> int:
        return len(self._until_s)

    def __contains__(self, tenant: str) -> bool:
        return tenant in self._until_s

    def begin(self, tenant: str, now_s: float) -> None:
        for_s = self._next_s.get(tenant, REST_S)
        if len(self._next_s) > KEPT:
            self._next_s.clear()
        self._next_s[tenant] = min(2 * for_s, LONGEST_S)
        self._until_s[tenant] = now_s + for_s
        self._first_s = min(self._first_s, now_s + for_s)

    def end(self, tenant: str) -> None:
        """It gave something."""
        self._next_s.pop(tenant, None)
        self._until_s.pop(tenant, None)

    def over(self, now_s: float) -> list[str]:
        """Whose rest is over now."""
        if now_s < self._first_s:
            return []
        rested = [tenant for tenant, until_s in self._until_s.items() if until_s <= now_s]
        for tenant in rested:
            del self._until_s[tenant]
        self._first_s = min(self._until_s.values(), default=float("inf"))
        return rested

    def clear(self) -> None:
        self._until_s.clear()
        self._first_s = float("inf")
