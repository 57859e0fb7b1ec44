"""Looks at everything the rules watch. Bounded: counts with a cap, figures of the last minutes, no big table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from fairlane.alerts.event_counts import Happenings
from fairlane.alerts.tasks import BUILT_IN
from fairlane.client.admin.statistics import read_minutes
from fairlane.client.app import Fairlane
from fairlane.client.steps import arun_steps
from fairlane.core.alerts.evaluation import Observation
from fairlane.core.alerts.rules import Rule, Watched
from fairlane.core.ops import ALL_TENANTS, GetStats, ListBreakers, ListWorkers, StatRow, Stats, Workers
from fairlane.core.statistics import lane_use

LEAST_CAP = 10_000

_COUNTED: frozenset[Watched] = frozenset({"queue_depth", "pending_jobs", "dead_letters", "oldest_pending_s"})
_OF_WORKERS: frozenset[Watched] = frozenset({"lane_utilisation", "spool_jobs"})


class Observer:
    """Asks the store only what some rule wants to know."""

    def __init__(self, app: Fairlane, rules: Iterable[Rule]) -> None:
        self._app, self._rules = app, tuple(rule for rule in rules if rule.enabled)
        self._watched = {rule.watches for rule in self._rules}
        self._happenings = Happenings(app.runtime.access, self._rules)
        counted = [int(rule.threshold) + 1 for rule in self._rules if rule.watches in _COUNTED]
        self._cap = max([LEAST_CAP, *counted])

    async def look(self, now: datetime) -> tuple[Observation, ...]:
        """`now` is the store's."""
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
        return (*seen, *await self._happenings.look(now))


def counted(stats: Stats) -> Iterator[Observation]:
    for queue in stats.queues:
        yield Observation(kind="queue_depth", about=queue.queue, value=float(queue.pending + queue.failed))
        if queue.oldest_due_at is not None:
            age_s = (stats.now - queue.oldest_due_at).total_seconds()
            yield Observation(kind="oldest_pending_s", about=queue.queue, value=max(age_s, 0.0))
    yield Observation(kind="pending_jobs", value=float(sum(queue.pending for queue in stats.queues)))
    yield Observation(kind="dead_letters", value=float(stats.dead_letters.get("pending_review", 0)))


def of_workers(workers: Workers) -> Iterator[Observation]:
    busy, spooled = lane_use(workers), 0.0
    for lane, (used, slots) in sorted(busy.items()):
        yield Observation(kind="lane_utilisation", about=lane, value=used / slots)
    for worker in workers.workers:
        spooled += worker.figures.get("spool.jobs", 0.0)
    yield Observation(kind="spool_jobs", value=spooled)


def error_rates(rows: Iterable[StatRow], window_s: float) -> Iterator[Observation]:
    """By task. Fairlane's own tasks are left out: an alert that cannot be sent must not raise the next."""
    ended: dict[str, tuple[int, int]] = {}
    for row in rows:
        if row.type in BUILT_IN:
            continue
        failed, total = ended.get(row.type, (0, 0))
        wrong = row.failed + row.dead
        ended[row.type] = failed + wrong, total + wrong + row.completed
    for task, (failed, total) in sorted(ended.items()):
        if total:
            yield Observation(kind="error_rate", about=task, value=failed / total, sample=total, window_s=window_s)
