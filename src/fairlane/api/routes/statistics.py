"""Figures over time: throughput, error rate, and percentiles of wait and run time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from fairlane.api.access.rights import Right
from fairlane.api.figures import Figures, GroupedBy, Spans, put_together
from fairlane.api.problems import Problem
from fairlane.api.routing import Routes
from fairlane.api.visit import Here, Visit
from fairlane.api.words import Instant, Name, TenantName
from fairlane.core.ops import Check, ReadStats, StatRow

routes = Routes("statistics", "/api/jobs/statistics/")

ROWS_A_READ = 10_000
MOST_READS = 5
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
        since=begin, until=end, type=type, queue=queue, tenant=here.narrowed(tenant).tenant, limit=ROWS_A_READ
    )
    rows, is_cut = await _rows(here, asked)
    points = [_point(figures, step) for figures in put_together(rows, begin, step, by)]
    return Series(since=begin, until=end, step_s=step_s, points=points, is_cut=is_cut)


async def _rows(here: Visit, asked: ReadStats) -> tuple[list[StatRow], bool]:
    """Row after row up to a bound. A minute that a full read cut in two is read again from its beginning."""
    from msgspec.structs import replace

    rows: list[StatRow] = []
    for _ in range(MOST_READS):
        found = (await here.ask(asked)).rows
        if len(found) < ROWS_A_READ:
            return rows + list(found), False
        last = found[-1].minute
        whole = [row for row in found if row.minute < last]
        if not whole:
            return rows + list(found), True
        rows += whole
        asked = replace(asked, since=last)
    return rows, True


def _point(figures: Figures, step: timedelta) -> Point:
    return Point(
        start_at=figures.start_at,
        group=figures.group,
        enqueued=figures.enqueued,
        completed=figures.completed,
        failed=figures.failed,
        dead=figures.dead,
        cancelled=figures.cancelled,
        error_rate=figures.error_rate,
        per_second=figures.throughput(step),
        wait=_spans(figures.wait),
        run=_spans(figures.run),
    )


def _spans(spans: Spans) -> SpansSeen:
    return SpansSeen(
        count=spans.count,
        mean_s=spans.mean_s,
        p50_s=spans.percentile_s(0.50),
        p95_s=spans.percentile_s(0.95),
        p99_s=spans.percentile_s(0.99),
    )
