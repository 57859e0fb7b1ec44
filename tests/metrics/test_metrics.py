"""What Prometheus reads: the documents' names, counters that never go back, a store that is asked no more than needed."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from fairlane.core.breaker import BreakerPolicy
from fairlane.core.ids import WorkerId
from fairlane.core.ops import GetStats, Op, ReadStats, Report, Retain, RollUpEnqueued
from fairlane.errors import StoreUnavailable
from fairlane.metrics import CONTENT_TYPE, aexposition, exposition
from fairlane.metrics.counters import OTHER
from fairlane.metrics.scrape import KEPT_S, WHOLE_EVERY_S
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing import run_due
from fairlane.testing.conformance.samples import NOON
from tests.metrics.shop import COUNTING, Shop, labelled, read, series, value

DOCUMENTED = {
    "jobs_enqueued": ("counter", {"queue", "method", "org"}),
    "jobs_completed": ("counter", {"queue", "method", "org", "status"}),
    "jobs_duration_seconds": ("histogram", {"queue", "method"}),
    "queue_depth": ("gauge", {"queue"}),
    "dlq_depth": ("gauge", set()),
    "org_job_count": ("gauge", {"org", "queue"}),
    "dequeue_latency_histogram": ("histogram", {"queue"}),
    "job_processing_duration": ("histogram", {"queue"}),
    "job_failures": ("counter", {"queue", "method"}),
    "breaker_state_gauge": ("gauge", {"platform"}),
    "redis_health": ("gauge", set()),
}


@pytest.mark.requirement("I11", "Q14")
def test_every_metric_of_the_documents_is_there_by_name_type_and_labels() -> None:
    shop = Shop()
    shop.scrape()
    shop.add(enqueued=3, completed=2, failed=1, run_us=10, run_buckets={4: 3}, wait_us=5, wait_buckets={1: 3})
    shop.store.run(Report(name="stripe", policy=BreakerPolicy(threshold=1), failures=1))

    @shop.app.task(name="mail.send", queue="mail")
    def send() -> None: ...

    send.using(tenant="acme").enqueue()
    families = shop.scrape()
    for name, (kind, labels) in DOCUMENTED.items():
        family = families[name]
        assert family.type == kind, name
        assert family.documentation
        assert {label for sample in family.samples for label in sample.labels} - {"le"} == labels, name
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")


@pytest.mark.requirement("I11", "Q14", "L13")
def test_counters_count_what_is_enqueued_and_what_ends() -> None:
    shop = Shop()
    before = shop.scrape()
    assert series(before)["redis_health", ()] == 1
    shop.add(enqueued=10, completed=6, failed=3, dead=1, cancelled=2)
    shop.add(tenant="globex", enqueued=5, completed=5)
    families = shop.scrape()
    assert value(families, "jobs_enqueued_total", org="acme", queue="mail", method="mail.send") == 10
    assert value(families, "jobs_enqueued_total", org="globex") == 5
    by_status = {status: value(families, "jobs_completed_total", org="acme", status=status) for status in ("success", "failure", "cancelled")}  # fmt: skip
    assert by_status == {"success": 6, "failure": 1, "cancelled": 2}
    assert value(families, "job_failures_total") == 4
    shop.add(completed=1)
    assert value(shop.scrape(), "jobs_completed_total", org="acme", status="success") == 7


@pytest.mark.requirement("L13")
def test_histograms_hold_every_attempt_in_buckets_that_add_up() -> None:
    shop = Shop()
    shop.scrape()
    shop.add(completed=4, run_us=2_500_000, run_buckets={0: 1, 10: 2, 40: 1}, wait_us=9_000, wait_buckets={3: 4})
    families = shop.scrape()
    assert value(families, "jobs_duration_seconds_count", method="mail.send") == 4
    assert value(families, "jobs_duration_seconds_sum", method="mail.send") == 2.5
    assert value(families, "jobs_duration_seconds_bucket", le="0.001") == 1
    assert value(families, "jobs_duration_seconds_bucket", le="0.512") == 1
    assert value(families, "jobs_duration_seconds_bucket", le="1.024") == 3
    assert value(families, "jobs_duration_seconds_bucket", le="4194.304") == 3
    assert value(families, "jobs_duration_seconds_bucket", le="+Inf") == 4
    assert value(families, "job_processing_duration_count", queue="mail") == 4
    assert value(families, "dequeue_latency_histogram_bucket", queue="mail", le="0.004") == 0
    assert value(families, "dequeue_latency_histogram_bucket", queue="mail", le="0.008") == 4


def test_jobs_that_really_ran_are_counted() -> None:
    shop = Shop()

    @shop.app.task(name="mail.send", queue="mail")
    def send() -> None: ...

    shop.scrape()
    shop.app.enqueue_many([send.using(tenant="acme").bind() for _ in range(7)])
    assert value(shop.scrape(), "queue_depth", queue="mail") == 7
    assert value(shop.scrape(), "org_job_count", queue="mail", org=OTHER) == 7, "nothing of acme is rolled up yet"
    shop.clock.advance(60)
    shop.store.run(RollUpEnqueued())
    families = shop.scrape(WHOLE_EVERY_S)
    assert value(families, "jobs_enqueued_total", org="acme") == 7
    assert value(families, "org_job_count", queue="mail", org="acme") == 7
    run_due(shop.app)
    assert "org_job_count" not in {name for name, _ in series(shop.scrape())}


def test_what_there_was_before_the_first_scrape_is_in_no_counter_but_its_series_are_there() -> None:
    """Else a restart would look like an hour of work done in one moment."""
    shop = Shop()
    shop.add(completed=1_000, run_us=1_000, run_buckets={1: 1_000})
    families = shop.scrape()
    assert value(families, "jobs_completed_total", status="success") == 0
    assert value(families, "jobs_duration_seconds_count") == 0
    shop.add(completed=1, run_us=1, run_buckets={1: 1})
    families = shop.scrape()
    assert value(families, "jobs_completed_total", status="success") == 1
    assert value(families, "jobs_duration_seconds_count") == 1


@pytest.mark.requirement("I11")
def test_counters_never_go_back_although_old_minutes_are_removed() -> None:
    shop = Shop()
    last = series(shop.scrape())
    for hour in range(30):
        shop.add(completed=10, enqueued=10, run_us=10, run_buckets={1: 10})
        shop.add(ago_s=40 * 60, completed=1)  # a worker that could not reach the store for long
        now = series(shop.scrape(WHOLE_EVERY_S))
        assert all(now[key] >= before for key, before in last.items() if key[0].endswith(COUNTING)), hour
        last = now
        shop.clock.advance(3_600)
        shop.store.run(Retain(stats_before=shop.clock.now() - timedelta(minutes=5)))
    assert last["jobs_completed_total", labelled(org="acme", status="success")] == 30 * 11
    assert shop.store.run(ReadStats(since=NOON, until=NOON + timedelta(days=9))).rows == ()


@pytest.mark.requirement("L13", "L21", "Q14")
def test_lanes_workers_breakers_sizes_and_ages_are_there() -> None:
    shop = Shop()
    shop.say(payload__under_64=5, fast_lane__long=1, schedules__fired=2)
    shop.scrape()
    shop.say(
        memory_mb=80, lane__fast__slots=4, lane__fast__utilisation=0.5, payload__under_64=7, payload__under_1024=1,
        fast_lane__long=2, schedules__fired=5,
    )  # fmt: skip
    shop.store.run(Report(name="stripe", policy=BreakerPolicy(threshold=1), failures=1))

    @shop.app.task(name="mail.send", queue="mail")
    def send() -> None: ...

    send.enqueue()
    families = shop.scrape(90)
    assert value(families, "fairlane_workers") == 1
    assert value(families, "fairlane_worker_memory_bytes", worker="box:1") == 80 * 1024 * 1024
    assert value(families, "fairlane_lane_utilisation_ratio", lane="fast") == 0.5
    assert value(families, "fairlane_lane_slots", lane="fast") == 4
    assert value(families, "breaker_state_gauge", platform="stripe") == 2
    assert value(families, "fairlane_queue_oldest_job_age_seconds", queue="mail") == 90
    assert value(families, "fairlane_payload_characters_bucket", le="64.0") == 2
    assert value(families, "fairlane_payload_characters_bucket", le="+Inf") == 3
    assert value(families, "fairlane_fast_lane_long_jobs_total") == 1
    assert value(families, "fairlane_schedules_fired_total") == 3


def test_counters_of_workers_do_not_go_back_when_a_worker_leaves() -> None:
    shop = Shop()
    shop.scrape()
    shop.say(schedules__fired=5)
    assert value(shop.scrape(), "fairlane_schedules_fired_total") == 5
    shop.worker = WorkerId(shop.app.runtime.new_job_id())  # another one, which begins at its own 0
    shop.say(schedules__fired=1)
    assert value(shop.scrape(), "fairlane_schedules_fired_total") == 6


class Counting(MemoryStore):
    """A store that notes what it is asked, and can be taken away."""

    is_away = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.asked: list[Op[Any]] = []

    def run(self, op: Op[Any], *, on: object | None = None) -> Any:
        self.asked.append(op)
        if self.is_away:
            raise StoreUnavailable("memory", "the cable is out")
        return super().run(op, on=on)


def counting_shop() -> tuple[Shop, Counting]:
    shop = Shop(Counting)
    assert isinstance(shop.store, Counting)
    return shop, shop.store


def test_a_store_that_is_away_shows_and_counters_stay() -> None:
    shop, store = counting_shop()
    shop.scrape()
    shop.add(completed=3)
    shop.scrape()
    store.is_away = True
    families = shop.scrape()
    assert value(families, "redis_health") == 0
    assert value(families, "fairlane_store_up", store="memory") == 0
    assert value(families, "jobs_completed_total", status="success") == 3
    assert "queue_depth" not in families
    store.is_away = False
    families = shop.scrape()
    assert value(families, "redis_health") == 1
    assert value(families, "jobs_completed_total", status="success") == 3


def test_however_often_somebody_scrapes_the_store_is_asked_every_ten_seconds() -> None:
    shop, store = counting_shop()
    shop.scrape()
    store.asked.clear()
    for _ in range(100):
        shop.scrape(0.05)
    assert store.asked == []
    shop.scrape(KEPT_S)
    asked = {type(op).__name__ for op in store.asked}
    assert asked == {"GetStats", "Check", "ListWorkers", "ListBreakers", "ReadAlerts", "ReadStats"}
    [figures] = [op for op in store.asked if isinstance(op, ReadStats)]
    assert figures.until - figures.since <= timedelta(minutes=6), "the last minutes, not the whole past"


def test_tenants_queues_are_counted_a_few_at_a_time() -> None:
    shop, store = counting_shop()
    shop.scrape()
    for n in range(20):
        shop.add(tenant=f"t{n}", enqueued=1)
    shop.scrape(WHOLE_EVERY_S)
    looked: set[str | None] = set()
    for _ in range(4):
        store.asked.clear()
        shop.scrape()
        found = {op.scope.tenant for op in store.asked if isinstance(op, GetStats)} - {None}
        assert len(found) == 5
        looked |= found
    assert looked == {f"t{n}" for n in range(20)}


def test_scrapes_from_many_threads_count_everything_once() -> None:
    shop = Shop()
    shop.scrape()
    shop.add(completed=5)
    shop.clock.advance(KEPT_S)
    threads = [threading.Thread(target=exposition, args=(shop.app,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(shop.scrape(), "jobs_completed_total", status="success") == 5


def test_the_async_twin_reads_the_same() -> None:
    shop = Shop()
    shop.scrape()
    shop.add(completed=5)
    shop.clock.advance(KEPT_S)
    assert read(asyncio.run(aexposition(shop.app))).keys() == shop.scrape().keys()
