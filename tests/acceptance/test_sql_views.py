"""What operators type at a PostgreSQL prompt: every SELECT of the async-jobs document runs as printed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import psycopg
import pytest

from fairlane.core.breaker import BreakerPolicy
from fairlane.core.job import Job, Lease
from fairlane.core.ops import ALL_TENANTS, Acknowledge, Admit, Receipt, Report
from fairlane.stores.postgres import PostgresStore
from fairlane.testing.conformance.samples import completed, crashed, died, retried, snoozed
from fairlane.testing.conformance.scene import Scene
from tests.support.stores import Ground, ground

__all__ = ["ground"]

DOCUMENTED = {
    "queue health": "SELECT * FROM job_queue_health ORDER BY type, status;",
    "stuck jobs": """
        SELECT id, type, status, attempts, created_at, started_at
        FROM jobs
        WHERE status = 'processing'
          AND started_at < NOW() - INTERVAL '1 hour';""",
    "recent failures by type": """
        SELECT type, COUNT(*) as failures, MAX(last_error_at) as latest_failure
        FROM jobs
        WHERE status = 'failed'
          AND last_error_at > NOW() - INTERVAL '1 hour'
        GROUP BY type;""",
    "open breakers": """
        SELECT service_name, state, failure_count, last_failure_at
        FROM circuit_breakers
        WHERE state != 'closed';""",
    "unacknowledged dead letters": """
        SELECT * FROM dead_letter_jobs
        WHERE acknowledged = false
        ORDER BY died_at DESC;""",
    "dead letters by type": """
        SELECT id, original_job->>'type' as job_type, error_message, died_at
        FROM dead_letter_jobs
        WHERE acknowledged = false
        ORDER BY died_at DESC;""",
    "a trace": """
        SELECT id, type, status, created_at, completed_at, error_message
        FROM jobs
        WHERE correlation_id = 'user-action-123'
        ORDER BY created_at;""",
    "parents and children": """
        SELECT j1.id as parent_id, j1.type as parent_type,
               j2.id as child_id, j2.type as child_type
        FROM jobs j1
        JOIN jobs j2 ON j1.id = j2.parent_job_id
        WHERE j1.correlation_id = 'user-action-123';""",
}
Prompt = psycopg.Connection[dict[str, object]]


class Story(NamedTuple):
    """Jobs in every state that a documented SELECT asks for."""

    began_at: datetime
    failed_at: datetime
    slow: Lease
    child: Receipt
    dead: Lease


def story_of(scene: Scene) -> Story:
    began_at, worker = scene.now, scene.hire(lease_s=1e6)
    scene.put(type="slow", correlation_id="user-action-123")
    [slow] = scene.claim(worker)
    dead = scene.dead(type="mail.send")
    scene.put(type="report")
    [report] = scene.claim(worker)
    scene.put_many(2, type="flaky")
    flaky = scene.claim(worker, 2)
    scene.later(5)
    scene.settle(worker, completed(report))
    child = scene.put(type="report", parent_id=slow.id, correlation_id="user-action-123")
    failed_at = scene.later(6000)
    scene.settle(worker, *(retried(lease, delay_s=9000) for lease in flaky))
    policy = BreakerPolicy(threshold=2)
    scene.run(Report(name="search", policy=policy, failures=2))
    scene.run(Report(name="mail", policy=policy, successes=1))
    return Story(began_at, failed_at, slow, child, dead)


@pytest.fixture
def database(ground: Ground) -> str:
    return ground.address("postgres")


@pytest.fixture
def scene(database: str) -> Iterator[Scene]:
    store = PostgresStore(database)
    scene = Scene(store)
    scene.now = datetime.now(UTC) - timedelta(hours=2)
    yield scene
    store.close()


@pytest.fixture
def prompt(database: str) -> Iterator[Prompt]:
    with psycopg.connect(database, autocommit=True, row_factory=psycopg.rows.dict_row) as conn:
        conn.execute("set search_path = fairlane, public")
        yield conn


def shown(job: Job, status: str, parent: int | None = None) -> dict[str, object]:
    """The row of `jobs` that stands for a job."""
    return {
        "id": job.seq,
        "type": job.type,
        "payload": json.loads(job.payload),
        "status": status,
        "priority": job.priority,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "scheduled_at": job.scheduled_at,
        "run_at": job.run_at,
        "started_at": job.started_at,
        "completed_at": job.finished_at,
        "error_message": job.last_error if status == "dead" else None,
        "last_error": job.last_error,
        "last_error_at": job.last_error_at,
        "correlation_id": job.correlation_id,
        "parent_job_id": parent,
        "created_by": job.created_by,
        "dedup_key": job.dedup_key,
        "created_at": job.enqueued_at,
        "updated_at": job.finished_at or job.last_error_at or job.started_at or job.enqueued_at,
        "job_id": job.id,
        "tenant": job.tenant,
        "queue": job.queue,
    }


@pytest.mark.requirement("L20", "L1")
def test_each_column_of_jobs_shows_what_a_job_has(scene: Scene, prompt: Prompt) -> None:
    scene.now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    lives = {"correlation_id": "user-action-123", "created_by": "admin@lipas.fi", "priority": 50, "max_attempts": 4}
    parent = scene.put(type="analysis", dedup_key="analysis-12345", tenant="acme", **lives)
    worker = scene.hire(lease_s=1e6)
    scene.later(1)
    scene.claim(worker)
    rows = {"processing": parent.id, "completed": scene.finished(type="email", payload='{"to": [1, 2.50]}').id}
    for status, ends in (("failed", retried), ("dead", died)):
        scene.later(60)
        one, lease = scene.leased(type=status, parent_id=parent.id, queue="bulk", **lives)
        scene.later(2)
        scene.settle(one, ends(lease))
        rows[status] = lease.id
    rows["cancelled"] = scene.put(type="reminder", run_at=scene.at(3600)).id
    scene.cancel(rows["cancelled"])
    rows["pending"] = scene.put(type="reminder", run_at=scene.at(3600), priority=0).id
    jobs = {status: scene.see(of) for status, of in rows.items()}
    expected = [
        shown(job, status, parent.seq if status in ("failed", "dead") else None) for status, job in jobs.items()
    ]
    assert prompt.execute("select * from jobs order by id").fetchall() == sorted(expected, key=lambda row: row["id"])  # type: ignore[arg-type,return-value]
    failed, dead, running = jobs["failed"], jobs["dead"], jobs["processing"]
    assert failed.scheduled_at < failed.run_at, "the first time it was due, and the next"
    assert (failed.priority, failed.attempts, failed.max_attempts, failed.created_by) == (50, 1, 4, "admin@lipas.fi")
    assert (running.dedup_key, running.tenant) == ("analysis-12345", "acme")
    assert running.started_at is not None
    assert running.started_at > running.enqueued_at

    scene.acknowledge(dead.seq, by="admin@lipas.fi")
    letter = scene.letter(dead.seq)
    [row] = prompt.execute("select * from dead_letter_jobs").fetchall()
    original = row.pop("original_job")
    assert row == {
        "id": dead.seq,
        "error_message": letter.reason,
        "error_details": {
            "error_class": letter.error_class,
            "error_type": letter.error_type,
            "fingerprint": letter.fingerprint,
        },
        "died_at": letter.died_at,
        "acknowledged": True,
        "acknowledged_by": "admin@lipas.fi",
        "acknowledged_at": scene.now,
        "status": "pending_review",
    }
    assert isinstance(original, dict)
    values = {name: value for name, value in shown(dead, "dead", parent.seq).items() if not name.endswith("_at")}
    assert {name: value for name, value in original.items() if not name.endswith("_at")} == values | {
        "job_id": str(dead.id)
    }


@pytest.mark.requirement("L20", "L8")
def test_each_column_of_circuit_breakers_shows_what_a_breaker_has(scene: Scene, prompt: Prompt) -> None:
    policy = BreakerPolicy(threshold=2, cooldown_s=60, probes=2)
    scene.run(Report(name="search", policy=policy, failures=2))
    opened_at = scene.now
    half_opened_at = scene.later(61)
    scene.run(Admit(name="search", policy=policy))
    updated_at = scene.later(1)
    scene.run(Report(name="search", policy=policy, successes=1))
    assert prompt.execute("select * from circuit_breakers").fetchall() == [
        {
            "service_name": "search",
            "state": "half_open",
            "failure_count": 2,
            "success_count": 1,
            "last_failure_at": opened_at,
            "opened_at": opened_at,
            "half_opened_at": half_opened_at,
            "updated_at": updated_at,
        }
    ]


@pytest.mark.requirement("L20", "L1")
def test_a_job_that_failed_stays_failed_until_it_runs_again_whatever_it_waits_for(scene: Scene, prompt: Prompt) -> None:
    """The document's first troubleshooting query, in its own case: the external service is down."""

    def statuses() -> dict[object, object]:
        rows = prompt.execute("select job_id, status from jobs").fetchall()
        return {row["job_id"]: row["status"] for row in rows}

    def failures() -> int:
        counted = [row["failures"] for row in prompt.execute(DOCUMENTED["recent failures by type"].encode())]
        return sum(counted)  # type: ignore[arg-type]

    scene.now = datetime.now(UTC) - timedelta(minutes=30)
    ids = [receipt.id for receipt in scene.put_many(3, type="webhook")]
    worker = scene.hire(lease_s=1e6)
    leases = scene.claim(worker, 3)
    scene.settle(worker, *(retried(lease, delay_s=2) for lease in leases))
    assert set(statuses().values()) == {"failed"}
    scene.later(3)
    scene.promote()
    assert (set(statuses().values()), failures()) == ({"failed"}, 3), "it is due again, and its queue is paused"
    [first, *_] = scene.claim(worker, 1)
    scene.settle(worker, snoozed(first, delay_s=60))
    assert (set(statuses().values()), failures()) == ({"failed"}, 3), "a breaker has put it off"
    scene.prefetch(worker, 1)
    assert set(statuses().values()) == {"failed"}, "a worker has it, and has not begun"
    [again] = scene.claim(scene.hire(lease_s=1e6), 1)
    assert statuses()[again.id] == "processing"
    health = prompt.execute("select type, status, count from job_queue_health order by status").fetchall()
    assert health == [
        {"type": "webhook", "status": "failed", "count": 2},
        {"type": "webhook", "status": "processing", "count": 1},
    ]
    assert set(statuses()) == set(ids)


