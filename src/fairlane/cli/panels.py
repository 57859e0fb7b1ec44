"""The panels of `fairlane top`: columns over the loads, and how their values are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from fairlane.cli.loads import Loads
from fairlane.cli.output import plural, shortened, span


class TopColumn(NamedTuple):
    title: str
    value: Callable[[Any], Any]
    """What rows are sorted by."""
    text: Callable[[Any], str] = str
    """How a value is shown; not called for None."""
    is_text: bool = False
    drop: int = 0
    """Left out where there is no room, the highest first; 0: never."""

    def cell(self, row: object) -> str:
        value = self.value(row)
        return "" if value is None else self.text(value)


class TopPanel(NamedTuple):
    name: str
    rows: Callable[[Loads], Sequence[Any]]
    columns: tuple[TopColumn, ...]
    order: int
    """The column that rows are sorted by at first; high values first, except in text."""
    empty: str

    def sorted(self, loads: Loads, order: int, *, is_reversed: bool = False) -> list[Any]:
        column = self.columns[order]
        rows = list(self.rows(loads))
        known = [row for row in rows if column.value(row) is not None]
        known.sort(key=column.value, reverse=column.is_text == is_reversed)
        return [*known, *(row for row in rows if column.value(row) is None)]

    def fitting(self, rows: Sequence[Any], width: int) -> list[int]:
        """The columns that fit a width, by index."""

        def needed(column: TopColumn) -> int:
            return max(len(column.title) + 1, *(len(column.cell(row)) for row in rows), 0) + 2

        kept = list(range(len(self.columns)))
        while sum(needed(self.columns[index]) for index in kept) > width:
            first = max(kept, key=lambda index: self.columns[index].drop)
            if not self.columns[first].drop:
                break
            kept.remove(first)
        return kept


def duration(seconds: float) -> str:
    """`3ms`, `1.2s`, `5m30s`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    return f"{seconds:.1f}s" if seconds < 60 else span(timedelta(seconds=seconds))


def rate_text(per_s: float) -> str:
    return "·" if per_s == 0 else f"{per_s:.0f}" if per_s >= 100 else f"{per_s:.1f}" if per_s >= 0.1 else "<0.1"


def number_text(number: int) -> str:
    return f"{number:,}" if number else "·"


def bar(part: float, width: int = 8) -> str:
    """`75% ██████░░`."""
    filled = round(min(max(part, 0.0), 1.0) * width)
    return f"{part:.0%} {'█' * filled}{'░' * (width - filled)}"


def _name(field: str) -> TopColumn:
    return TopColumn(field, lambda row: getattr(row, field) + (" (paused)" if row.paused else ""), is_text=True)


def _number(title: str, field: str, drop: int = 0) -> TopColumn:
    return TopColumn(title, lambda row: getattr(row, field), number_text, drop=drop)


def _text(title: str, field: str) -> TopColumn:
    return TopColumn(title, lambda row: getattr(row, field), is_text=True)


_PACE = (
    TopColumn("done/s", lambda row: row.per_s, rate_text),
    TopColumn("failed/s", lambda row: row.failed_per_s, rate_text, drop=1),
    TopColumn("wait", lambda row: row.wait_s, duration),
    TopColumn("run", lambda row: row.run_s, duration, drop=5),
)
PANELS = (
    TopPanel(
        "queues",
        lambda loads: loads.queues,
        (
            _name("queue"),
            _number("ready", "ready"),
            _number("running", "running"),
            _number("later", "scheduled", drop=2),
            _number("retry", "retrying"),
            _number("held", "held", drop=4),
            TopColumn("oldest", lambda row: row.oldest_s, duration),
            *_PACE,
        ),
        order=1,
        empty="no unfinished jobs",
    ),
    TopPanel(
        "tenants",
        lambda loads: loads.tenants,
        (
            _name("tenant"),
            TopColumn("weight", lambda row: row.weight, "{:g}".format, drop=3),
            TopColumn("share", lambda row: row.share, "{:.0%}".format),
            _number("ready", "ready"),
            _number("running", "running"),
            _number("later", "scheduled", drop=2),
            _number("held", "held", drop=4),
            *_PACE,
        ),
        order=2,
        empty="no tenant has had a job yet; workers register new tenants within seconds",
    ),
    TopPanel(
        "lanes",
        lambda loads: loads.lanes,
        (
            _text("worker", "worker"),
            _text("lane", "lane"),
            _number("slots", "slots"),
            TopColumn("busy", lambda row: row.used, bar),
            _number("jobs", "jobs"),
            TopColumn("memory", lambda row: row.memory_mb, "{:.0f} MB".format, drop=1),
        ),
        order=0,
        empty="no worker is registered; `fairlane worker` starts one",
    ),
    TopPanel(
        "failures",
        lambda loads: loads.failures,
        (
            TopColumn("ago", lambda row: -row.age_s, lambda age_s: span(timedelta(seconds=-age_s))),
            _text("tenant", "tenant"),
            _text("task", "type"),
            _number("try", "attempt"),
            TopColumn("", lambda row: "dead" if row.dead else "", is_text=True),
            TopColumn("error", lambda row: row.error, lambda text: shortened(text, 120), is_text=True),
        ),
        order=0,
        empty="no worker has reported an exception",
    ),
)
"""In the order in which they stand."""


def headline(loads: Loads) -> Iterator[tuple[str, str]]:
    """What matters first: words, and their style."""
    whose = "all tenants" if loads.tenant is None else f"tenant {loads.tenant}"
    yield whose, "bold"
    yield f"{loads.ready:,} ready", ""
    yield f"{loads.running:,} running", ""
    yield f"{loads.scheduled:,} later", ""
    yield f"{rate_text(loads.per_s)} done/s", "green"
    yield f"{rate_text(loads.failed_per_s)} failed/s", "yellow" if loads.failed_per_s else ""
    yield plural(loads.dead_letters, "dead letter"), "bold red" if loads.dead_letters else ""
    for breaker in loads.open_breakers:
        yield f"breaker {breaker} open", "bold red"
    for queue in loads.unserved:
        yield f"no worker serves {queue}", "bold red"


def tables(loads: Loads) -> Iterable[tuple[TopPanel, list[list[str]]]]:
    """Each panel with its rows as text, in the order of each."""
    for panel in PANELS:
        rows = panel.sorted(loads, panel.order)
        yield panel, [[column.cell(row) for column in panel.columns] for row in rows]
