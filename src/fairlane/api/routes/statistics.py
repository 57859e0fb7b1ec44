"""Route for statistics over time: throughput, error rate, and percentiles of wait and run time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Query
from msgspec import Struct

from fairlane.api.fields import Instant, Name, TenantName
from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.client.admin.statistics import StatisticsAdmin
from fairlane.core.histogram import percentile_s
from fairlane.core.ops import StatRow

routes = Routes("statistics", "/api/jobs/statistics/")

GroupedBy = Literal["none", "type", "queue", "tenant"]


class Percentiles(Struct, frozen=True, kw_only=True):
    """In seconds; estimated from histograms with power-of-two buckets of milliseconds."""

    count: int
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None


class Point(Struct, frozen=True, kw_only=True):
    start_at: datetime
    group: str | None
    """The type, queue or tenant; null for all together."""
    enqueued: int
    completed: int
    failed: int
    """Attempts that failed and are retried."""
    dead: int
    cancelled: int
    error_rate: float | None
    """Failed and dead divided by completed, failed and dead."""
    per_second: float
    """Completed jobs per second."""
    wait: Percentiles
    run: Percentiles


class StatisticsSeries(Struct, frozen=True, kw_only=True):
    since: datetime
    until: datetime
    step_s: float
    points: list[Point]
    is_cut: bool
    """The result was too large and covers only the beginning of the span. Request a shorter span."""


@routes.get("", StatisticsAdmin.aseries)
async def show_statistics(
    ctx: Context,
    since: Annotated[Instant | None, Query(description="By default an hour before `until`.")] = None,
    until: Annotated[Instant | None, Query(description="By default now.")] = None,
    step_s: Annotated[int, Query(ge=60, le=86_400)] = 60,
    by: GroupedBy = "none",
    type: Name | None = None,
    queue: Name | None = None,
    tenant: TenantName | None = None,
) -> StatisticsSeries:
    """Show throughput, error rate and percentiles over time, together or by type, queue or tenant."""
    found = await ctx.app.statistics.aseries(
        since=since,
        until=until,
        step_s=step_s,
        by=None if by == "none" else by,
        type=type,
        queue=queue,
        tenant=tenant,
    )
    points = [_point(row, by, step_s) for row in found.rows]
    return StatisticsSeries(since=found.since, until=found.until, step_s=step_s, points=points, is_cut=found.is_cut)


def _point(row: StatRow, by: GroupedBy, step_s: int) -> Point:
    ended = row.completed + row.failed + row.dead
    return Point(
        start_at=row.minute,
        group=None if by == "none" else getattr(row, by),
        enqueued=row.enqueued,
        completed=row.completed,
        failed=row.failed,
        dead=row.dead,
        cancelled=row.cancelled,
        error_rate=(row.failed + row.dead) / ended if ended else None,
        per_second=row.completed / step_s,
        wait=_percentiles(row.wait_us, row.wait_buckets),
        run=_percentiles(row.run_us, row.run_buckets),
    )


def _percentiles(total_us: int, buckets: dict[int, int]) -> Percentiles:
    count = sum(buckets.values())
    return Percentiles(
        count=count,
        mean_s=total_us / count / 1e6 if count else None,
        p50_s=percentile_s(buckets, 0.50),
        p95_s=percentile_s(buckets, 0.95),
        p99_s=percentile_s(buckets, 0.99),
    )