@pytest.mark.requirement("L20", "L5", "L16")
def test_every_documented_select_finds_what_it_is_for(scene: Scene, prompt: Prompt) -> None:
    story = story_of(scene)
    found = {name: prompt.execute(select.encode()).fetchall() for name, select in DOCUMENTED.items()}
    health = {(row["type"], row["status"]): row for row in found["queue health"]}
    assert {state: row["count"] for state, row in health.items()} == {
        ("flaky", "failed"): 2,
        ("mail.send", "dead"): 1,
        ("report", "pending"): 1,
        ("report", "completed"): 1,
        ("slow", "processing"): 1,
    }
    assert health["report", "completed"]["average_duration_s"] == 5
    assert health["report", "completed"]["oldest_created_at"] == story.began_at
    assert health["flaky", "failed"]["latest_at"] == story.failed_at
    assert found["stuck jobs"] == [
        {
            "id": story.slow.seq,
            "type": "slow",
            "status": "processing",
            "attempts": 0,
            "created_at": story.began_at,
            "started_at": story.began_at,
        }
    ]
    assert found["recent failures by type"] == [{"type": "flaky", "failures": 2, "latest_failure": story.failed_at}]
    assert found["open breakers"] == [
        {"service_name": "search", "state": "open", "failure_count": 2, "last_failure_at": story.failed_at}
    ]
    [letter] = found["unacknowledged dead letters"]
    assert (letter["id"], letter["acknowledged"], letter["died_at"]) == (story.dead.seq, False, story.began_at)
    assert found["dead letters by type"] == [
        {
            "id": story.dead.seq,
            "job_type": "mail.send",
            "error_message": letter["error_message"],
            "died_at": story.began_at,
        }
    ]
    assert [(row["id"], row["type"], row["status"], row["completed_at"]) for row in found["a trace"]] == [
        (story.slow.seq, "slow", "processing", None),
        (story.child.seq, "report", "pending", None),
    ]
    assert found["parents and children"] == [
        {"parent_id": story.slow.seq, "parent_type": "slow", "child_id": story.child.seq, "child_type": "report"}
    ]
    scene.run(Acknowledge(scope=ALL_TENANTS, id=story.dead.seq, by="ops"))
    assert prompt.execute(DOCUMENTED["unacknowledged dead letters"].encode()).fetchall() == []


