"""Document W's own list of tests (its section 10) and the order and filters of its queue, through the client and the API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict

import httpx
import pytest

from fairlane import DuplicateJob, Fairlane, InvalidOption, InvalidPayload, NonRetryable, PayloadValidator, current_job
from fairlane.api import create_api
from fairlane.core.ids import JobId

pytestmark = pytest.mark.requirement("W15")

GOOD = {
    "tenant_id": 123,
    "correlation_id": "550e8400-e29b-41d4-a716-446655440000",
    "idempotency_key": "email_fetch_conn_456_msg_789",
    "connection_id": 456,
    "external_message_id": "msg_789",
}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Fairlane]:
    with Fairlane(f"sqlite:///{tmp_path}/jobs.db", profile="development") as app:

        @app.task(name="email_ingestion_fetch", category="ingestion")
        def fetch(connection_id: int, external_message_id: str = "", note: str = "") -> None:
            if connection_id == 0:
                raise NonRetryable("Validation error: invalid payload")
            if connection_id == 1:
                raise ConnectionError("the mail server hung up")

        yield app


def work(app: Fairlane) -> None:
    """A worker, until the queue is empty."""
    with app.running(drain=True):
        pass


def manager(app: Fairlane, method: str, path: str, **request: Any) -> httpx.Response:
    """A manager's request to the API."""
    secret = app.tokens.create("mira", ("staff", "manager"), by="test").secret

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_api(app))
        async with httpx.AsyncClient(transport=transport, base_url="https://api.example.com") as http:
            return await http.request(method, path, headers={"Authorization": f"Bearer {secret}"}, **request)

    return asyncio.run(ask())


# 10.1 Payload validation


@pytest.mark.requirement("W2")
@pytest.mark.parametrize("missing", ["tenant_id", "correlation_id", "idempotency_key"])
def test_10_1_required_fields_are_validated(missing: str) -> None:
    assert PayloadValidator.validate_payload(payload=GOOD, category="ingestion") == (True, [])
    short = {name: value for name, value in GOOD.items() if name != missing}
    is_valid, errors = PayloadValidator.validate_payload(payload=short, category="ingestion")
    assert not is_valid
    assert missing in errors[0]
    alone = {name: GOOD[name] for name in ("tenant_id", "correlation_id", "idempotency_key")}
    assert not PayloadValidator.validate_payload(payload=alone, category="ingestion")[0]


@pytest.mark.requirement("W3")
def test_10_1_sensitive_content_is_detected(app: Fairlane) -> None:
    is_valid, errors = PayloadValidator.validate_payload(payload={**GOOD, "password": "hunter2"}, category="ingestion")
    assert not is_valid
    assert "hunter2" not in str(errors)
    with pytest.raises(InvalidPayload):
        app.tasks["email_ingestion_fetch"].enqueue(connection_id=4, note="4111 1111 1111 1111")
    assert not app.jobs.list().jobs


@pytest.mark.requirement("W4")
def test_10_1_each_category_has_its_own_rules() -> None:
    rules = PayloadValidator(
        required={"ingestion": ["mailbox_id"], "export": ["format"]},
        schemas={"export": TypedDict("Export", {"format": str})},
    )
    for category, extra, missing in [
        ("ingestion", {}, "mailbox_id"),
        ("ingestion", {"mailbox_id": 3}, None),
        ("export", {"mailbox_id": 3}, "format"),
        ("export", {"format": 7}, "format"),
        ("export", {"format": "csv"}, None),
        ("sync", {}, None),
    ]:
        errors = rules.review({**GOOD, **extra}, category).errors
        assert bool(errors) == bool(missing), (category, extra, errors)
        assert all(missing in error for error in errors if missing)
    is_valid, errors = PayloadValidator.validate_payload(
        payload=GOOD, category="ingestion", additional_required=["folder_id"]
    )
    assert not is_valid
    assert "folder_id" in errors[0]
    assert not PayloadValidator.validate_payload(payload=GOOD, category="no such category")[0]


