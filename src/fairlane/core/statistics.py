"""Sums figures of minutes by steps of time and by type, queue or tenant, and the utilisation of lanes over workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from fairlane.core.ops.statistics import StatRow, StatsBy
from fairlane.core.ops.workers import Workers

_SUMS = ("enqueued", "completed", "failed", "dead", "cancelled", "wait_us", "run_us")


class _Sum:
    def __init__(self) -> None:
        self.figures: Counter[str] = Counter()
        self.wait: Counter[int] = Counter()
        self.run: Counter[int] = Counter()

    def add(self, row: StatRow) -> None:
        for name in _SUMS:
            self.figures[name] += getattr(row, name)
        self.wait.update(row.wait_buckets)
        self.run.update(row.run_buckets)


def summed(rows: Iterable[StatRow], since: datetime, step_s: int, by: StatsBy | None) -> list[StatRow]:
    """One row for each step, counted from `since`, and each name of what `by` says; by time, then name."""
    step, sums = timedelta(seconds=step_s), dict[tuple[datetime, str], _Sum]()
    for row in rows:
        begins_at = (since + (row.minute - since) // step * step).astimezone(UTC)
        sums.setdefault((begins_at, "" if by is None else getattr(row, by)), _Sum()).add(row)
    return [_row(begins_at, by, name, sums[begins_at, name]) for begins_at, name in sorted(sums)]


def _row(begins_at: datetime, by: StatsBy | None, name: str, total: _Sum) -> StatRow:
    empty = StatRow(
        minute=begins_at,
        type=name if by == "type" else "",
        queue=name if by == "queue" else "",
        tenant=name if by == "tenant" else "",
        wait_buckets=dict(total.wait),
        run_buckets=dict(total.run),
    )
    return replace(empty, **total.figures)


def lane_use(workers: Workers) -> dict[str, tuple[float, float]]:
    """By lane: slots in use and slots there are, over all workers that live."""
    lanes: dict[str, tuple[float, float]] = {}
    for worker in workers.workers:
        if worker.expires_at <= workers.now:
            continue
        for name, slots in worker.figures.items():
            if name.startswith("lane.") and name.endswith(".slots") and slots > 0:
                lane = name.removeprefix("lane.").removesuffix(".slots")
                used, there_are = lanes.get(lane, (0.0, 0.0))
                share = worker.figures.get(f"lane.{lane}.utilisation", 0.0)
                lanes[lane] = used + share * slots, there_are + slots
    return lanes