@pytest.mark.requirement("L20", "L13")
def test_metrics_have_a_row_for_each_attempt_and_count_its_wait_from_when_it_was_due(
    scene: Scene, prompt: Prompt
) -> None:
    waited = scene.put(type="waited")
    worker = scene.hire(lease_s=1e6)
    ended: list[datetime] = []
    scene.later(3)
    for ends in (
        lambda lease: retried(lease, delay_s=60),
        lambda lease: snoozed(lease, delay_s=30),
        crashed,
        completed,
    ):
        [lease] = scene.claim(worker)
        ended.append(scene.later(2))
        scene.settle(worker, ends(lease))
        scene.later(0 if ends is crashed else 64)
        scene.promote()
    rows = prompt.execute(
        "select id, job_id, attempt, status, duration_ms, queue_time_ms, recorded_at from job_metrics "
        "where job_type = 'waited' order by attempt"
    ).fetchall()
    assert [(row["attempt"], row["status"], row["duration_ms"], row["queue_time_ms"]) for row in rows] == [
        (1, "failed", 2000, 3000),
        (2, "snoozed", 2000, 4000),
        (3, "lost", 2000, 34000),
        (4, "completed", 2000, 36000),  # due again as before: it waits since then
    ]
    assert {row["job_id"] for row in rows} == {waited.id}
    assert [row["recorded_at"] for row in rows] == ended
    everything = prompt.execute("select count(*) as n, count(distinct id) as ids from job_metrics").fetchone()
    assert everything is not None
    assert everything["n"] == everything["ids"] >= 4


