"""Charts: the figures of the store over time, in steps, by name, and over a span that somebody chose."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from msgspec.structs import replace

from fairlane.client.admin.statistics import Series
from fairlane.client.rights import visible
from fairlane.core.ids import WorkerId
from fairlane.core.ops import AddStats, Pause, Renew, StatRow
from fairlane.web.charts import outcomes_chart, spans_chart
from fairlane.web.time_range import time_range
from tests.api.house import EVERY_ROLE, OWN
from tests.web.house import DashboardHouse

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def row(minute: int, **figures: object) -> StatRow:
    given = {"type": "mail.send", "queue": "default", "tenant": OWN, **figures}
    return StatRow(minute=NOON + timedelta(minutes=minute), **given)  # type: ignore[arg-type]


def series(*rows: StatRow, minutes: int = 10) -> Series:
    return Series(since=NOON, until=NOON + timedelta(minutes=minutes), step_s=60, rows=rows, is_cut=False)


def test_bars_stack_up_to_a_round_top_and_name_every_step() -> None:
    chart = outcomes_chart(series(row(0, completed=30, failed=5), row(9, dead=1)), "ended")
    assert chart.down == ("40", "20", "0")
    assert [(bar.kind, bar.path) for bar in chart.bars] == [
        ("completed", "M10.0 25.0h80.0v75.0h-80.0z"),
        ("failed", "M10.0 12.5h80.0v12.5h-80.0z"),
        ("dead", "M910.0 97.5h80.0v2.5h-80.0z"),
    ]
    assert [moment.values for moment in chart.moments][:2] == [("30", "5", "0"), ("0", "0", "0")]
    assert len(chart.moments) == 10


def test_lines_have_gaps_where_nothing_was_measured_and_decades_beside_them() -> None:
    chart = spans_chart(
        series(row(0, wait_buckets={4: 10}), row(1, wait_buckets={14: 10}), row(3, wait_buckets={4: 1})), "wait", "wait"
    )
    assert chart.down == ("100 s", "10 s", "1 s", "100 ms", "10 ms")
    assert [line.path.count("M") for line in chart.lines] == [2, 2, 2]
    assert chart.moments[2].values == ("–", "–", "–")
    assert spans_chart(series(), "run", "run").is_empty


def test_a_range_has_steps_that_begin_at_round_times() -> None:
    now = NOON + timedelta(minutes=7, seconds=13)
    for name, step_s in (("15m", 60), ("1h", 60), ("6h", 300), ("24h", 1800), ("7d", 7200)):
        found = time_range(now, name)  # type: ignore[arg-type]
        assert (found.step_s, found.since.timestamp() % step_s, found.until) == (step_s, 0, now)
    chosen = time_range(now, "1h", NOON - timedelta(days=3), NOON)
    assert (chosen.name, chosen.until, chosen.step_s) == (None, NOON, 3600)


def add(house: DashboardHouse, *rows: StatRow) -> None:
    worker = WorkerId(uuid4())
    house.app.runtime.access.run(Renew(worker=worker))
    assert house.app.runtime.access.run(AddStats(worker=worker, batch=1, rows=rows)).added


@pytest.mark.requirement("L13")
@pytest.mark.parametrize("rows_a_read", [10_000, 5])
def test_charts_show_what_happened_by_queue_task_and_tenant(
    house: DashboardHouse, rows_a_read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.web.pages.statistics.ROWS_A_READ", rows_a_read)
    now = house.clock.now().replace(second=0, microsecond=0)
    names = ["acme", *(f"t{number}" for number in range(7))]
    rows = [
        StatRow(minute=now - timedelta(minutes=5), type="mail.send", queue="default", tenant=tenant, completed=100 - index,
                failed=index, run_buckets={10: 5}, wait_buckets={3: 5})
        for index, tenant in enumerate(names)
    ]  # fmt: skip
    add(house, *rows)
    everyone = house.session()
    page = house.get("/charts?by=tenant", everyone).text
    assert re.findall(r'<th scope="row"><a [^>]*>(\w+)<', page) == [f"{name}" for name in ["acme", *names[1:]]]
    assert re.findall(r'<span class="name"><i class="key \w+"></i>(\w+)</span>', page)[:6] == [*names[:5], "others"]
    assert "95 % wait less" in page
    charts = re.findall(r"<figure.*?</figure>", page, re.S)
    assert [len(re.findall(r"<[a-z]", chart)) < 60 for chart in charts] == [
        True
    ] * 3  # A step has no element of its own.
    own = house.get("/charts?by=tenant", house.session(EVERY_ROLE, OWN)).text
    assert re.findall(r'<th scope="row"><a [^>]*>(\w+)<', own) == ["acme"]
    assert house.get("/charts?by=type&queue=other", everyone).text.count("No attempt ended in this span.") == 1
    before = (now - timedelta(hours=3)).strftime("%Y-%m-%dT%H:%M")
    assert "Nothing in this span." in house.get(f"/charts?since={before}&until={before[:-2]}59", everyone).text
    for wrong in ("since=soon", "since=1971-01-01", "since=2999-01-01", "range=2h", "by=colour"):
        assert house.get(f"/charts?{wrong}", everyone).status_code == 422, wrong


def test_the_charts_of_the_first_minutes_are_filled_by_them(house: DashboardHouse) -> None:
    def chosen(path: str) -> list[str]:
        return re.findall(r'aria-current="true">(\w+)<', house.get(path, house.session()).text)

    now = house.clock.now().replace(second=0, microsecond=0)
    figures = StatRow(minute=now - timedelta(minutes=3), type="mail.send", queue="default", tenant=OWN, completed=7)
    assert chosen("/") == ["1h"]
    add(house, figures)
    assert (chosen("/"), chosen("/?range=1h"), chosen("/?range=6h")) == (["15m"], ["1h"], ["6h"])
    tips = re.findall(r'data-tips="([^"]*)"', house.get("/", house.session()).text)[0].split("|")
    assert [tip.split(";")[1:] for tip in tips if ";7;" in tip] == [["7", "0", "0"]]
    assert 15 <= len(tips) <= 16
    add(house, replace(figures, minute=now - timedelta(minutes=40)))
    assert chosen("/") == ["1h"]


def test_rows_of_statistics_are_not_looked_through_for_contents_and_what_has_contents_is() -> None:
    found = series(row(0, completed=1), row(1, completed=2))
    hidden = visible((found, Pause(kind="queue", name="bulk", by="eve", at=NOON, notes="a secret")), ("viewer",))
    assert [one is other for one, other in zip(hidden[0].rows, found.rows, strict=True)] == [True, True]
    assert (hidden[1].notes, hidden[1].by) == (None, "eve")


def figures_of(house: DashboardHouse, name: str) -> str:
    page = house.get("/", house.session()).text
    [(value, hint)] = re.findall(rf"<dt>{name}</dt>\s*<dd[^>]*>(.*?)</dd>(.*?)</div>", page, re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", value + hint).split())


def test_the_rate_of_a_young_installation_is_not_divided_by_minutes_that_it_did_not_run(house: DashboardHouse) -> None:
    house.app.jobs.purge()
    minute = house.clock.now().replace(second=0, microsecond=0)
    house.clock.advance((minute + timedelta(minutes=2) - house.clock.now()).total_seconds())
    row = StatRow(minute=minute, type="mail.send", queue="default", tenant="acme", completed=3000)
    add(house, row)
    assert figures_of(house, "Completed") == "1,500 /min in the last 2 minutes"
    house.clock.advance(180)
    assert figures_of(house, "Completed") == "0 /min in the last 4 minutes"