@pytest.mark.requirement("W3")
def test_10_1_a_payload_past_the_limit_is_refused(app: Fairlane) -> None:
    with pytest.raises(InvalidPayload, match="bytes"):
        app.tasks["email_ingestion_fetch"].enqueue(connection_id=4, note="x" * 1_100_000)
    assert not app.jobs.list().jobs


# 10.2 Concurrency


@pytest.mark.requirement("W5")
def test_10_2_a_claim_passes_over_what_another_worker_holds(app: Fairlane) -> None:
    ids = [app.tasks["email_ingestion_fetch"].enqueue(connection_id=number).id for number in (4, 5)]
    claimed = [app.jobs.claim("default", worker=f"worker-{number}") for number in (1, 2, 3)]
    assert [job and job.id for job in claimed] == [*ids, None]


@pytest.mark.requirement("W6")
def test_10_2_an_idempotency_key_is_unique_within_its_tenant(app: Fairlane) -> None:
    task = app.tasks["email_ingestion_fetch"]
    first = task.using(tenant=123, idempotency_key="k").enqueue(connection_id=4)
    again = task.using(tenant=123, idempotency_key="k").enqueue(connection_id=4)
    assert (again.id, again.duplicate) == (first.id, True)
    with pytest.raises(DuplicateJob):
        task.using(tenant=123, idempotency_key="k", on_duplicate="raise").enqueue(connection_id=4)
    assert not task.using(tenant=124, idempotency_key="k").enqueue(connection_id=4).duplicate


@pytest.mark.requirement("W5")
def test_10_2_many_workers_claim_different_jobs(app: Fairlane) -> None:
    task = app.tasks["email_ingestion_fetch"]
    ids = {handle.id for handle in app.enqueue_many([task.bind(connection_id=number) for number in range(4, 44)])}

    def claim_five(number: int) -> list[JobId]:
        claimed = [app.jobs.claim("default", worker=f"worker-{number}") for _ in range(5)]
        return [job.id for job in claimed if job is not None]

    with ThreadPoolExecutor(8) as workers:
        taken = [job for jobs in workers.map(claim_five, range(8)) for job in jobs]
    assert len(taken) == 40
    assert set(taken) == ids


@pytest.mark.requirement("W5")
def test_10_2_the_same_job_is_not_claimed_twice(app: Fairlane) -> None:
    handle = app.tasks["email_ingestion_fetch"].enqueue(connection_id=4)
    with ThreadPoolExecutor(8) as workers:
        taken = list(workers.map(lambda number: app.jobs.claim("default", worker=f"worker-{number}"), range(8)))
    assert [job.id for job in taken if job is not None] == [handle.id]


# 10.3 Dead letters


def dead(app: Fairlane, **options: Any) -> int:
    """The id of the dead letter of a job that cannot succeed."""
    app.tasks["email_ingestion_fetch"].using(tenant=123, **options).enqueue(connection_id=0)
    work(app)
    return int(app.dead_letters.list().dead_letters[0].id)


@pytest.mark.requirement("W8")
def test_10_3_non_retryable_goes_to_the_dead_letters_at_once(app: Fairlane) -> None:
    number = dead(app)
    [item] = manager(app, "GET", "/api/jobs/admin/dlq/").json()["dlq_items"]
    assert (item["dlq_id"], item["error_class"], item["attempt_count"]) == (number, "non_retryable", 1)
    assert item["error_message"] == "Validation error: invalid payload"


@pytest.mark.requirement("W8")
def test_10_3_the_last_attempt_goes_to_the_dead_letters(app: Fairlane) -> None:
    handle = app.tasks["email_ingestion_fetch"].using(max_attempts=1).enqueue(connection_id=1)
    work(app)
    assert handle.status() == "dead"
    [item] = manager(app, "GET", "/api/jobs/admin/dlq/").json()["dlq_items"]
    assert (item["job_id"], item["error_class"]) == (str(handle.id), "transient")


