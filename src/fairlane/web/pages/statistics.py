"""The page of charts: throughput, waiting and running times over time, of everything or by queue, task or tenant."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from msgspec import Struct

from fairlane.api.fields import Name
from fairlane.client.admin.statistics import Series, StatisticsAdmin
from fairlane.core.histogram import percentile_s
from fairlane.core.ops import StatRow
from fairlane.web.charts import counts_by_name, outcomes_chart, spans_by_name, spans_chart
from fairlane.web.page import CurrentPage, Page, Pages, Values
from fairlane.web.time_range import RANGES, ChosenRange, TimeRange

pages = Pages("statistics", "/charts", title="Charts", key="c")

GroupedBy = Literal["", "queue", "type", "tenant"]
MOST_LINES = 5
"""Names that have a line of their own; the table has them all."""
MOST_ROWS = 100


class NameFigures(Struct, frozen=True, kw_only=True):
    """How the attempts of one queue, task or tenant went."""

    name: str
    row: StatRow
    error_rate: float | None
    wait_s: tuple[float | None, ...]
    run_s: tuple[float | None, ...]
    """The median and the 95th percentile, like `wait_s`."""


@pages.page("", StatisticsAdmin.aseries, "charts.html")
async def show_charts(
    page: CurrentPage,
    range: ChosenRange,
    by: GroupedBy = "",
    queue: Name | Annotated[str, Query(max_length=0)] | None = None,
    type: Name | Annotated[str, Query(max_length=0)] | None = None,
) -> Values:
    filters = {"queue": queue or None, "type": type or None}
    figures: list[NameFigures] = []
    series = await read_series(page, range, **filters)
    charts, named = charts_of(series), dict[str, Series]()
    if by:
        figures = await read_figures(page, range, by, **filters)
        for one in figures[:MOST_LINES]:
            only: dict[str, Any] = {**filters, "tenant": page.tenant, by: one.name}
            named[one.name] = await page.app.statistics.aseries(
                since=range.since, until=range.until, step_s=range.step_s, **only
            )
    if named:
        charts = (
            counts_by_name(named, series, f"Completed, {each_step(series)}"),
            spans_by_name(named, series, "wait", "Waiting time, 95 % wait less"),
            spans_by_name(named, series, "run", "Running time, 95 % run less"),
        )
    return {
        "range": range,
        "ranges": RANGES,
        "by": by,
        "filters": filters,
        "charts": charts,
        "figures": figures[:MOST_ROWS],
        "more": max(len(figures) - MOST_ROWS, 0),
    }


async def read_series(page: Page, range: TimeRange, queue: str | None = None, type: str | None = None) -> Series:
    return await page.app.statistics.aseries(
        since=range.since, until=range.until, step_s=range.step_s, queue=queue, type=type, tenant=page.tenant
    )


async def read_figures(
    page: Page,
    range: TimeRange,
    by: Literal["queue", "type", "tenant"],
    queue: str | None = None,
    type: str | None = None,
) -> list[NameFigures]:
    """The sums of the whole range by name, those with most attempts first."""
    found = await page.app.statistics.aseries(
        since=range.since, until=range.until, step_s=range.span_s, by=by, queue=queue, type=type, tenant=page.tenant
    )
    figures = [_figures(getattr(row, by), row) for row in found.rows]
    return sorted(figures, key=lambda one: (-_attempts(one.row), one.name))


def charts_of(series: Series) -> tuple[object, ...]:
    """Throughput, and waiting and running times apart: they ask for different cures."""
    return (
        outcomes_chart(series, f"Attempts ended, {each_step(series)}"),
        spans_chart(series, "wait", "Waiting time"),
        spans_chart(series, "run", "Running time"),
    )


def each_step(series: Series) -> str:
    minutes = series.step_s // 60
    return "each minute" if minutes == 1 else f"each {minutes} min" if minutes < 120 else f"each {minutes // 60} h"


def _attempts(row: StatRow) -> int:
    return row.completed + row.failed + row.dead


def _figures(name: str, row: StatRow) -> NameFigures:
    return NameFigures(
        name=name,
        row=row,
        error_rate=(row.failed + row.dead) / _attempts(row) if _attempts(row) else None,
        wait_s=(percentile_s(row.wait_buckets, 0.50), percentile_s(row.wait_buckets, 0.95)),
        run_s=(percentile_s(row.run_buckets, 0.50), percentile_s(row.run_buckets, 0.95)),
    )
