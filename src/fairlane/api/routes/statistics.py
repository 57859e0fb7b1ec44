"""Figures over time: throughput, error rate, and percentiles of wait and run time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, Field

from fairlane.api.auth.rights import Right
from fairlane.api.fields import Instant, Name, TenantName
from fairlane.api.problems import Problem
from fairlane.api.request import Here
from fairlane.api.router import Routes
from fairlane.core.histogram import percentile_s
from fairlane.core.ops import Check, ReadStats, StatRow

routes = Routes("statistics", "/api/jobs/statistics/")

GroupedBy = Literal["none", "type", "queue", "tenant"]
MOST_POINTS = 10_000
MOST_STEPS = 1_500


class SpansSeen(BaseModel):
    """Seconds; read off histograms by powers of two of milliseconds."""

    count: int
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None


class Point(BaseModel):
    start_at: datetime
    group: str | None = Field(description="The type, queue or tenant; null: all together.")
    enqueued: int
    completed: int
    failed: int = Field(description="Attempts that failed and are tried again.")
    dead: int
    cancelled: int
    error_rate: float | None = Field(description="Failed and dead among those that completed, failed or died.")
    per_second: float = Field(description="Completed a second.")
    wait: SpansSeen
    run: SpansSeen


class Series(BaseModel):
    since: datetime
    until: datetime
    step_s: float
    points: list[Point]
    is_cut: bool = Field(
        description="There was too much: only the beginning of the span is here. Ask for less at once."
    )


@routes.get("", Right.READ)
async def show_statistics(
    here: Here,
    since: Annotated[Instant | None, Query(description="An hour before `until` if left out.")] = None,
    until: Annotated[Instant | None, Query(description="Now if left out.")] = None,
    step_s: Annotated[int, Query(ge=60, le=86_400)] = 60,
    by: GroupedBy = "none",
    type: Name | None = None,
    queue: Name | None = None,
    tenant: TenantName | None = None,
) -> Series:
    """Show throughput, error rate and percentiles over time, together or by type, queue or tenant."""
    end = until or (await here.ask(Check())).now.astimezone(UTC)
    begin = (since or end - timedelta(hours=1)).replace(second=0, microsecond=0)
    step = timedelta(seconds=step_s)
    if begin >= end or (end - begin) / step > MOST_STEPS:
        raise Problem(422, "invalid_option", f"since, until, step_s: expected 1 to {MOST_STEPS:,} steps")
    asked = ReadStats(
        since=begin,
        until=end,
        type=type,
        queue=queue,
        tenant=here.narrowed(tenant).tenant,
        limit=MOST_POINTS,
        step_s=step_s,
        by=None if by == "none" else by,
    )
    rows = (await here.ask(asked)).rows
    points = [_point(row, by, step_s) for row in rows]
    return Series(since=begin, until=end, step_s=step_s, points=points, is_cut=len(rows) == MOST_POINTS)


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
        wait=_spans(row.wait_us, row.wait_buckets),
        run=_spans(row.run_us, row.run_buckets),
    )


def _spans(total_us: int, buckets: dict[int, int]) -> SpansSeen:
    count = sum(buckets.values())
    return SpansSeen(
        count=count,
        mean_s=total_us / count / 1e6 if count else None,
        p50_s=percentile_s(buckets, 0.50),
        p95_s=percentile_s(buckets, 0.95),
        p99_s=percentile_s(buckets, 0.99),
    )
