"""Prometheus counters from the store's statistics by minute, and from the figures of workers.

The store adds to the sums of a minute late and removes old ones, but a counter must never decrease. So the last value
of each recent minute is remembered, and only its growth is added to the totals:

    minutes read ──▶ growth of each since the last read ──▶ totals, which only grow

Only the busiest tenants have labels of their own, so that labels stay few. Each minute decides once: a tenant that
gets a label later is counted under it from then on, and what was counted as `other` stays there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from fairlane.core.histogram import Spans
from fairlane.core.ids import WorkerId
from fairlane.core.ops import StatRow, Workers

OTHER = "other"
"""Label of every tenant without counters of its own."""


class BusiestTenants:
    """A tenant keeps its label until another has twice its jobs: labels that change often make graphs unreadable."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.named: frozenset[str] = frozenset()

    def update(self, rows: Iterable[StatRow], *, is_whole: bool) -> frozenset[str]:
        """Give free labels to the busiest; with the whole window also replace the least busy. Returns these."""
        jobs: Counter[str] = Counter()
        for row in rows:
            jobs[row.tenant] += row.enqueued + row.completed + row.failed + row.dead + row.cancelled
        del jobs[OTHER]
        top = sorted(jobs, key=lambda tenant: (-jobs[tenant], tenant))[: self._most]
        staying = set(self.named)
        idle = sorted(staying.difference(top), key=lambda tenant: (-jobs[tenant], tenant))
        for tenant in top:
            if tenant in staying:
                continue
            if len(staying) >= self._most and is_whole and idle and jobs[tenant] > 2 * jobs[idle[-1]]:
                staying.remove(idle.pop())
            if len(staying) < self._most:
                staying.add(tenant)
        gone, self.named = self.named - staying, frozenset(staying)
        return gone


WINDOW = timedelta(minutes=60)
"""Statistics that arrive later than this are in no counter."""
MOST_PAIRS = 500
"""Pairs of queue and task with counters of their own; the rest are `other`."""

COUNTED = ("enqueued", "completed", "failed", "dead", "cancelled")

Pair = tuple[str, str]
"""Queue and task."""
Key = tuple[str, str, str]
"""Queue, task and tenant."""


class CounterSums:
    """Sums of statistics rows."""

    def __init__(self) -> None:
        self.counts: dict[Key, list[int]] = {}
        self.waits: dict[Pair, Spans] = {}
        self.runs: dict[Pair, Spans] = {}

    def add(self, row: StatRow, pair: Pair, tenant: str) -> None:
        counts = self.counts.setdefault((*pair, tenant), [0] * len(COUNTED))
        for place, name in enumerate(COUNTED):
            counts[place] += getattr(row, name)
        self.waits.setdefault(pair, Spans()).add(row.wait_us, row.wait_buckets)
        self.runs.setdefault(pair, Spans()).add(row.run_us, row.run_buckets)


class Minute:
    """One minute as it was last read."""

    def __init__(self, named: frozenset[str]) -> None:
        self.named = named
        self.sums = CounterSums()


class MinuteCounters:
    """Totals that only grow. Not thread-safe."""

    def __init__(self, most_tenants: int) -> None:
        self._busiest = BusiestTenants(most_tenants)
        self._minutes: dict[datetime, Minute] = {}
        self._pairs: set[Pair] = set()
        self._has_begun = False
        self.totals = CounterSums()

    @property
    def named(self) -> frozenset[str]:
        """The tenants that have counters of their own now."""
        return self._busiest.named

    def add(self, rows: Iterable[StatRow], now: datetime, *, is_whole: bool) -> None:
        """Add the growth of these rows; `is_whole`: they cover the whole window, which decides who is busiest."""
        rows = [row for row in rows if row.minute > now - WINDOW]
        for gone in self._busiest.update(rows, is_whole=is_whole):
            self._drop(gone)
        for old in [at for at in self._minutes if at <= now - WINDOW]:
            del self._minutes[old]
        found: dict[datetime, CounterSums] = {}
        for row in rows:
            minute = self._minutes.setdefault(row.minute, Minute(self._busiest.named))
            tenant = row.tenant if row.tenant in minute.named else OTHER
            found.setdefault(row.minute, CounterSums()).add(row, self._pair(row), tenant)
        for at, sums in found.items():
            self._grow(self._minutes[at].sums, sums)
        self._has_begun = True

    def _pair(self, row: StatRow) -> Pair:
        pair = row.queue, row.type
        if pair not in self._pairs:
            if len(self._pairs) >= MOST_PAIRS:
                return OTHER, OTHER
            self._pairs.add(pair)
        return pair

    def _grow(self, before: CounterSums, now: CounterSums) -> None:
        """Add the growth and remember the maximum: a truncated read or removed rows subtract nothing."""
        for key, counts in now.counts.items():
            kept = before.counts.setdefault(key, [0] * len(COUNTED))
            named = key if key[2] in self._busiest.named else (*key[:2], OTHER)
            total = self.totals.counts.setdefault(named, [0] * len(COUNTED))
            for place, count in enumerate(counts):
                if (grown := count - kept[place]) > 0:
                    kept[place] = count
                    # Values from before the first read belong to another process's counters, or to none.
                    total[place] += grown if self._has_begun else 0
        for name in ("waits", "runs"):
            for pair, spans in getattr(now, name).items():
                kept_spans = getattr(before, name).setdefault(pair, Spans())
                self._grow_spans(kept_spans, spans, getattr(self.totals, name).setdefault(pair, Spans()))

    def _grow_spans(self, before: Spans, now: Spans, total: Spans) -> None:
        grown = {
            bucket: count - before.buckets.get(bucket, 0)
            for bucket, count in now.buckets.items()
            if count > before.buckets.get(bucket, 0)
        }
        grown_us = max(now.total_us - before.total_us, 0)
        before.add(grown_us, grown)
        if self._has_begun:
            total.add(grown_us, grown)

    def _drop(self, tenant: str) -> None:
        for key in [key for key in self.totals.counts if key[2] == tenant]:
            del self.totals.counts[key]


PAYLOAD = "payload.under_"
COUNTERS = ("fast_lane.long", "schedules.fired")


class WorkerCounters:
    """Adds the growth of each worker's figures. A worker first seen after the first read counts from 0."""

    def __init__(self) -> None:
        self._seen: dict[WorkerId, dict[str, float]] = {}
        self._has_begun = False
        self.totals: dict[str, float] = dict.fromkeys(COUNTERS, 0.0)
        self.payloads: dict[int, float] = {}
        """Attempts by size of payload in characters: each counts under the next power of two."""

    def add(self, workers: Workers) -> None:
        now = {worker.id: worker.figures for worker in workers.workers}
        for worker, figures in now.items():
            before = self._seen.get(worker, {})
            for name, value in figures.items():
                if name in self.totals or name.startswith(PAYLOAD):
                    self._add(name, max(value - before.get(name, 0.0), 0.0) if self._has_begun else 0.0)
        self._seen, self._has_begun = now, True

    def _add(self, name: str, grown: float) -> None:
        if name in self.totals:
            self.totals[name] += grown
        elif (size := name.removeprefix(PAYLOAD)).isdecimal():
            self.payloads[int(size)] = self.payloads.get(int(size), 0.0) + grown
