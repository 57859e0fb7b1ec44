"""Document L, section by section, as its author would type it: jobs of a register of sports sites, on PostgreSQL."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, TypedDict

import psycopg
import pytest

from fairlane import Breaker, Fairlane, InvalidArguments, QueuePaused, Retry, current_job
from fairlane.testing import run_due
from tests.faults.eventually import eventually
from tests.support.stores import Ground
from tests.worker.foreman.crew import Crew


class Data(TypedDict):
    site: str


@pytest.fixture
def app(ground: Ground) -> Iterator[Fairlane]:
    with Fairlane(ground.address("postgres"), profile="production") as app:
        yield app


@pytest.mark.requirement("L3")
def test_job_types_have_schemas_that_hold_at_the_enqueue_and_again_at_the_execution(app: Fairlane) -> None:
    @app.task(name="email")
    def email(to: str, template: str, data: Data) -> None: ...

    with pytest.raises(InvalidArguments, match="missing: template"):
        email.enqueue(to="user@example.com")  # type: ignore[call-arg]
    with pytest.raises(InvalidArguments, match="data"):
        email.enqueue(to="user@example.com", template="welcome", data={"site": 7})  # type: ignore[typeddict-item]
    assert app.jobs.list().jobs == ()
    elsewhere = app.runtime.settings.url
    with psycopg.connect(elsewhere, autocommit=True) as sql:  # another program knows no schema
        sql.execute("""select fairlane.enqueue_v1('[{"type": "email", "payload": {"to": 1}}]')""")
    [job] = app.jobs.list().jobs
    run_due(app)
    assert app.jobs.get(job.id).status == "dead"


@pytest.mark.requirement("L4", "L6", "L16")
def test_enqueue_options_and_handlers_with_their_context_and_services(app: Fairlane) -> None:
    sent: list[tuple[str, str, int, object]] = []

    class Emailer:
        def send(self, to: str) -> None:
            job = current_job()
            sent.append((to, job.correlation_id, job.attempt, job.arguments))

    @app.resource(scope="worker")
    def emailer() -> Iterator[Emailer]:
        yield Emailer()

    @app.task(name="email")
    def email(to: str, template: str) -> None:
        emailer().send(to)

    @app.task(name="analysis")
    def analysis(lipas_id: int) -> None:
        email.enqueue("user@example.com", "analysis")

    options: dict[str, Any] = {"priority": 50, "correlation_id": "user-action-123", "dedup_key": "analysis-12345"}
    first = analysis.using(**options, max_attempts=4, created_by="admin@lipas.fi").enqueue(12345)
    again = analysis.using(**options).enqueue(12345)
    later = analysis.using(delay=300).enqueue(12345)
    assert (again.id, again.duplicate) == (first.id, True)
    with app.running(drain=True):
        pass
    [child, traced] = app.jobs.list(correlation_id="user-action-123").jobs
    assert (traced.id, traced.priority, traced.max_attempts, traced.created_by) == (first.id, 50, 4, "admin@lipas.fi")
    assert (child.type, child.parent_id) == ("email", first.id)
    assert sent == [("user@example.com", "user-action-123", 1, {"to": "user@example.com", "template": "analysis"})]
    assert later.status() == "pending"
    assert analysis.using(dedup_key="analysis-12345").enqueue(1).id != first.id, "unique while it is unfinished"


@pytest.mark.requirement("L5", "L10")
def test_queue_statistics_failing_by_hand_dead_letters_acknowledged_and_requeued(app: Fairlane) -> None:
    @app.task(name="webhook")
    def webhook(site: int) -> None: ...

    jobs = [webhook.using(correlation_id=f"action-{site}").enqueue(site) for site in range(3)]
    [queue] = app.statistics.counts().queues
    assert queue.ready == 3
    assert queue.oldest_due_at is not None
    app.jobs.fail(jobs[0], "External service unavailable", retry_delay=60.0, by="admin@lipas.fi")
    app.jobs.bury(jobs[1], "Permanent validation error", by="admin@lipas.fi")
    assert [job.status() for job in jobs] == ["failed", "dead", "pending"]
    [letter] = app.dead_letters.list().dead_letters
    app.dead_letters.acknowledge(letter.id, by="admin@lipas.fi")
    kept = app.dead_letters.get(letter.id).dead_letter
    assert (kept.reason, kept.acknowledged_by) == ("Permanent validation error", "admin@lipas.fi")
    assert kept.acknowledged_at is not None
    requeued = app.dead_letters.reprocess(letter.id, by="admin@lipas.fi", notes="fixed")
    [new, _] = app.jobs.list(correlation_id="action-1").jobs
    assert (new.id, new.payload) == (requeued.job.id, '{"site":1}')


@pytest.mark.requirement("L7")
def test_the_backoff_of_the_document_is_1_2_4_seconds_to_5_minutes(app: Fairlane) -> None:
    @app.task(name="integration", retry=Retry(max_attempts=12, base_s=1.0, cap_s=300.0, jitter=0.1))
    def integration() -> None:
        raise ConnectionError("the other system is down")

    with app.testing() as jobs:
        handle = integration.enqueue()
        jobs.run_due(raising=False)
        attempts = app.jobs.detail(handle.id).attempts
    delays = [(later.leased_at - one.ended_at).total_seconds() for one, later in pairwise(attempts)]
    assert len(delays) == 11
    for nominal, delay in zip([1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300], delays, strict=True):
        assert nominal * 0.9 <= delay <= min(nominal * 1.1, 300)


@pytest.mark.requirement("L13", "L14")
def test_health_by_type_percentiles_and_the_alert_of_a_breaker_that_opens(app: Fairlane) -> None:
    service = Breaker("email-service", threshold=5, cooldown=60.0)

    @app.task(name="email", breaker=service, max_attempts=1)
    def email(n: int) -> None:
        if n >= 20:
            raise ConnectionError("refused")

    for n in range(25):
        email.enqueue(n)
    with app.running(slots=1, drain=True):
        pass
    with psycopg.connect(app.runtime.settings.url, autocommit=True) as sql:
        health = sql.execute(
            "SELECT type, status, count FROM fairlane.job_queue_health ORDER BY type, status"
        ).fetchall()
        broken = sql.execute(
            "SELECT service_name, failure_count FROM fairlane.circuit_breakers WHERE state != 'closed'"
        )
        assert health == [("email", "completed", 20), ("email", "dead", 5)]
        assert broken.fetchall() == [("email-service", 5)]
    now = app.runtime.clock.now()
    minutes = app.statistics.minutes(now - timedelta(minutes=2), now + timedelta(minutes=1), type="email")
    assert sum(row.completed for row in minutes.rows) == 20
    assert sum(row.dead for row in minutes.rows) == 5


@pytest.mark.requirement("L8", "L20")
@pytest.mark.parametrize("held_by", ["breaker", "pause"])
def test_troubleshooting_a_service_that_is_down_at_a_sql_prompt(app: Fairlane, held_by: str) -> None:
    calls: list[int] = []

    @app.task(name="webhook", breaker=Breaker("utp", threshold=3, cooldown=60.0), retry=Retry(base_s=0.01, jitter=0.0))
    def webhook(site: int) -> None:
        calls.append(site)
        if len(calls) <= 3:
            raise ConnectionError("refused")

    for site in range(3):
        webhook.enqueue(site)
    sql = psycopg.connect(app.runtime.settings.url, autocommit=True)
    sql.execute("set search_path = fairlane, public")
    with sql, app.running(slots=1):
        eventually(lambda: len(calls) == 3)
        if held_by == "pause":
            app.tasks.pause("webhook", by="admin@lipas.fi")
        # The third call has failed, too, and no job is left that was claimed before the pause.
        is_down = "select from circuit_breakers where state = 'open' and not exists (select from lease)"
        eventually(lambda: sql.execute(is_down).rowcount == 1)
        if held_by == "pause":
            app.breakers.reset("utp", by="admin@lipas.fi")
        backoff_is_over = "select from job_record where attempts = 1 and status = 'pending'"
        eventually(lambda: sql.execute(backoff_is_over).rowcount == 3)
        recent = sql.execute(
            "SELECT type, COUNT(*) as failures, MAX(last_error_at) as latest_failure FROM jobs "
            "WHERE status = 'failed' AND last_error_at > NOW() - INTERVAL '1 hour' GROUP BY type;"
        ).fetchall()
        assert [(row[0], row[1]) for row in recent] == [("webhook", 3)]
        if held_by == "pause":
            app.tasks.resume("webhook", by="admin@lipas.fi")
        else:
            closed = sql.execute("UPDATE circuit_breakers SET state = 'closed' WHERE service_name = 'utp'")
            assert closed.rowcount == 1
            assert app.audit.list(action="breaker_reset").records[0].by == "postgres"
        snooze_ends = "update scheduled set due_at = now()"
        eventually(lambda: sql.execute(snooze_ends) and len(calls) == 6)


@pytest.mark.requirement("L15", "L20", "D7")
def test_jobs_stuck_in_processing_are_reset_by_the_statement_of_the_document(app: Fairlane) -> None:
    runs: list[int] = []
    late = threading.Event()

    @app.task(name="analysis", timeout=3600)
    def analysis(site: int) -> None:
        runs.append(site)
        if len(runs) == 1:
            late.wait(60)

    stuck = analysis.enqueue(7)
    with psycopg.connect(app.runtime.settings.url, autocommit=True) as sql, app.running():
        sql.execute("set search_path = fairlane, public")
        eventually(lambda: len(runs) == 1 and stuck.status() == "processing")
        sql.execute("update lease set started_at = started_at - interval '2 hours'")
        reset = sql.execute(
            "UPDATE jobs SET status = 'pending', started_at = null "
            "WHERE status = 'processing' AND started_at < NOW() - INTERVAL '1 hour';"
        )
        assert reset.rowcount == 1
        eventually(lambda: stuck.status() == "completed")
        late.set()  # the attempt that hung ends, too: its result is refused
    assert [attempt.outcome for attempt in app.jobs.detail(stuck.id).attempts] == ["released", "completed"]
    assert stuck.job().attempts == 0
    assert app.audit.list(action="job_reset").records[0].target == f"job:{stuck.id}"


@pytest.mark.requirement("L15", "D9", "D21")
def test_a_drain_before_maintenance_refuses_new_jobs_of_a_type_and_says_when_none_runs(app: Fairlane) -> None:
    @app.task(name="elevation")
    def elevation(site: int) -> None: ...

    waiting = elevation.enqueue(1)
    app.tasks.pause("elevation", refuse=True, by="admin@lipas.fi", notes="maintenance")
    with pytest.raises(QueuePaused, match="maintenance"):
        elevation.enqueue(2)
    with app.running(drain=True):
        pass
    assert waiting.status() == "pending"
    assert app.tasks.running("elevation") == 0
    app.tasks.resume("elevation", by="admin@lipas.fi")
    with app.running(drain=True):
        pass
    assert waiting.status() == "completed"


@pytest.mark.requirement("L17")
def test_stopping_the_worker_lets_current_jobs_end_and_another_version_goes_on(ground: Ground, tmp_path: Path) -> None:
    crew = Crew(ground.address("postgres"), tmp_path)
    try:
        old = crew.start("-p", "1", "-s", "1")
        handles = [crew.task("work").enqueue(0.3) for _ in range(3)]
        crew.began(handles[0])
        new = crew.start("-p", "1", "-s", "1")
        assert old.stop() == 0
        crew.eventually(lambda: all(handle.status() == "completed" for handle in handles))
        assert [outcomes for handle in handles for outcomes in crew.attempts(handle)] == [("completed", None)] * 3
        assert new.stop() == 0
    finally:
        crew.close()


@pytest.mark.requirement("L12", "L18")
def test_its_future_is_here_chains_rates_lanes_versions_batches_cron_and_workflows(app: Fairlane) -> None:
    order: list[str] = []
    batches: list[int] = []

    @app.task(name="a")
    def a() -> int:
        order.append("a")
        return 20

    @app.task(name="b")
    def b() -> None:
        order.append("b")

    @app.task(name="double")
    def double(value: int) -> int:
        order.append("double")
        return 2 * value

    @app.task(name="index", batch=10, within=0.2)
    def index(sites: list[int]) -> None:
        batches.append(len(sites))

    @app.task(name="cleanup-jobs", cron="* * * * *")
    def cleanup() -> None: ...

    app.chain(a.bind(), b.bind()).enqueue()
    flow = app.workflow("enrich")
    flow.add(double.bind(flow.add(a.bind()).result))
    enrich = flow.enqueue()
    for site in range(10):
        index.enqueue(site)
    with app.running():
        eventually(lambda: len(order) == 4 and sum(batches) == 10)
        [schedule] = eventually(app.schedules.list)
    assert order.index("a") < order.index("b")
    assert enrich.result(double) == 40
    assert len(batches) < 10, "several in one call"
    assert (schedule.spec.type, schedule.spec.cron) == ("cleanup-jobs", "* * * * *")


@pytest.mark.requirement("L19")
def test_old_finished_jobs_are_removed_by_the_worker_itself(ground: Ground) -> None:
    with Fairlane(ground.address("postgres"), profile="production", retain_completed_days=7) as app:

        @app.task(name="email")
        def email() -> None: ...

        old = email.enqueue()
        with app.running(drain=True):
            pass
        with psycopg.connect(app.runtime.settings.url, autocommit=True) as sql:
            sql.execute("update fairlane.done set finished_at = finished_at - interval '8 days'")
        young = email.enqueue()
        with app.running():
            eventually(lambda: app.jobs.list(type="email").jobs and app.jobs.get(old.id) is None)
        assert young.job() is not None


@pytest.mark.requirement("L21")
def test_memory_of_the_worker_is_shown_and_its_heap_is_written_on_demand(ground: Ground, tmp_path: Path) -> None:
    crew = Crew(ground.address("postgres"), tmp_path)
    try:
        foreman = crew.start("-p", "1", "-s", "1", TMPDIR=str(tmp_path))
        crew.eventually(lambda: crew.app.workers.list().workers and foreman.workers())
        foreman.signal(signal.SIGUSR1)
        crew.eventually(lambda: list(tmp_path.glob("fairlane-heap-*.txt")))
        [worker] = crew.eventually(
            lambda: [one for one in crew.app.workers.list().workers if one.figures.get("memory_mb")]
        )
        assert worker.figures["memory_mb"] > 1
        assert foreman.stop() == 0
    finally:
        crew.close()
