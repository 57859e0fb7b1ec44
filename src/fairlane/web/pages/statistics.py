"""The page of charts: throughput, waiting and running times over time, of everything or by queue, task or tenant."""

from __future__ import annotations

from asyncio import gather
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from msgspec import Struct
from msgspec.structs import replace

from fairlane.api.fields import Name
from fairlane.client.admin.statistics import ROWS_A_READ, Series, StatisticsAdmin
from fairlane.core.histogram import percentile_s
from fairlane.core.ops import StatRow
from fairlane.core.ops.statistics import StatsBy
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
    with_figures: Annotated[Literal["yes"] | None, Query(alias="figures")] = None,
) -> Values:
    filters = {"queue": queue or None, "type": type or None}
    figures = await read_figures(page, range, by, **filters) if by else []
    if by and figures:
        series, named = await read_named(page, range, by, figures, **filters)
        charts: tuple[object, ...] = (
            counts_by_name(named, series, f"Completed, {each_step(series)}"),
            spans_by_name(named, series, "wait", "Waiting time, 95 % wait less"),
            spans_by_name(named, series, "run", "Running time, 95 % run less"),
        )
    else:
        charts = charts_of(await read_series(page, range, **filters))
    return {
        "range": range,
        "ranges": RANGES,
        "by": by,
        "filters": filters,
        "charts": charts,
        "figures_too": with_figures is not None,
        "figures": figures[:MOST_ROWS],
        "more": max(len(figures) - MOST_ROWS, 0),
    }


async def read_series(
    page: Page, range: TimeRange, queue: str | None = None, type: str | None = None, tenant: str | None = None
) -> Series:
    whose = tenant or page.tenant
    return await page.app.statistics.aseries(
        since=range.since, until=range.until, step_s=range.step_s, queue=queue, type=type, tenant=whose
    )


async def read_figures(
    page: Page,
    range: TimeRange,
    by: StatsBy,
    queue: str | None = None,
    type: str | None = None,
    tenant: str | None = None,
) -> list[NameFigures]:
    """The sums of the whole range by name, those with most attempts first."""
    whose = tenant or page.tenant
    found = await page.app.statistics.aseries(
        since=range.since, until=range.until, step_s=range.span_s, by=by, queue=queue, type=type, tenant=whose
    )
    figures = [figures_of(getattr(row, by), row) for row in found.rows]
    return sorted(figures, key=lambda one: (-_attempts(one.row), one.name))


async def read_named(
    page: Page, range: TimeRange, by: StatsBy, figures: Sequence[NameFigures], **filters: str | None
) -> tuple[Series, dict[str, Series]]:
    """How many jobs completed in each step, and the series of the names with most attempts.

    All in one read where every name fits into it, else one for each.
    """
    of = page.app.statistics
    asked: dict[str, Any] = {"since": range.since, "until": range.until, "step_s": range.step_s, **filters}
    names = [one.name for one in figures[:MOST_LINES]]
    steps = range.span_s // range.step_s + 2
    if len(figures) * steps > ROWS_A_READ:
        each = [of.aseries(**{"tenant": page.tenant, **asked, by: name}) for name in names]
        whole, *found = await gather(read_series(page, range, **filters), *each)
        return whole, dict(zip(names, found, strict=True))
    whole = await of.aseries(by=by, tenant=page.tenant, **asked)
    completed = Counter[datetime]()
    rows: dict[str, list[StatRow]] = {name: [] for name in names}
    for row in whole.rows:
        completed[row.minute] += row.completed
        if (name := getattr(row, by)) in rows:
            rows[name].append(row)
    sums = tuple(StatRow(minute=at, type="", queue="", tenant="", completed=n) for at, n in completed.items())
    return replace(whole, rows=sums), {name: replace(whole, rows=tuple(rows[name])) for name in names}


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


def figures_of(name: str, row: StatRow) -> NameFigures:
    return NameFigures(
        name=name,
        row=row,
        error_rate=(row.failed + row.dead) / _attempts(row) if _attempts(row) else None,
        wait_s=(percentile_s(row.wait_buckets, 0.50), percentile_s(row.wait_buckets, 0.95)),
        run_s=(percentile_s(row.run_buckets, 0.50), percentile_s(row.run_buckets, 0.95)),
    )
