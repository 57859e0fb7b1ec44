"""Counters out of the figures of past minutes.

The store keeps sums for each minute, adds to them late, and forgets old ones. A counter must never go back. So what each of the last
minutes came to is remembered, and only what it grows by is added to the totals:

    minutes read ──▶ what each grew by since the last look ──▶ totals, which only grow

A minute decides once which tenants have a name in it; a tenant that gets one later is counted from then on under it, and what was
counted as `other` stays there.

Counters out of what workers say of themselves: each counts from its own start, and goes.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from fairlane.core.histogram import Spans
from fairlane.core.ids import WorkerId
from fairlane.core.ops import StatRow, Workers
from fairlane.metrics.busiest import OTHER, Busiest

WINDOW = timedelta(minutes=60)
"""Figures that come later than this are in no counter."""
MOST_PAIRS = 500
"""Queues and tasks together that have figures of their own; the rest are `other`."""

COUNTED = ("enqueued", "completed", "failed", "dead", "cancelled")

Pair = tuple[str, str]
"""Queue and task."""
Key = tuple[str, str, str]
"""Queue, task and tenant."""


class Sums:
    """What some figures came to."""

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
        self.sums = Sums()


class Tally:
    """Not for two threads at once."""

    def __init__(self, most_tenants: int) -> None:
        self._busiest = Busiest(most_tenants)
        self._minutes: dict[datetime, Minute] = {}
        self._pairs: set[Pair] = set()
        self._has_begun = False
        self.totals = Sums()

    @property
    def named(self) -> frozenset[str]:
        """The tenants that have figures of their own now."""
        return self._busiest.named

    def take_in(self, rows: Iterable[StatRow], now: datetime, *, is_whole: bool) -> None:
        """Figures as they are now; `is_whole`: of the whole window, so that who is busiest can be judged."""
        rows = [row for row in rows if row.minute > now - WINDOW]
        for gone in self._busiest.judge(rows, is_whole=is_whole):
            self._drop(gone)
        for old in [at for at in self._minutes if at <= now - WINDOW]:
            del self._minutes[old]
        found: dict[datetime, Sums] = {}
        for row in rows:
            minute = self._minutes.setdefault(row.minute, Minute(self._busiest.named))
            tenant = row.tenant if row.tenant in minute.named else OTHER
            found.setdefault(row.minute, Sums()).add(row, self._pair(row), tenant)
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

    def _grow(self, before: Sums, now: Sums) -> None:
        """Add what grew, and remember the most there ever was: a read that was cut, or rows that went, take nothing back."""
        for key, counts in now.counts.items():
            kept = before.counts.setdefault(key, [0] * len(COUNTED))
            named = key if key[2] in self._busiest.named else (*key[:2], OTHER)
            total = self.totals.counts.setdefault(named, [0] * len(COUNTED))
            for place, count in enumerate(counts):
                if (grown := count - kept[place]) > 0:
                    kept[place] = count
                    # What was there before the first look belongs to some other process's counters, or to nobody's.
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


class WorkerTally:
    """Adds what each worker's figures grew by. A worker seen for the first time after the first look counts from 0."""

    def __init__(self) -> None:
        self._seen: dict[WorkerId, dict[str, float]] = {}
        self._has_begun = False
        self.totals: dict[str, float] = dict.fromkeys(COUNTERS, 0.0)
        self.payloads: dict[int, float] = {}
        """Attempts by size of payload: how many were under so many characters, and not under half of that."""

    def take_in(self, workers: Workers) -> None:
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
