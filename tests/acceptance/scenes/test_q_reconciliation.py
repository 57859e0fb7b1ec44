"""Document Q, section by section, as its author would type it: reconciliation of affiliate reports, on the two queues it names."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fairlane import (
    Breaker,
    Draft,
    EnqueueRateReached,
    Fairlane,
    InvalidState,
    MissingData,
    QueueFull,
    RateLimited,
    StoreClosed,
    UnknownPriority,
)
from fairlane.metrics import exposition, scrape
from fairlane.worker.config import WorkerConfig
from tests.faults.eventually import eventually
from tests.support.stores import Ground
from tests.worker.foreman.crew import Crew


@pytest.fixture(params=["memory", "redis"])
def where(request: pytest.FixtureRequest, ground: Ground) -> dict[str, Any]:
    """The document's two queues."""
    if request.param == "memory":
        return {"url": "memory://"}
    url, prefix = ground.address("redis").split()
    return {"url": url, "key_prefix": prefix}


@pytest.fixture
def app(where: dict[str, Any]) -> Iterator[Fairlane]:
    with Fairlane(**where, profile="development") as app:
        yield app


@pytest.mark.requirement("Q1", "Q2")
def test_3_to_5_labels_are_numbers_lower_runs_first_and_a_future_job_holds_nobody_back(app: Fairlane) -> None:
    ran: list[int] = []

    @app.task(name="reconcile")
    def reconcile(report: int) -> None:
        ran.append(report)

    later = reconcile.using(priority="high", delay=3600).enqueue(1)
    reconcile.using(priority="low").enqueue(2)
    reconcile.enqueue(3)
    reconcile.using(priority="normal").enqueue(4)
    reconcile.using(priority="high").enqueue(5)
    reconcile.using(priority=7).enqueue(6)
    with pytest.raises(UnknownPriority, match="urgent"):
        reconcile.using(priority="urgent").enqueue(7)
    with app.running(slots=1, drain=True):
        pass
    assert ran == [5, 3, 4, 6, 2]
    assert later.status() == "pending"
    snapshot = app.snapshot()
    assert (snapshot["depth"], snapshot["ready"], snapshot["scheduled"], snapshot["shutdown"]) == (1, 0, 1, False)
    assert snapshot["redis_active"] is (snapshot["store"] == "redis")


@pytest.mark.requirement("Q3")
def test_4_a_waiting_worker_wakes_for_a_new_job_and_for_a_scheduled_one_when_it_is_due(app: Fairlane) -> None:
    @app.task(name="reconcile")
    async def reconcile(report: int) -> float:
        return time.monotonic()

    with app.running(config=WorkerConfig(poll_s=60.0)):
        reconcile.enqueue(1).result(timeout=30)  # the worker is up, and now it waits
        for delay in (0.0, 0.3):
            sent = time.monotonic()
            handle = reconcile.using(delay=delay).enqueue(2)
            began = handle.result(timeout=30)
            assert delay <= began - sent < 30, "nothing but a wake-up could bring it: the next poll is a minute away"


