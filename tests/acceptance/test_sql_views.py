"""What operators type at a PostgreSQL prompt: every SELECT of the async-jobs document runs as printed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from fairlane.core.ops import ALL_TENANTS, Acknowledge
from fairlane.stores.postgres import PostgresStore
from tests.servers.postgres import shared_server
from tests.support.scene import Scene

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


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    dsn = shared_server().create_database("sql_views")
    store = PostgresStore(dsn)
    store.migrator().up()
    store.close()
    yield dsn
    shared_server().drop_database("sql_views")


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
    worker = scene.hire(lease_s=1e6)
    stuck = scene.put(type="slow", correlation_id="user-action-123")
    scene.claim(worker, start=1)
    child = scene.put(type="child", parent_id=stuck.id)
    dead = scene.dead(type="mail.send")
    found = {name: prompt.execute(select.encode()).fetchall() for name, select in DOCUMENTED.items()}
    assert [row["type"] for row in found["stuck jobs"]] == ["slow"]
    assert [row["job_type"] for row in found["dead letters by type"]] == ["mail.send"]
    assert [row["status"] for row in found["a trace"]] == ["processing"]
    assert [row["child_type"] for row in found["parents and children"]] == ["child"]
    assert {(row["type"], row["status"]) for row in found["queue health"]} >= {
        ("slow", "processing"),
        ("child", "pending"),
        ("mail.send", "dead"),
    }
    assert found["open breakers"] == []
    assert child.id != stuck.id
    scene.run(Acknowledge(scope=ALL_TENANTS, id=dead.seq, by="ops"))
    assert prompt.execute(DOCUMENTED["unacknowledged dead letters"].encode()).fetchall() == []


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