@pytest.mark.requirement("L20")
def test_every_statement_of_our_page_runs_as_printed_and_finds_rows(scene: Scene, prompt: Prompt) -> None:
    story = story_of(scene)
    page = (Path(__file__).parents[2] / "docs/operate/sql-views.md").read_text()
    statements = re.findall(r"^(?:select|update) .*?;$", page, re.MULTILINE)
    assert len(statements) == 14
    stuck, failures, letters, search, *changes = statements
    cancel, dead = changes[-2:]
    [row] = prompt.execute(stuck).fetchall()
    assert (row["id"], row["type"], row["started_at"]) == (story.slow.seq, "slow", story.began_at)
    [row] = prompt.execute(failures).fetchall()
    assert (row["type"], row["count"], row["max"]) == ("flaky", 2, story.failed_at)
    [row] = prompt.execute(letters).fetchall()
    assert (row["id"], row["job_type"], row["died_at"]) == (story.dead.seq, "mail.send", story.began_at)
    scene.put(type="mail.send", payload='{"to": 7, "cc": null}')
    [row] = prompt.execute(search).fetchall()
    assert row["jsonb_pretty"] == '{\n    "cc": null,\n    "to": 7\n}'
    [enqueue] = re.findall(r"`(select .*?;)`", page)
    [row] = prompt.execute(enqueue).fetchall()
    assert row["enqueue_v1"]["receipts"][0]["disposition"] == "created"  # type: ignore[index]
    doomed = scene.job(id=UUID(re.findall(r'"id": "([^"]+)"', cancel)[0]), tenant="acme")
    scene.enqueue(doomed)
    [row] = prompt.execute(cancel).fetchall()
    assert row["cancel_v1"]["job"]["status"] == "cancelled"  # type: ignore[index]
    [row] = prompt.execute(dead).fetchall()
    assert [one["id"] for one in row["page_dead_letters_v1"]["dead_letters"]] == [story.dead.seq]  # type: ignore[index]
    for change in changes[:-2]:
        one = scene.put(type="report").seq
        if change.startswith("update dead_letter_jobs"):
            one = scene.dead(type="letter").seq
        assert prompt.execute(re.sub(r"\bid = 6\b", f"id = {one}", change)).rowcount >= 1, change


@pytest.mark.requirement("L20")
@pytest.mark.parametrize("odd", [r'{"a": "\u0000"}', r'{"a": "\ud800"}', '{"a": 1e999999}'])
def test_one_odd_payload_put_in_by_hand_fails_no_listing(scene: Scene, prompt: Prompt, odd: str) -> None:
    scene.put(type="odd")
    prompt.execute("update job set payload = %s", (odd,))
    assert prompt.execute("select payload from jobs").fetchall() == [{"payload": odd}]
    assert prompt.execute("update jobs set status = 'dead'").rowcount == 1
    assert prompt.execute("select original_job->>'payload' as payload from dead_letter_jobs").fetchall() == [
        {"payload": odd}
    ]
