"""The listings of the admin paths as they are asked over HTTP: every filter, alone and together, page by page."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from fairlane.core.ids import WorkerId
from fairlane.core.ops import DeadLetterFilter, JobFilter, Renew, Turn, Want
from fairlane.testing import run_due
from tests.api.house import OWN, ShopHouse

DLQ, QUEUE = "/api/jobs/admin/dlq/", "/api/jobs/admin/queue/"


@pytest.fixture
def house(on_each_store: ShopHouse) -> ShopHouse:
    return on_each_store


def list_of(path: str, answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return [job["id"] for job in found["jobs"]] if path == QUEUE else [item["job_id"] for item in found["dlq_items"]]


def hold(house: ShopHouse, queue: str) -> datetime:
    """A worker takes the job of a queue and keeps it; since when, by the store's clock."""
    worker, store = WorkerId(house.app.runtime.new_job_id()), house.app.runtime.store
    store.run(Renew(worker=worker, lease_s=1e6))
    want = Want(lane="any", queues=(queue,), limit=9, start=9, timeout_s=1e6)
    [lease] = store.run(Turn(worker=worker, claim_no=1, wants=(want,))).leases
    return lease.leased_at


def wanted(house: ShopHouse, path: str) -> tuple[str, dict[str, Any]]:
    """A job unlike all others in every field that the listing can be filtered by, and those filters."""
    parent = house.own.done
    house.clock.advance(3600)
    options: Any = {"tenant": OWN, "queue": "bulk", "correlation_id": "order-7", "created_by": "grace"}
    task = house.app.tasks["mail.export"].using(**options, parent=parent, idempotency_key="export-7")
    made = task.enqueue(broken=path == DLQ).job()
    job = str(made.id)
    of_both = {"tenant": OWN, "queue": "bulk", "type": "mail.export", "category": "export", "correlation_id": "order-7"}
    if path == QUEUE:
        began = hold(house, "bulk")
        of_jobs = {
            "status": "processing",
            "created_by": "grace",
            "parent_id": str(parent),
            "idempotency_key": "export-7",
        }
        house.clock.advance(3600)
        later = house.app.tasks["mail.send"].using(tenant=OWN).enqueue(user_id=9).job()
        since = {"enqueued_from": str(made.enqueued_at), "enqueued_before": str(later.enqueued_at)}
        since["started_before"] = str(began + timedelta(seconds=1))
        return job, {**of_both, **of_jobs, **since}
    house.app.queues.pause("default", by="eve")  # Only this job runs.
    run_due(house.app)
    [letter] = [one for one in house.app.dead_letters.list().dead_letters if str(one.job.id) == job]
    house.app.dead_letters.acknowledge(letter.id, by="grace")
    house.app.dead_letters.discard(letter.id, by="grace")
    of_letters = {"status": "discarded", "acknowledged": "true", "fingerprint": letter.fingerprint}
    return job, {**of_both, **of_letters, "error_class": letter.error_class, "error_type": letter.error_type}


@pytest.mark.requirement("W10", "W11", "W1")
@pytest.mark.parametrize(("path", "fields"), [(QUEUE, JobFilter), (DLQ, DeadLetterFilter)], ids=["queue", "dlq"])
def test_every_filter_of_an_admin_listing_selects_over_http(house: ShopHouse, path: str, fields: Any) -> None:
    manager = house.token(("staff", "manager"))
    job, filters = wanted(house, path)
    assert {"statuses" if path == QUEUE and name == "status" else name for name in filters} == {
        "tenant",
        *fields.__struct_fields__,
    }, "a filter that is not asked here"
    everything = list_of(path, house.call("GET", path, manager, params={"limit": 200}))
    shared = {"tenant", "status", "parent_id", "enqueued_from", "enqueued_before", "started_before", "error_class"}
    for name, value in filters.items():
        found = list_of(path, house.call("GET", path, manager, params={name: value, "limit": 200}))
        assert job in found, name
        assert len(found) < len(everything) or name == "error_class", name
        assert name in shared or found == [job], (name, found)
    together = house.call("GET", path, manager, params=filters)
    assert list_of(path, together) == [job]
    if path == DLQ:
        assert together.json()["total_count"] == 1
        grouped = house.call("GET", f"{DLQ}groups/", manager, params=filters).json()["groups"]
        assert [(group["count"], group["type"]) for group in grouped] == [(1, "mail.export")]


