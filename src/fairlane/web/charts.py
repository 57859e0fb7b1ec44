"""Charts over time as geometry for SVG: stacked bars for counts, lines on a logarithmic axis for percentiles of spans.

Coordinates go from 0 to 1000 across and from 0 to 100 down; the axes' labels are HTML beside it, at even distances.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from fairlane.client.admin.statistics import Series
from fairlane.core.histogram import percentile_s
from fairlane.core.ops import StatRow
from fairlane.web.formats import number, span

ACROSS, DOWN = 1000.0, 100.0
MOST_DECADES = 4
SpanKind = Literal["wait", "run"]
PERCENTILES = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))
OUTCOMES = ("completed", "failed", "dead")


class Shape(Struct, frozen=True):
    """All bars, or the line, of one kind: one element, for browsers draw a hundred in a tenth of a hundred's time."""

    kind: str
    path: str


class Moment(Struct, frozen=True, kw_only=True):
    """One step of time, and its values in words."""

    start_at: datetime
    values: tuple[str, ...]
    is_partial: bool
    """The step is not over yet: its values still grow."""

    @property
    def when(self) -> str:
        return f"{self.start_at:%d %b %H:%M}{', not over' if self.is_partial else ''}"


class Chart(Struct, frozen=True, kw_only=True):
    title: str
    legend: tuple[tuple[str, str], ...]
    """The kind of each bar or line and its name, in the order of each moment's values."""
    moments: tuple[Moment, ...]
    bars: tuple[Shape, ...] = ()
    lines: tuple[Shape, ...] = ()
    down: tuple[str, ...] = ()
    """Labels of the vertical axis, the highest first."""
    across: tuple[str, ...] = ()
    step_s: int = 60

    @property
    def is_empty(self) -> bool:
        return not self.bars and not self.lines

    @property
    def tips(self) -> str:
        """What the pointer shows, for scripts: each step with its values, `|` between steps and `;` within one.

        One attribute: with an element for each step, a page of charts had 366 elements more, half of its drawing.
        """
        return "|".join([";".join((moment.when, *moment.values)) for moment in self.moments])


class _Steps:
    """The steps of a series, those without data too."""

    def __init__(self, series: Series) -> None:
        step = timedelta(seconds=series.step_s)
        count = max(math.ceil((series.until - series.since) / step), 1)
        found = {row.minute: row for row in series.rows}
        self.starts = [series.since + step * index for index in range(count)]
        self.rows: list[StatRow | None] = [found.get(start) for start in self.starts]
        self.width, self.step_s = ACROSS / count, series.step_s
        self.last_is_partial = self.starts[-1] + step > series.until
        form = "%H:%M" if series.until - series.since <= timedelta(days=2) else "%a %d %b"
        marks = 4
        across = [series.since + (series.until - series.since) * mark / marks for mark in range(marks + 1)]
        self.across = tuple(at.strftime(form) for at in across)

    def moments(self, values: Sequence[Sequence[str]]) -> tuple[Moment, ...]:
        last = len(self.starts) - 1
        return tuple(
            Moment(start_at=start, values=tuple(values[index]), is_partial=index == last and self.last_is_partial)
            for index, start in enumerate(self.starts)
        )


def outcomes_chart(series: Series, title: str) -> Chart:
    """How many attempts ended in each step, by outcome."""
    steps = _Steps(series)
    counts = [[0 if row is None else getattr(row, kind) for kind in OUTCOMES] for row in steps.rows]
    return _stacked(steps, counts, OUTCOMES, OUTCOMES, title)


def counts_by_name(named: Mapping[str, Series], whole: Series, title: str) -> Chart:
    """How many jobs of each name were completed in each step, stacked; those of no name here are the rest."""
    steps = _Steps(whole)
    each = [[0 if row is None else row.completed for row in _Steps(series).rows] for series in named.values()]
    rest = [
        0 if row is None else max(row.completed - sum(counts[index] for counts in each), 0)
        for index, row in enumerate(steps.rows)
    ]
    has_rest = any(rest)
    counts = [list(step) for step in zip(*each, *([rest] if has_rest else []), strict=True)]
    kinds = (*_kinds(named), *(["rest"] if has_rest else []))
    return _stacked(steps, counts, kinds, (*named, *(["others"] if has_rest else [])), title)


