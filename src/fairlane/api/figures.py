"""Figures over time: rows of minutes put together, and percentiles read off their histograms."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct, field

from fairlane.core.ops import StatRow

GroupedBy = Literal["none", "type", "queue", "tenant"]


class Spans(Struct):
    """A histogram by powers of two of milliseconds, and what its percentiles come to."""

    count: int = 0
    total_us: int = 0
    buckets: dict[int, int] = field(default_factory=dict)

    def add(self, total_us: int, buckets: dict[int, int]) -> None:
        self.total_us += total_us
        for bucket, count in buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
            self.count += count

    def percentile_s(self, fraction: float) -> float | None:
        """Seconds that this fraction stayed under, read off linearly within the bucket; None: nothing was measured."""
        if not self.count:
            return None
        wanted, seen = fraction * self.count, 0
        for bucket in sorted(self.buckets):
            here = self.buckets[bucket]
            if seen + here >= wanted:
                low, high = (0.0 if bucket <= 0 else 2.0 ** (bucket - 1)), 2.0**bucket
                return (low + (high - low) * max(wanted - seen, 0.0) / here) / 1000.0
            seen += here
        return 2.0 ** max(self.buckets) / 1000.0

    @property
    def mean_s(self) -> float | None:
        return self.total_us / self.count / 1e6 if self.count else None


class Figures(Struct):
    """What ended in one step of time, of one type, queue or tenant."""

    start_at: datetime
    group: str | None
    enqueued: int = 0
    completed: int = 0
    failed: int = 0
    dead: int = 0
    cancelled: int = 0
    wait: Spans = field(default_factory=Spans)
    run: Spans = field(default_factory=Spans)

    def add(self, row: StatRow) -> None:
        self.enqueued += row.enqueued
        self.completed += row.completed
        self.failed += row.failed
        self.dead += row.dead
        self.cancelled += row.cancelled
        self.wait.add(row.wait_us, row.wait_buckets)
        self.run.add(row.run_us, row.run_buckets)

    @property
    def error_rate(self) -> float | None:
        """Failed attempts among those that completed or failed; None: there were neither."""
        ended = self.completed + self.failed + self.dead
        return (self.failed + self.dead) / ended if ended else None

    def throughput(self, step: timedelta) -> float:
        """Completed a second."""
        return self.completed / step.total_seconds()


def put_together(rows: Iterable[StatRow], since: datetime, step: timedelta, by: GroupedBy) -> list[Figures]:
    """One record for each step and group with any figures, by time, then group."""
    found: dict[tuple[datetime, str | None], Figures] = {}
    for row in rows:
        start_at = since + (row.minute - since) // step * step
        group = None if by == "none" else str(getattr(row, by))
        key = (start_at, group)
        if key not in found:
            found[key] = Figures(start_at=start_at, group=group)
        found[key].add(row)
    return sorted(found.values(), key=lambda figures: (figures.start_at, figures.group or ""))