@pytest.mark.requirement("W10")
def test_10_3_reprocessing_makes_a_new_job(app: Fairlane) -> None:
    number = dead(app, idempotency_key="email_fetch_conn_456_msg_789")
    answer = manager(
        app, "POST", f"/api/jobs/admin/dlq/{number}/reprocess/", json={"notes": "safe to reprocess"}
    ).json()
    assert answer["message"] == "DLQ item reprocessed successfully"
    assert answer["dlq_id"] == number
    assert answer["new_idempotency_key"] == "email_fetch_conn_456_msg_789_retry_1"
    new = app.jobs.get(answer["new_job_id"])
    assert new is not None
    assert new.status == "pending"


@pytest.mark.requirement("W10", "W12")
def test_10_3_reprocessing_leaves_its_trail(app: Fairlane) -> None:
    number = dead(app)
    manager(app, "POST", f"/api/jobs/admin/dlq/{number}/reprocess/", json={"notes": "Fixed upstream data issue"})
    page = manager(app, "GET", f"/api/jobs/audit/?target=dead_letter:{number}").json()
    assert [
        (record["action"], record["by"].split(" (token ")[0], record["notes"]) for record in reversed(page["records"])
    ] == [
        ("job_dlq_reprocess_requested", "mira", "Fixed upstream data issue"),
        ("job_dlq_reprocess_success", "mira", "Fixed upstream data issue"),
    ]
    closed = dead(app)
    manager(app, "POST", f"/api/jobs/admin/dlq/{closed}/discard/")
    refused = manager(app, "POST", f"/api/jobs/admin/dlq/{closed}/reprocess/", json={"notes": "once more"})
    assert refused.status_code == 409
    page = manager(app, "GET", f"/api/jobs/audit/?target=dead_letter:{closed}").json()
    assert [(record["action"], record["notes"]) for record in page["records"]] == [
        ("job_dlq_reprocess_requested", "once more"),
        ("job_dlq_discard", None),
    ]


# 3, 4 and 7.4 The queue


@pytest.mark.requirement("W14", "D5")
def test_4_priority_comes_first_then_every_firm_gets_its_turn_then_due_time_and_age(tmp_path: Path) -> None:
    ran: list[tuple[str, int]] = []
    with Fairlane(f"sqlite:///{tmp_path}/order.db") as app:

        @app.task(name="fetch")
        def fetch(number: int) -> None:
            ran.append((current_job().tenant, number))

        for number in range(4):
            fetch.using(tenant="flood").enqueue(number)
        fetch.using(tenant="small").enqueue(10)
        fetch.using(tenant="flood", priority="high").enqueue(11)
        with app.running(slots=1, drain=True):
            pass
    assert ran[0] == ("flood", 11)
    assert ("small", 10) in ran[1:3], "not behind the flood"
    assert [number for tenant, number in ran[1:] if tenant == "flood"] == [0, 1, 2, 3]


@pytest.mark.requirement("W1", "W11")
def test_7_4_the_queue_is_listed_and_counted_by_category_and_state(app: Fairlane) -> None:
    @app.task(name="export_documents", category="export")
    def export(document_id: int) -> None: ...

    export.using(tenant=123).enqueue(document_id=7)
    app.tasks["email_ingestion_fetch"].using(tenant=123).enqueue(connection_id=4)
    with pytest.raises(InvalidOption, match="maintenance"):
        app.task(name="other", category="nonsense")(lambda: None)
    [job] = manager(app, "GET", "/api/jobs/admin/queue/?category=export").json()["jobs"]
    assert (job["type"], job["tenant"], job["status"]) == ("export_documents", "123", "pending")
    work(app)
    counted = manager(app, "GET", "/api/jobs/admin/queue/statistics/").json()
    assert counted["completed"] == 2
