"""Labels are bounded: the busiest have names, the rest are together, and nobody reads another's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from fairlane.core.ops import StatRow
from fairlane.errors import PermissionDenied
from fairlane.metrics import exposition
from fairlane.metrics.counters import MOST_PAIRS, OTHER, MinuteCounters
from fairlane.metrics.scrape import KEPT_S, WHOLE_EVERY_S
from fairlane.testing.conformance.samples import NOON
from tests.metrics.shop import Shop, read, series, value


@pytest.mark.requirement("I11")
def test_only_the_busiest_tenants_have_names_and_the_rest_are_together() -> None:
    shop = Shop(metrics_tenants=3)
    shop.scrape()
    for n in range(50):
        shop.add(tenant=f"t{n}", enqueued=100 - n)
    families = shop.scrape()
    orgs = {sample.labels["org"] for sample in families["jobs_enqueued"].samples}
    assert orgs == {"t0", "t1", "t2", OTHER}
    assert value(families, "jobs_enqueued_total") == sum(100 - n for n in range(50))
    assert value(families, "jobs_enqueued_total", org=OTHER) == sum(100 - n for n in range(3, 50))


def test_who_becomes_busy_gets_a_name_and_no_counter_goes_back() -> None:
    shop = Shop(metrics_tenants=2)
    last = series(shop.scrape())
    seen: set[str] = set()
    for round_ in range(12):
        for n in range(8):
            shop.add(tenant=f"t{n}", enqueued=1_000 if n == round_ // 2 else 1)
        now = series(shop.scrape(WHOLE_EVERY_S))
        shop.clock.advance(1_200)
        for key, before in last.items():
            if key[0] == "jobs_enqueued_total" and key in now:
                assert now[key] >= before, (round_, key)
        orgs = {dict(labels)["org"] for name, labels in now if name == "jobs_enqueued_total"}
        assert len(orgs) <= 3
        seen |= orgs
        last = now
    assert len(seen) > 4, "over time more tenants were busy than there are places"


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 90), st.integers(0, 9), st.integers(1, 50), st.booleans()),
        max_size=40,
    )
)
def test_whatever_is_written_late_or_removed_the_totals_only_grow_and_hold_everything(
    story: list[tuple[int, int, int, int, bool]],
) -> None:
    """Against a store that keeps sums by minute: what falls within the window is counted exactly once, over all tenants."""
    counters, rows, now, expected = MinuteCounters(2), dict[tuple[Any, str], int](), NOON, 0
    counters.add([], now, is_whole=True)
    for minutes_on, ago, tenant, count, forgets in story:
        now += timedelta(minutes=minutes_on)
        minute = now.replace(second=0) - timedelta(minutes=ago)
        rows[minute, f"t{tenant}"] = rows.get((minute, f"t{tenant}"), 0) + count
        if now - minute < timedelta(minutes=60):
            expected += count
        if forgets:
            rows = {key: kept for key, kept in rows.items() if key[0] > now - timedelta(minutes=20) or key[0] == minute}
        before = {key: list(counts) for key, counts in counters.totals.counts.items()}
        given_rows = [StatRow(minute=at, type="t", queue="q", tenant=who, completed=n) for (at, who), n in rows.items()]
        counters.add(given_rows, now, is_whole=True)
        for key, counts in counters.totals.counts.items():
            assert all(is_ >= was for is_, was in zip(counts, before.get(key, [0] * 5), strict=True))
        dropped = [key for key in before if key not in counters.totals.counts]
        expected -= sum(before[key][1] for key in dropped)
    if not any(forgets for *_, forgets in story):
        assert sum(counts[1] for counts in counters.totals.counts.values()) == expected


def test_queues_and_tasks_are_bounded_too() -> None:
    shop = Shop()
    shop.scrape()
    for n in range(MOST_PAIRS + 100):
        shop.add(type=f"made.up{n}", enqueued=1)
    families = shop.scrape()
    methods = {sample.labels["method"] for sample in families["jobs_enqueued"].samples}
    assert len(methods) == MOST_PAIRS + 1
    assert value(families, "jobs_enqueued_total", method=OTHER, queue=OTHER) == 100


def test_odd_names_of_tenants_are_read_back_as_they_are() -> None:
    shop = Shop()
    shop.scrape()
    odd = ['quo"te', "back\\slash", "brace}{", "comma,=", "émoji 🚀", "new"]
    for tenant in odd:
        shop.add(tenant=tenant, enqueued=1)
    orgs = {sample.labels["org"] for sample in shop.scrape()["jobs_enqueued"].samples}
    assert orgs == set(odd)


def test_one_tenants_metrics_hold_nothing_of_another() -> None:
    shop = Shop()

    @shop.app.task(name="mail.send", queue="mail")
    def send() -> None: ...

    shop.scrape(tenant="acme")
    for tenant, count in (("acme", 2), ("globex-canary", 5)):
        shop.add(tenant=tenant, enqueued=count, type=f"{tenant}.task")
        shop.app.enqueue_many([send.using(tenant=tenant).bind() for _ in range(count)])
    shop.clock.advance(KEPT_S)
    text = exposition(shop.app, tenant="acme")
    assert b"canary" not in text
    families = read(text)
    assert value(families, "jobs_enqueued_total", org="acme") == 2
    assert value(families, "queue_depth", queue="mail") == 2
    assert value(families, "org_job_count", org="acme", queue="mail") == 2
    assert not {"fairlane_workers", "breaker_state_gauge", "redis_health", "fairlane_alerts_firing"} & set(families)
    from fairlane import tenant as inside

    with inside("globex-canary"), pytest.raises(PermissionDenied):
        exposition(shop.app, tenant="acme")


@pytest.mark.requirement("L13")
def test_pending_jobs_have_a_gauge_for_each_type_up_to_a_hundred_and_the_rest_together() -> None:
    shop = Shop()
    bounds = []
    for number in range(102):

        @shop.app.task(name=f"task-{number:03d}")
        def work() -> None: ...

        bounds += [shop.app.tasks[f"task-{number:03d}"].using(tenant="acme").bind()] * (2 if number < 100 else 1)
    shop.app.enqueue_many(bounds)
    for families in (shop.scrape(), shop.scrape(tenant="acme")):
        samples = families["fairlane_pending_jobs"].samples
        assert {sample.labels["type"] for sample in samples} == {*(f"task-{n:03d}" for n in range(100)), OTHER}
        assert value(families, "fairlane_pending_jobs", type="task-007") == 2
        assert value(families, "fairlane_pending_jobs", type=OTHER) == 2


@pytest.mark.requirement("D24")
def test_jobs_that_wait_at_keys_are_counted_by_the_names_of_the_keys_alone() -> None:
    shop = Shop()

    @shop.app.task(name="mail.send")
    def send() -> None: ...

    for tenant in ("acme", "globex"):
        for key, count in (("customer:1", 2), ("customer:2", 1), ("shop:berlin", 1)):
            shop.app.enqueue_many([send.using(tenant=tenant, key=key).bind()] * count)
    families = shop.scrape()
    found = {sample.labels["name"]: sample.value for sample in families["fairlane_jobs_waiting_at_keys"].samples}
    assert found == {"customer": 6, "shop": 2}
    assert "fairlane_jobs_waiting_at_keys" not in shop.scrape(tenant="acme"), "one tenant's metrics stay small"