@pytest.mark.requirement("W10", "W11")
@pytest.mark.parametrize("path", [QUEUE, DLQ], ids=["queue", "dlq"])
def test_a_filtered_admin_listing_is_read_to_its_end_page_by_page(house: ShopHouse, path: str) -> None:
    manager = house.token(("staff", "manager"))
    export, bounce = house.app.tasks["mail.export"], house.app.tasks["mail.bounce"]
    made: list[str] = []
    for _ in range(5):
        made.append(str(export.using(tenant=OWN, queue="bulk").enqueue(broken=True).id))
        bounce.using(tenant=OWN, queue="bulk").enqueue()
    run_due(house.app)
    seen: list[str] = []
    query: dict[str, Any] = {"category": "export", "status": "dead" if path == QUEUE else "pending_review", "limit": 2}
    sizes: list[int] = []
    while True:
        answer = house.call("GET", path, manager, params=query)
        page = list_of(path, answer)
        seen, sizes = seen + page, [*sizes, len(page)]
        if path == DLQ:
            assert answer.json()["total_count"] == 5
        if answer.json()["next_cursor"] is None:
            break
        query["cursor"] = answer.json()["next_cursor"]
    assert (seen, sizes) == (made[::-1], [2, 2, 1])


@pytest.mark.parametrize("path", [QUEUE, DLQ], ids=["queue", "dlq"])
def test_a_category_that_nobody_uses_lists_nothing_and_a_mistyped_filter_is_refused(
    house: ShopHouse, path: str
) -> None:
    manager = house.token(("staff", "manager"))
    assert list_of(path, house.call("GET", path, manager, params={"category": "nothing"})) == []
    answer = house.call("GET", path, manager, params={"categori": "export"})
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_parameter")
    assert 'Nearest: "category"' in answer.text.replace("\\", "")


@pytest.mark.requirement("Q1")
def test_jobs_are_shown_with_the_label_of_their_priority(house: ShopHouse) -> None:
    manager = house.token(("staff", "manager"))
    job = house.app.tasks["mail.export"].using(tenant=OWN, priority="high").enqueue(broken=False)
    [listed] = [each for each in house.call("GET", QUEUE, manager).json()["jobs"] if each["id"] == str(job.id)]
    whole = house.call("GET", f"{QUEUE}{job.id}/", manager).json()["job"]
    assert (listed["priority"], listed["priority_label"]) == (whole["priority"], whole["priority_label"]) == (0, "high")


@pytest.mark.requirement("Q1", "D18")
def test_the_label_of_a_priority_is_a_name_and_shown_to_everybody(house: ShopHouse) -> None:
    task, viewer = house.app.tasks["mail.export"], house.token(("viewer",), tenant=OWN)
    job = task.using(tenant=OWN, priority="high", headers={"trace": "hidden"}).enqueue(broken=False)
    whole = house.call("GET", f"/api/jobs/{job.id}/", viewer).json()["job"]
    assert (whole["priority_label"], whole["headers"]) == ("high", {"fairlane-priority": "high"})
    [listed] = [each for each in house.call("GET", "/api/jobs/", viewer).json()["jobs"] if each["id"] == str(job.id)]
    assert listed["priority_label"] == "high"


def test_the_explanation_of_a_job_shows_no_payload(house: ShopHouse) -> None:
    job = house.app.tasks["mail.export"].using(tenant=OWN, priority="high").enqueue(broken=False)
    answer = house.call("GET", f"/api/jobs/{job.id}/why/", house.token(("staff", "manager"))).json()
    assert answer["job"]["priority_label"] == "high"
    assert not {"payload", "headers", "result"} & set(answer["job"])
