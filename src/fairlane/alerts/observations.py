"""Observes what the alert rules watch. Bounded: counts with a cap, statistics of the last minutes, recent events."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from fairlane.client.admin.statistics import read_minutes
from fairlane.client.app import Fairlane
from fairlane.client.steps import arun_steps
from fairlane.client.store_access import StoreAccess
from fairlane.core.alerts import Observation, Rule, Watched
from fairlane.core.names import BUILT_IN_TASKS
from fairlane.core.ops import (
    ALL_TENANTS,
    Event,
    GetStats,
    ListBreakers,
    ListWorkers,
    ReadEvents,
    StatRow,
    Stats,
    Workers,
)
from fairlane.core.statistics import lane_use

PAGE = 1_000
MOST_PAGES = 5
READ_BACK = 20_000
"""Events that a process reads back when it observes for the first time."""
REMEMBERED = 10_000
BEYOND = 2**62
"""Greater than every id: reading after it returns no event, only the last id."""

_KINDS: dict[str, Watched] = {
    "worker_crashed": "worker_crashes",
    "worker_lost": "worker_crashes",
    "job_stuck": "stuck_jobs",
    "process_stopped": "stopped_processes",
    "job_limit_warning": "tenant_limit_hits",
}


class CountedEvent(NamedTuple):
    at: datetime
    kind: Watched
    about: str


class EventCounts:
    """Counts what happened, by the events of its kinds. Every process reads them: any may take the duty next."""

    def __init__(self, access: StoreAccess, rules: Iterable[Rule]) -> None:
        self._access = access
        self._windows: dict[Watched, set[float]] = {}
        for rule in rules:
            if rule.watches in _KINDS.values():
                self._windows.setdefault(rule.watches, set()).add(rule.window_s)
        self._kinds = tuple(kind for kind, watched in _KINDS.items() if watched in self._windows)
        self._after: int | None = None
        self._recent: deque[CountedEvent] = deque(maxlen=REMEMBERED)

    async def observe(self, now: datetime) -> tuple[Observation, ...]:
        if not self._kinds:
            return ()
        await self._catch_up()
        longest = timedelta(seconds=max(max(windows) for windows in self._windows.values()))
        while self._recent and self._recent[0].at <= now - longest:
            self._recent.popleft()
        return tuple(self._counts(now))

    async def _catch_up(self) -> None:
        if self._after is None:
            last = (await self._access.arun(ReadEvents(scope=ALL_TENANTS, after=BEYOND, limit=1))).last
            self._after = max(last - READ_BACK, 0)
        for _ in range(MOST_PAGES):
            page = await self._access.arun(
                ReadEvents(scope=ALL_TENANTS, after=self._after, kinds=self._kinds, limit=PAGE)
            )
            self._recent.extend(_counted_event(event) for event in page.events)
            if len(page.events) < PAGE:
                self._after = max(self._after, page.last)
                return
            self._after = page.events[-1].id

    def _counts(self, now: datetime) -> Iterator[Observation]:
        for kind, windows in self._windows.items():
            for window_s in sorted(windows):
                since = now - timedelta(seconds=window_s)
                counts = Counter(seen.about for seen in self._recent if seen.kind == kind and seen.at > since)
                for about, count in sorted(counts.items()):
                    yield Observation(kind=kind, about=about, value=float(count), window_s=window_s)


def _counted_event(event: Event) -> CountedEvent:
    kind, about = _KINDS[event.kind], ""
    if kind == "tenant_limit_hits":
        about = event.tenant or ""
    elif kind == "stopped_processes":
        about = str(event.data.get("function", ""))
    return CountedEvent(event.at, kind, about)


LEAST_CAP = 10_000

_COUNTED: frozenset[Watched] = frozenset({"queue_depth", "pending_jobs", "dead_letters", "oldest_pending_s"})
_OF_WORKERS: frozenset[Watched] = frozenset({"lane_utilisation", "spool_jobs"})


class Observer:
    """Asks the store only for what an enabled rule watches."""

    def __init__(self, app: Fairlane, rules: Iterable[Rule]) -> None:
        self._app, self._rules = app, tuple(rule for rule in rules if rule.enabled)
        self._watched = {rule.watches for rule in self._rules}
        self._event_counts = EventCounts(app.runtime.access, self._rules)
        counted = [int(rule.threshold) + 1 for rule in self._rules if rule.watches in _COUNTED]
        self._cap = max([LEAST_CAP, *counted])

    async def observe(self, now: datetime) -> tuple[Observation, ...]:
        """Everything the rules watch. `now` is the store's."""
        store, seen = self._app.runtime.access, list[Observation]()
        if not self._watched.isdisjoint(_COUNTED):
            seen += counted(
                await store.arun(GetStats(scope=ALL_TENANTS, cap=self._cap, parts=("queues", "dead_letters")))
            )
        if not self._watched.isdisjoint(_OF_WORKERS):
            seen += of_workers(await store.arun(ListWorkers()))
        if "breakers_open" in self._watched:
            breakers = (await store.arun(ListBreakers())).breakers
            seen += [
                Observation(kind="breakers_open", about=breaker.name, value=1.0)
                for breaker in breakers
                if breaker.state == "open"
            ]
        for window_s in sorted({rule.window_s for rule in self._rules if rule.watches == "error_rate"}):
            since = (now - timedelta(seconds=window_s)).replace(second=0, microsecond=0)
            minutes = await arun_steps(store, read_minutes(since, now + timedelta(minutes=1)))
            seen += error_rates(minutes.rows, window_s)
        return (*seen, *await self._event_counts.observe(now))


def counted(stats: Stats) -> Iterator[Observation]:
    for queue in stats.queues:
        yield Observation(kind="queue_depth", about=queue.queue, value=float(queue.pending + queue.failed))
        if queue.oldest_due_at is not None:
            age_s = (stats.now - queue.oldest_due_at).total_seconds()
            yield Observation(kind="oldest_pending_s", about=queue.queue, value=max(age_s, 0.0))
    yield Observation(kind="pending_jobs", value=float(sum(queue.pending for queue in stats.queues)))
    yield Observation(kind="dead_letters", value=float(stats.dead_letters.get("pending_review", 0)))


def of_workers(workers: Workers) -> Iterator[Observation]:
    busy, spooled = lane_use(workers), dict[str, float]()
    for lane, (used, slots) in sorted(busy.items()):
        yield Observation(kind="lane_utilisation", about=lane, value=used / slots)
    for worker in workers.workers:
        # Workers of one machine share a spool, and each reports all of it.
        host = (worker.name or "").partition(":")[0]
        spooled[host] = max(spooled.get(host, 0.0), worker.figures.get("spool.jobs", 0.0))
    yield Observation(kind="spool_jobs", value=sum(spooled.values()))


def error_rates(rows: Iterable[StatRow], window_s: float) -> Iterator[Observation]:
    """By task, without Fairlane's own: an alert that cannot be sent must not raise the next."""
    ended: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row.type in BUILT_IN_TASKS:
            continue
        failed, total = ended.get(row.type, (0, 0))
        wrong = row.failed + row.dead
        ended[row.type] = failed + wrong, total + wrong + row.completed
    for task, (failed, total) in sorted(ended.items()):
        if total:
            yield Observation(kind="error_rate", about=task, value=failed / total, sample=total, window_s=window_s)
