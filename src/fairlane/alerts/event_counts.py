"""What happened lately, counted from the events: crashes, stuck jobs, tenants at their limits."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from fairlane.client.store_access import StoreAccess
from fairlane.core.alerts.evaluation import Observation
from fairlane.core.alerts.rules import Rule, Watched
from fairlane.core.ops import ALL_TENANTS, Event, ReadEvents

PAGE = 1_000
MOST_PAGES = 5
LOOKED_BACK = 20_000
"""Events a process looks back over when it looks for the first time."""
REMEMBERED = 10_000
BEYOND = 2**62
"""Behind every event there will be: only asks how far they have come."""

_KINDS: dict[str, Watched] = {
    "worker_crashed": "worker_crashes",
    "worker_lost": "worker_crashes",
    "job_stuck": "stuck_jobs",
    "job_limit_warning": "tenant_limit_hits",
}


class Happening(NamedTuple):
    at: datetime
    kind: Watched
    about: str


class Happenings:
    """Every process reads the events for itself: whoever takes the duty next knows as much."""

    def __init__(self, access: StoreAccess, rules: Iterable[Rule]) -> None:
        self._access = access
        self._windows: dict[Watched, set[float]] = {}
        for rule in rules:
            if rule.watches in _KINDS.values():
                self._windows.setdefault(rule.watches, set()).add(rule.window_s)
        self._kinds = tuple(kind for kind, watched in _KINDS.items() if watched in self._windows)
        self._after: int | None = None
        self._lately: deque[Happening] = deque(maxlen=REMEMBERED)

    async def look(self, now: datetime) -> tuple[Observation, ...]:
        if not self._kinds:
            return ()
        await self._catch_up()
        longest = timedelta(seconds=max(max(windows) for windows in self._windows.values()))
        while self._lately and self._lately[0].at <= now - longest:
            self._lately.popleft()
        return tuple(self._counts(now))

    async def _catch_up(self) -> None:
        if self._after is None:
            last = (await self._access.arun(ReadEvents(scope=ALL_TENANTS, after=BEYOND, limit=1))).last
            self._after = max(last - LOOKED_BACK, 0)
        for _ in range(MOST_PAGES):
            page = await self._access.arun(
                ReadEvents(scope=ALL_TENANTS, after=self._after, kinds=self._kinds, limit=PAGE)
            )
            self._lately.extend(_happening(event) for event in page.events)
            if len(page.events) < PAGE:
                self._after = max(self._after, page.last)
                return
            self._after = page.events[-1].id

    def _counts(self, now: datetime) -> Iterator[Observation]:
        for kind, windows in self._windows.items():
            for window_s in sorted(windows):
                since = now - timedelta(seconds=window_s)
                counts = Counter(seen.about for seen in self._lately if seen.kind == kind and seen.at > since)
                for about, count in sorted(counts.items()):
                    yield Observation(kind=kind, about=about, value=float(count), window_s=window_s)


def _happening(event: Event) -> Happening:
    kind = _KINDS[event.kind]
    return Happening(event.at, kind, event.tenant or "" if kind == "tenant_limit_hits" else "")
