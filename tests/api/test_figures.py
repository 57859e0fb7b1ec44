"""Figures over time: sums, error rate, percentiles read off histograms."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st
from prometheus_client.parser import text_string_to_metric_families

from fairlane.core.histogram import Spans
from fairlane.core.ids import WorkerId
from fairlane.core.ops import AddStats, Renew, StatRow
from tests.api.house import FOREIGN, OWN, ShopHouse


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=200), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_lies_in_the_bucket_of_the_true_one(spans_ms: list[int], fraction: float) -> None:
    spans = Spans()
    for span_ms in spans_ms:
        spans.add(span_ms * 1000, {span_ms.bit_length(): 1})
    ranked = sorted(spans_ms)
    true_ms = ranked[max(-(-int(fraction * 100) * len(ranked) // 100) - 1, 0)]
    found_ms = (spans.percentile_s(fraction) or 0.0) * 1000
    assert 2.0 ** (true_ms.bit_length() - 1) * (true_ms > 0) <= found_ms <= 2.0 ** true_ms.bit_length()


def test_nothing_measured_has_no_percentile() -> None:
    assert Spans().percentile_s(0.5) is None
    assert Spans().mean_s is None


@pytest.fixture
def minutes(house: ShopHouse) -> ShopHouse:
    return with_minutes(house)


def with_minutes(house: ShopHouse) -> ShopHouse:
    minute = house.clock.now().replace(second=0, microsecond=0) - timedelta(minutes=10)
    rows = [
        StatRow(
            minute=minute + timedelta(minutes=number),
            type=task,
            queue="default",
            tenant=tenant,
            completed=6,
            failed=3,
            dead=1,
            wait_us=1_000_000,
            run_us=4_000_000,
            wait_buckets={7: 10},
            run_buckets={8: 9, 12: 1},
        )
        for number in range(4)
        for task, tenant in (("mail.send", OWN), ("report.make", FOREIGN))
    ]
    worker = WorkerId(house.app.runtime.new_job_id())
    house.app.runtime.access.run(Renew(worker=worker, lease_s=60.0, name="w", queues=(), types=()))
    house.app.runtime.access.run(AddStats(worker=worker, batch=1, rows=tuple(rows)))
    return house


def series(house: ShopHouse, token: str, **query: Any) -> Any:
    answer = house.call("GET", "/api/jobs/statistics/", token, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.requirement("L13")
def test_throughput_error_rate_and_percentiles_over_time(minutes: ShopHouse) -> None:
    viewer = minutes.token(("viewer",))
    points = series(minutes, viewer, by="type", type="mail.send")["points"]
    assert len(points) == 4
    assert {point["group"] for point in points} == {"mail.send"}
    first = points[0]
    assert (first["completed"], first["failed"], first["dead"], first["error_rate"]) == (6, 3, 1, 0.4)
    assert first["per_second"] == 0.1
    assert 0.064 <= first["wait"]["p50_s"] <= 0.128
    assert 0.128 <= first["run"]["p50_s"] <= 0.256
    assert 2.048 <= first["run"]["p99_s"] <= 4.096
    together = series(minutes, viewer, step_s=3600)["points"]
    assert sum(point["completed"] for point in together) == 48


@pytest.mark.requirement("W13")
def test_a_tenants_figures_are_its_own(minutes: ShopHouse) -> None:
    bound = minutes.token(("viewer",), tenant=OWN)
    for query in ({"by": "tenant"}, {"by": "tenant", "tenant": OWN}):
        points = series(minutes, bound, **query)["points"]
        assert {point["group"] for point in points} == {OWN}
    foreign = minutes.call("GET", "/api/jobs/statistics/", bound, params={"tenant": FOREIGN})
    assert (foreign.status_code, foreign.json()["code"]) == (404, "tenant_not_found")


def test_too_many_steps_are_refused(house: ShopHouse) -> None:
    query = {"since": "1990-01-01T00:00:00Z", "until": "2020-01-01T00:00:00Z"}
    answer = house.call("GET", "/api/jobs/statistics/", house.token(("viewer",)), params=query)
    assert answer.status_code == 422


@pytest.mark.requirement("W11", "L5", "L13")
def test_queue_statistics_show_the_oldest_pending_age_and_pending_jobs_by_type(house: ShopHouse) -> None:
    house.clock.advance(300)
    token = house.token(("staff", "manager"))
    shown = house.call("GET", "/api/jobs/admin/queue/statistics/", token).json()
    assert shown["oldest_pending_s"] >= 300
    assert (shown["pending"], shown["processing"], shown["dead"]) == (2, 2, 2)
    for path, roles in (("admin/queue/statistics/", ("staff", "manager")), ("queues/", ("viewer",))):
        everybody = house.call("GET", f"/api/jobs/{path}", house.token(roles)).json()
        assert everybody["pending_types"] == {"mail.send": 2}
        bound = house.call("GET", f"/api/jobs/{path}", house.token(roles, tenant=OWN)).json()
        assert bound["pending_types"] == {"mail.send": 1}


@pytest.mark.requirement("I11", "L13")
def test_prometheus_reads_the_metrics_of_everything_and_of_one_tenant() -> None:
    house = with_minutes(ShopHouse())  # its own: what was scraped is kept for a while
    viewer = house.token(("viewer",))
    for path, tenants in (("/metrics", {OWN, FOREIGN}), (f"/api/jobs/tenants/{OWN}/metrics", {OWN})):
        answer = house.call("GET", path, viewer)
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = {family.name: family for family in text_string_to_metric_families(answer.text)}
        counted = families["jobs_completed"].samples
        assert {sample.labels["org"] for sample in counted} == tenants
        assert "queue_depth" in families
    house.close()