@pytest.mark.requirement("Q6")
def test_3_capacity_is_refused_the_warning_depth_is_said_once_and_nothing_is_taken_after_the_end(
    where: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with Fairlane(**where, capacity=5, warn_depth=3) as app:

        @app.task(name="reconcile")
        def reconcile(report: int) -> None: ...

        with caplog.at_level(logging.WARNING, "fairlane"):
            for report in range(5):
                reconcile.enqueue(report)
        assert len([record for record in caplog.records if "warning depth" in record.getMessage()]) == 1
        with pytest.raises(QueueFull):
            reconcile.enqueue(6)
        assert app.snapshot()["depth"] == 5
    with pytest.raises(StoreClosed):
        reconcile.enqueue(7)


@pytest.mark.requirement("Q9", "Q13")
def test_7_every_job_has_a_fresh_session_that_is_closed_also_after_an_error_in_each_of_several_threads(
    app: Fairlane,
) -> None:
    opened: list[object] = []
    closed: list[object] = []
    threads: set[int] = set()
    together = threading.Barrier(3)

    class Session: ...

    @app.resource
    def session() -> Iterator[Session]:
        mine = Session()
        opened.append(mine)
        try:
            yield mine
        finally:
            closed.append(mine)

    @app.task(name="reconcile", max_attempts=1)
    def reconcile(report: int) -> None:
        assert session() is session()
        threads.add(threading.get_ident())
        together.wait(30)
        if report == 1:
            raise ValueError("no such report")

    handles = [reconcile.enqueue(report) for report in range(3)]
    with app.running(slots=3, drain=True):
        pass
    assert [handle.status() for handle in handles] == ["completed", "dead", "completed"]
    assert len(threads) == 3
    assert len(set(map(id, opened))) == 3
    assert set(map(id, opened)) == set(map(id, closed))


@pytest.mark.requirement("Q10")
def test_8_a_platform_that_limits_us_opens_its_breaker_which_probes_and_closes(app: Fairlane) -> None:
    is_up = threading.Event()
    calls: list[int] = []
    platform = Breaker("meta", threshold=3, cooldown=0.5, probes=2)

    @app.task(name="fetch", breaker=platform)
    def fetch(report: int) -> str:
        calls.append(report)
        if not is_up.is_set():
            raise RateLimited(retry_after=0.05)
        return "MATCHED"

    def state() -> str:
        return next((one.state for one in app.breakers.list() if one.name == "meta"), "closed")

    handles = [fetch.enqueue(report) for report in range(3)]
    with app.running(slots=1):
        eventually(lambda: state() == "open")
        before = len(calls)
        assert before == 3, "three failures open it, also if they are rate limits"
        is_up.set()
        assert [handle.result(timeout=60) for handle in handles] == ["MATCHED"] * 3
    assert state() == "closed"


@pytest.mark.requirement("Q12")
def test_18_what_lacks_its_data_runs_again_by_itself_in_half_an_hour(app: Fairlane) -> None:
    @app.task(name="reconcile")
    def reconcile(report: int) -> None:
        raise MissingData("the platform has no figures yet")

    handle = reconcile.enqueue(101)
    with app.running(drain=True):
        pass
    job = handle.job()
    assert job.status == "failed"
    assert timedelta(minutes=29) < job.run_at - job.enqueued_at < timedelta(minutes=31)


@pytest.mark.requirement("Q13")
def test_14_a_risk_score_at_the_enqueue_sets_priority_and_delay(app: Fairlane) -> None:
    @app.jobs.on_enqueue
    def score(draft: Draft) -> Draft | None:
        if draft.args["click_through_rate"] > 0.5:
            return draft.change(priority="high")
        return draft.change(delay=60) if draft.tenant == "new-affiliate" else None

    @app.task(name="reconcile")
    def reconcile(click_through_rate: float) -> None: ...

    assert reconcile.enqueue(0.1).job().priority == 5
    assert reconcile.enqueue(0.9).job().priority == 0
    throttled = reconcile.using(tenant="new-affiliate").enqueue(0.1).job()
    assert throttled.run_at - throttled.enqueued_at >= timedelta(seconds=59)


@pytest.mark.requirement("Q15")
def test_16_a_flood_of_one_affiliate_is_refused_and_the_others_go_on(where: dict[str, Any]) -> None:
    with Fairlane(**where, tenant_enqueue_rate="3/min") as app:

        @app.task(name="reconcile")
        def reconcile(report: int) -> None: ...

        for report in range(3):
            reconcile.using(tenant="flood").enqueue(report)
        with pytest.raises(EnqueueRateReached) as refused:
            reconcile.using(tenant="flood").enqueue(4)
        assert 0 < refused.value.retry_after_s <= 60
        reconcile.using(tenant="quiet").enqueue(5)


@pytest.mark.requirement("Q8", "Q11")
def test_7_10_it_stops_when_the_queue_is_empty_and_only_tests_may_purge(where: dict[str, Any]) -> None:
    with Fairlane(**where, profile="production") as app:

        @app.task(name="reconcile")
        def reconcile(report: int) -> int:
            return report

        handles = [reconcile.enqueue(report) for report in range(20)]
        with app.running(drain=True):
            pass
        assert [handle.result() for handle in handles] == list(range(20))
        reconcile.enqueue(21)
        with pytest.raises(InvalidState, match="development"):
            app.jobs.purge()
        assert app.snapshot()["depth"] == 1


@pytest.mark.requirement("Q14")
def test_15_every_metric_of_the_document_has_its_name_and_says_what_happened(
    app: Fairlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape, "KEPT_S", 0.0)  # two scrapes within ten seconds get the same text

    @app.task(name="reconcile", max_attempts=1)
    def reconcile(report: int) -> None:
        if report == 1:
            raise ValueError("no such report")

    app.breakers.open("meta", by="olga")
    exposition(app)  # counters begin with the first scrape, as in any process
    app.enqueue_many([reconcile.bind(0), reconcile.bind(1)])
    with app.running(drain=True):
        pass
    reconcile.enqueue(2)
    text = exposition(app).decode()
    shown = {line.partition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}
    assert shown['queue_depth{queue="default"}'] == 1
    assert shown['dequeue_latency_histogram_count{queue="default"}'] == 2
    assert shown['job_processing_duration_count{queue="default"}'] == 2
    assert shown['job_failures_total{method="reconcile",queue="default"}'] == 1
    assert shown['breaker_state_gauge{platform="meta"}'] == 2
    assert shown["redis_health"] == 1


@pytest.mark.requirement("Q17")
def test_13_a_worker_that_crashes_in_a_reconciliation_leaves_nothing_lost(ground: Ground, tmp_path: Path) -> None:
    url, _ = ground.address("redis").split()
    crew = Crew(url, tmp_path)
    crew.app.jobs.purge()
    try:
        foreman = crew.start("-p", "1", "-s", "2")
        handle = crew.task("work").enqueue(0.5)
        [began] = crew.began(handle)
        os.kill(began.pid, signal.SIGKILL)
        crew.eventually(lambda: handle.status() == "completed")
        assert [outcome for outcome, _ in crew.attempts(handle)] == ["lost", "completed"]
        assert foreman.stop() == 0
    finally:
        crew.close()
