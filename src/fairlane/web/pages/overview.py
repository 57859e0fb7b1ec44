"""The overview: what needs attention, the figures of this moment, and how the last hours went."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Iterable, Iterator
from datetime import timedelta
from math import ceil
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from fairlane.client.admin.queues import QueueState
from fairlane.client.admin.statistics import Series, StatisticsAdmin
from fairlane.client.rights import Right
from fairlane.core.breaker import BreakerRecord
from fairlane.core.histogram import percentile_s
from fairlane.core.ops import Alerts, Workers
from fairlane.web.formats import in_words
from fairlane.web.page import CurrentPage, Page, Pages, Values
from fairlane.web.pages.queues import lanes_of, unserved
from fairlane.web.pages.statistics import charts_of, read_series
from fairlane.web.time_range import RANGES, ChosenRange, time_range

pages = Pages("overview", "/", title="Overview", key="o")

SPAN = {"range", "since"}
"""Parameters that choose a span; without them, and with figures of the last minutes only, these fill the charts."""
LATELY = 5
"""Minutes that the current rates are taken from; the last of them is not over."""


class OverviewWarning(Struct, frozen=True, kw_only=True):
    """Something that needs a person."""

    level: Literal["bad", "warn"]
    text: str
    page: str
    """The name of the page about it."""


class Rates(Struct, frozen=True, kw_only=True):
    """How the last minutes went."""

    minutes: int
    """How many they cover: fewer than LATELY while nothing ran before them."""
    per_minute: float
    error_rate: float | None
    wait_s: float | None
    run_s: float | None


@pages.page("", StatisticsAdmin.aseries, "overview.html")
async def show_overview(page: CurrentPage, range: ChosenRange) -> Values:
    app, tenant = page.app, page.tenant
    ranges = [range] if range.name == "1h" else [range, time_range(page.now, "1h")]
    # At once: on a server with several connections the page waits for the longest alone.
    queues, letters, read, of_house = await gather(
        app.queues.alist(tenant=tenant, rough=True),
        app.dead_letters.acounts(tenant=tenant, rough=True),
        gather(*(read_series(page, one) for one in ranges)),
        _of_house(page),
    )
    shown, series, of_hour = range, read[0], read[-1]
    young = time_range(page.now, "15m")
    if page.request.query_params.keys().isdisjoint(SPAN) and series.rows and series.rows[0].minute >= young.since:
        shown, series = young, replace(series, since=young.since, until=young.until)
    workers, warnings = None, list[OverviewWarning]()
    if of_house is not None:
        workers, breakers, alerts = of_house
        warnings = [
            *_warnings_of_queues(queues, workers),
            *(
                OverviewWarning(level="bad", text=f"Breaker {one.name} is {in_words(one.state)}", page="show_breakers")
                for one in breakers
                if one.state != "closed"
            ),
            *(
                OverviewWarning(
                    level="warn",
                    text=f"Alert: {in_words(one.rule)}{one.about and f', {one.about}'}",
                    page="show_alerts",
                )
                for one in alerts.alerts
                if one.state == "firing"
            ),
        ]
    else:
        warnings = [*_warnings_of_queues(queues, None)]
    ages = [queue.oldest_pending_s for queue in queues if queue.oldest_pending_s is not None]
    return {
        "queues": queues,
        "letters": letters,
        "waiting": sum(queue.ready for queue in queues),
        "scheduled": sum(queue.scheduled for queue in queues),
        "running": sum(queue.processing for queue in queues),
        "oldest_s": max(ages, default=None),
        "rates": _rates(of_hour),
        "warnings": sorted(warnings, key=lambda concern: concern.level),
        "workers": workers and sum(worker.expires_at > workers.now for worker in workers.workers),
        "lanes": [] if workers is None else lanes_of(workers),
        "range": shown,
        "ranges": RANGES,
        "charts": charts_of(series),
        "is_new": not queues and not of_hour.rows and not any(letters.values()),
        "may_manage": page.may(Right.MANAGE),
    }


async def _of_house(page: Page) -> tuple[Workers, tuple[BreakerRecord, ...], Alerts] | None:
    """What no tenant has of its own: workers, breakers and alerts."""
    if page.tenant is not None:
        return None
    app = page.app
    workers, breakers, alerts = await gather(app.workers.alist(), app.breakers.alist(), app.alerts.alist())
    return workers, breakers, alerts


def _warnings_of_queues(queues: Iterable[QueueState], workers: Workers | None) -> Iterator[OverviewWarning]:
    if workers is not None and not any(worker.expires_at > workers.now for worker in workers.workers):
        yield OverviewWarning(level="bad", text="No worker is running", page="show_workers")
        return
    for name in sorted(unserved(queues, workers)):
        yield OverviewWarning(level="bad", text=f"No worker serves queue {name}", page="show_queues")
    for queue in queues:
        if queue.paused:
            yield OverviewWarning(level="warn", text=f"Queue {queue.queue} is paused", page="show_queues")


def _rates(series: Series) -> Rates:
    since = series.until.replace(second=0, microsecond=0) - timedelta(minutes=LATELY - 1)
    if series.rows:
        since = max(since, series.rows[0].minute)
    elapsed = (series.until - since) / timedelta(minutes=1)
    rows = [row for row in series.rows if row.minute >= since]
    completed = sum(row.completed for row in rows)
    failed = sum(row.failed + row.dead for row in rows)
    wait: dict[int, int] = {}
    run: dict[int, int] = {}
    for row in rows:
        for total, buckets in ((wait, row.wait_buckets), (run, row.run_buckets)):
            for bucket, count in buckets.items():
                total[bucket] = total.get(bucket, 0) + count
    return Rates(
        minutes=ceil(elapsed),
        per_minute=completed / max(elapsed, 1),
        error_rate=failed / (completed + failed) if completed + failed else None,
        wait_s=percentile_s(wait, 0.95),
        run_s=percentile_s(run, 0.95),
    )
