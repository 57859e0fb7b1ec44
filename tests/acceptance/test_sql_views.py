"""What operators type at a PostgreSQL prompt: every SELECT of the async-jobs document runs as printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import psycopg
import pytest

from fairlane.core.breaker import BreakerPolicy
from fairlane.core.job import Lease
from fairlane.core.ops import ALL_TENANTS, Acknowledge, Receipt, Report
from fairlane.stores.postgres import PostgresStore
from fairlane.testing.conformance.samples import completed, crashed, retried, snoozed
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
COLUMNS = {
    "jobs": (
        "id type payload status priority attempts max_attempts scheduled_at run_at started_at completed_at error_message last_error "
        "last_error_at correlation_id parent_job_id created_by dedup_key created_at updated_at"
    ),
    "dead_letter_jobs": "id original_job error_message error_details died_at acknowledged acknowledged_by acknowledged_at",
    "circuit_breakers": "service_name state failure_count success_count last_failure_at opened_at half_opened_at updated_at",
    "job_metrics": "id job_type status duration_ms queue_time_ms recorded_at",
    "job_queue_health": "type status",
}


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
def prompt(database: str) -> Iterator[psycopg.Connection[dict[str, object]]]:
    with psycopg.connect(database, autocommit=True, row_factory=psycopg.rows.dict_row) as conn:
        conn.execute("set search_path = fairlane, public")
        yield conn


@pytest.mark.requirement("L20", "L1")
@pytest.mark.parametrize("view", COLUMNS)
def test_a_view_has_the_columns_of_the_document(prompt: psycopg.Connection[dict[str, object]], view: str) -> None:
    found = prompt.execute(f"select * from {view} limit 0".encode()).description
    assert found is not None
    assert set(COLUMNS[view].split()) <= {column.name for column in found}


@pytest.mark.requirement("L20", "L5", "L16")
def test_every_documented_select_finds_what_it_is_for(
    scene: Scene, prompt: psycopg.Connection[dict[str, object]]
) -> None:
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
    scene: Scene, prompt: psycopg.Connection[dict[str, object]]
) -> None:
    waited = scene.put(type="waited")
    worker = scene.hire(lease_s=1e6)
    scene.later(3)
    for ends in (
        lambda lease: retried(lease, delay_s=60),
        lambda lease: snoozed(lease, delay_s=30),
        crashed,
        completed,
    ):
        [lease] = scene.claim(worker)
        scene.later(2)
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
    everything = prompt.execute("select count(*) as n, count(distinct id) as ids from job_metrics").fetchone()
    assert everything is not None
    assert everything["n"] == everything["ids"] >= 4


@pytest.mark.requirement("L20")
def test_every_select_of_our_page_runs_as_printed_and_finds_rows(
    scene: Scene, prompt: psycopg.Connection[dict[str, object]]
) -> None:
    story = story_of(scene)
    page = (Path(__file__).parents[2] / "docs/operate/sql-views.md").read_text()
    stuck, letters, enqueue, cancel, dead = re.findall(r"select .*?;(?=\n|`)", page)
    [row] = prompt.execute(stuck).fetchall()
    assert (row["id"], row["type"], row["started_at"]) == (story.slow.seq, "slow", story.began_at)
    [row] = prompt.execute(letters).fetchall()
    assert (row["id"], row["job_type"], row["died_at"]) == (story.dead.seq, "mail.send", story.began_at)
    [row] = prompt.execute(enqueue).fetchall()
    assert row["enqueue_v1"]["receipts"][0]["disposition"] == "created"  # type: ignore[index]
    doomed = scene.job(id=UUID(re.findall(r'"id": "([^"]+)"', cancel)[0]), tenant="acme")
    scene.enqueue(doomed)
    [row] = prompt.execute(cancel).fetchall()
    assert row["cancel_v1"]["job"]["status"] == "cancelled"  # type: ignore[index]
    [row] = prompt.execute(dead).fetchall()
    assert [one["id"] for one in row["page_dead_letters_v1"]["dead_letters"]] == [story.dead.seq]  # type: ignore[index]


@pytest.mark.requirement("L20")
def test_one_odd_payload_put_in_by_hand_fails_no_listing(prompt: psycopg.Connection[dict[str, object]]) -> None:
    prompt.execute(
        "insert into job (id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, enqueued_at, due_at) "
        r"""values (gen_random_uuid(), 'odd', 'system', 'default', 5, 0, '{"a": "\u0000"}', 1, 5, now(), now())"""
    )
    assert prompt.execute("select payload::text as text from jobs where type = 'odd'").fetchall() == [
        {"text": r'{"a": "\u0000"}'}
    ]
    assert prompt.execute("select count(*) as n from dead_letter_jobs").fetchone() is not None
