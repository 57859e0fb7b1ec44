"""Document I, "Observability" and its rate limit: alerts that a real worker raises, metrics that are scraped, starts that are counted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane import Fairlane
from fairlane.core.ops import ALL_TENANTS, ReadEvents
from tests.acceptance.scenes.served import Served
from tests.servers.valkey import ValkeyServer
from tests.support.stores import Ground, ground
from tests.worker.foreman.crew import Crew

__all__ = ["ground"]

DARTWING = """
import os
import time
from fairlane import Fairlane, NonRetryable

app = Fairlane(os.environ["YARD_URL"])

@app.task(name="sync.process_delta")
def sync() -> None:
    raise NonRetryable("no such connection")

@app.task(name="core.exports.full_export", queue="bulk")
async def export() -> None: ...

@app.task(name="sync.stuck", timeout=0.5)
async def stuck() -> None:
    time.sleep(60)

@app.task(name="sync.wait")
async def wait() -> None: ...
"""
QUICK = {"rules": {"queue_backlog": {"for_s": 1}, "store_unreachable": {"for_s": 2}}}
"""The document's conditions, which it gives 15 minutes and none."""


@pytest.fixture
def dartwing(ground: Ground, tmp_path: Path) -> Iterator[Crew]:
    (tmp_path / "dartwing.py").write_text(DARTWING)
    crew = Crew(ground.address("postgres"), tmp_path)
    for name in ("sync.process_delta", "sync.stuck", "sync.wait"):
        crew.app.task(name=name)(lambda: None)
    crew.app.task(name="core.exports.full_export", queue="bulk")(lambda: None)
    yield crew
    crew.close()


def typed(crew: Crew, *words: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "fairlane", *words],
        cwd=crew.directory,
        env={**os.environ, "FAIRLANE_URL": crew.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return ran.stdout


def put(crew: Crew, name: str, count: int, tenant: str = "ORG-1") -> None:
    task = crew.app.tasks[name].using(tenant=tenant)
    crew.app.enqueue_many([task.bind() for _ in range(count)])


@pytest.mark.requirement("I8", "I9", "I12", "I13", "I14")
def test_every_alert_of_the_document_is_raised_by_a_worker_at_its_condition(dartwing: Crew) -> None:
    crew = dartwing
    foreman = crew.start(
        "--profile", "isolation", "-p", "1", app="dartwing:app", cwd=crew.directory, FAIRLANE_ALERTS=json.dumps(QUICK)
    )
    crew.eventually(lambda: "is ready" in foreman.log())
    [victim] = foreman.workers()
    os.kill(victim, signal.SIGKILL)  # worker crash
    put(crew, "sync.stuck", 1)
    put(crew, "sync.process_delta", 51)  # dead letters > 50
    typed(crew, "queues", "pause", "bulk", "--notes", "a backlog")
    with Fairlane(crew.url, profile="isolation") as web:
        web.task(name="core.exports.full_export", queue="bulk")(lambda: None)
        for _ in range(101):  # 100 of one organization in bulk
            web.tasks["core.exports.full_export"].using(tenant="ORG-2").enqueue()
    put(crew, "core.exports.full_export", 1001)  # queue_depth > 1000

    def fires() -> dict[str, str]:
        put(crew, "sync.wait", 1)  # other work goes on, and so the worker looks every 15 seconds
        listed = json.loads(typed(crew, "alerts", "list", "--json"))["alerts"]
        return {alert["rule"]: alert["severity"] for alert in listed if alert["state"] == "firing"}

    expected = {
        "queue_backlog": "warning",
        "dead_letters": "warning",
        "stuck_job": "critical",
        "tenant_limit": "info",
        "worker_crash": "critical",
    }
    crew.eventually(lambda: expected.items() <= fires().items(), 90)
    assert foreman.workers() != [victim], "restarted"
    [event] = crew.app.runtime.store.run(ReadEvents(scope=ALL_TENANTS, kinds=("dlq_alert",))).events
    assert event.data["threshold"] == 50
    assert event.data["count"] > 50
    [stuck] = crew.app.dead_letters.list(type="sync.stuck").dead_letters
    assert stuck.reason == "Job exceeded timeout threshold"
    assert foreman.stop() == 0
    assert "[critical] worker_crash" in foreman.log()
    assert re.search(r"\[info\] tenant_limit: .*ORG-2", foreman.log())


@pytest.mark.requirement("I12", "Q14")
def test_a_store_that_is_killed_is_told_by_its_rule_and_by_a_worker_started_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "dartwing.py").write_text(DARTWING)
    with ValkeyServer() as server:
        crew = Crew(server.url, tmp_path)
        try:
            begin = {"app": "dartwing:app", "cwd": tmp_path, "FAIRLANE_ALERTS": json.dumps(QUICK)}
            first = crew.start("-p", "1", **begin)  # type: ignore[arg-type]
            crew.eventually(lambda: "is ready" in first.log())
            server.kill9()
            second = crew.start("-p", "1", **begin)  # type: ignore[arg-type]
            for foreman in (first, second):
                crew.eventually(
                    lambda foreman=foreman: (
                        "[critical] store_unreachable: the store could not be reached" in foreman.log()
                    )
                )
            server.start()
            crew.eventually(lambda: "is ready" in second.log(), 60)
            assert [foreman.stop() for foreman in (first, second)] == [0, 0]
        finally:
            crew.close()


@pytest.mark.requirement("I5")
def test_bulk_starts_fifty_jobs_a_minute_over_all_processes(dartwing: Crew) -> None:
    crew = dartwing
    put(crew, "core.exports.full_export", 80)
    foreman = crew.start("--profile", "isolation", "-p", "2", app="dartwing:app", cwd=crew.directory)

    def started() -> int:
        return 80 - crew.app.queues.depth("bulk")

    crew.eventually(lambda: started() == 50, 40)
    put(crew, "sync.wait", 1)
    crew.eventually(lambda: crew.app.jobs.list(type="sync.wait", status="completed").jobs)
    assert started() == 50, "the rest wait for the next minute"
    assert foreman.stop() == 0


@pytest.mark.requirement("I11")
def test_the_metrics_of_the_document_are_scraped_under_its_names(dartwing: Crew) -> None:
    crew = dartwing
    with Served(crew.url, crew.directory) as served:
        token = served.type("fairlane tokens create prometheus --role metrics")
        scrape = f"curl {served.address}/metrics -H 'Authorization: Bearer {token}'"
        served.type(scrape)  # counters begin here
        put(crew, "sync.wait", 3)
        put(crew, "sync.process_delta", 2)
        foreman = crew.start("-p", "1", app="dartwing:app", cwd=crew.directory)
        crew.eventually(lambda: len(crew.app.dead_letters.list().dead_letters) == 2)
        assert foreman.stop() == 0  # and its figures are written
        put(crew, "sync.wait", 4)

        def scraped() -> str:
            return served.type(scrape)

        completed = 'jobs_completed_total{method="sync.wait",org="ORG-1",queue="default",status="success"} 3.0'
        crew.eventually(lambda: completed in scraped(), 30)
        found = scraped()
    for line in (
        'jobs_completed_total{method="sync.process_delta",org="ORG-1",queue="default",status="failure"} 2.0',
        'jobs_duration_seconds_count{method="sync.wait",queue="default"} 3.0',
        'queue_depth{queue="default"} 4.0',
        "dlq_depth 2.0",
        'org_job_count{org="ORG-1",queue="default"} 4.0',
    ):
        assert line in found, found
    assert re.search(r'^jobs_enqueued_total\{method="sync\.wait",org="ORG-1",queue="default"\} ', found, re.MULTILINE)