def spans_by_name(named: Mapping[str, Series], whole: Series, kind: SpanKind, title: str) -> Chart:
    """The 95th percentile of the waiting or running times of each name in each step."""
    values = [
        [None if row is None else percentile_s(getattr(row, f"{kind}_buckets"), 0.95) for row in _Steps(series).rows]
        for series in named.values()
    ]
    return _lined(_Steps(whole), list(map(list, zip(*values, strict=True))), _kinds(named), tuple(named), title)


def _kinds(named: Mapping[str, Series]) -> tuple[str, ...]:
    return tuple(f"n{number}" for number in range(1, len(named) + 1))


def spans_chart(series: Series, kind: SpanKind, title: str) -> Chart:
    """Percentiles of the waiting or running times in each step."""
    steps, names = _Steps(series), tuple(name for name, _ in PERCENTILES)
    buckets = [{} if row is None else getattr(row, f"{kind}_buckets") for row in steps.rows]
    values = [[percentile_s(each, fraction) for _, fraction in PERCENTILES] for each in buckets]
    return _lined(steps, values, names, names, title)


def _stacked(
    steps: _Steps, counts: Sequence[Sequence[int]], kinds: Sequence[str], legend: Sequence[str], title: str
) -> Chart:
    top = _round_up(max((sum(each) for each in counts), default=0))
    bars: dict[str, str] = {}
    wide = 0.8 * steps.width
    for index, each in enumerate(counts):
        y = DOWN
        for kind, count in zip(kinds, each, strict=True):
            height = count / top * DOWN
            y -= height
            if count:
                bar = f"M{(index + 0.1) * steps.width:.1f} {y:.1f}h{wide:.1f}v{height:.1f}h-{wide:.1f}z"
                bars[kind] = bars.get(kind, "") + bar
    return Chart(
        title=title,
        legend=tuple(zip(kinds, legend, strict=True)),
        moments=steps.moments([[number(count) for count in each] for each in counts]),
        bars=tuple(Shape(kind, path) for kind, path in bars.items()),
        down=(number(top), number(top // 2), "0"),
        across=steps.across,
        step_s=steps.step_s,
    )


def _lined(
    steps: _Steps, values: Sequence[Sequence[float | None]], kinds: Sequence[str], legend: Sequence[str], title: str
) -> Chart:
    """Lines on a logarithmic axis."""
    known = [value for each in values for value in each if value is not None]
    low, high = _decades(known)
    lines = tuple(
        Shape(kind, _path([each[index] for each in values], steps.width, low, high)) for index, kind in enumerate(kinds)
    )
    return Chart(
        title=title,
        legend=tuple(zip(kinds, legend, strict=True)),
        moments=steps.moments([[span(value) for value in each] for each in values]),
        lines=lines if known else (),
        down=tuple(_power(power) for power in range(high, low - 1, -1)),
        across=steps.across,
        step_s=steps.step_s,
    )


def _decades(seconds: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around these spans; of very wide ranges the lower end is cut."""
    if not seconds:
        return -2, 1
    high = math.ceil(math.log10(max(*seconds, 0.001)) - 1e-9) if len(seconds) > 1 else 1
    low = math.floor(math.log10(max(min(seconds), 0.001)))
    high = max(high, low + 1)
    return max(low, high - MOST_DECADES), high


def _path(values: Sequence[float | None], width: float, low: int, high: int) -> str:
    """Segments between neighbours; where a step has no value the line has a gap."""
    parts, is_down = [], False
    for index, value in enumerate(values):
        if value is None:
            is_down = False
            continue
        x, y = (index + 0.5) * width, _height(value, low, high)
        parts.append(f"L{x:.1f} {y:.1f}" if is_down else f"M{x - width / 3:.1f} {y:.1f}h{width * 2 / 3:.1f}")
        is_down = True
    return "".join(parts)


def _power(power: int) -> str:
    return f"{10**power:,} s" if power >= 0 else f"{10 ** (power + 3):,.0f} ms"


def _height(value: float, low: int, high: int) -> float:
    share = (math.log10(max(value, 10.0**low)) - low) / (high - low)
    return DOWN * (1 - min(share, 1.0))


def _round_up(count: int) -> int:
    """The next number that has a round half: 2, 4, 6, 8, 10, 20, 30, …"""
    power: int = 10 ** (len(str(count)) - 1)
    steps = (1, 2, 3, 4, 5, 6, 8, 10) if power > 1 else (2, 4, 6, 8, 10)
    return next(step * power for step in steps if step * power >= count)
