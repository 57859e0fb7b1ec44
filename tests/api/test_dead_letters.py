"""Dead letters as managers work through them: one, many, a whole group."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.testing import run_due
from tests.api.house import DEAD, OWN, ShopHouse

DLQ = "/api/jobs/admin/dlq/"
NOTE = f"note-of-acme {DEAD}"


@pytest.fixture
def house(on_each_store: ShopHouse) -> ShopHouse:
    """All of it on every store."""
    return on_each_store


@pytest.fixture
def manager(house: ShopHouse) -> str:
    return house.token(("staff", "manager"), name="mira")


def letters(house: ShopHouse, count: int) -> list[int]:
    """So many more of acme's that failed alike."""
    bounce = house.app.tasks["mail.bounce"]
    jobs = [bounce.using(tenant=OWN).enqueue(note=NOTE).id for _ in range(count)]
    run_due(house.app)
    return [int(job.seq) for made in jobs if (job := house.app.jobs.get(made)) is not None]


@pytest.mark.requirement("W10", "I7")
def test_the_list_has_the_documents_fields(house: ShopHouse, manager: str) -> None:
    answer = house.call("GET", DLQ, manager, params={"tenant": OWN}).json()
    assert answer["total_count"] == 1
    assert answer["next_cursor"] is None
    [item] = answer["dlq_items"]
    job = house.app.jobs.get(house.own.dead)
    assert job is not None
    wanted = {
        "dlq_id": house.own.letter,
        "category": job.category,
        "job_type": "mail.bounce",
        "status": "pending_review",
        "idempotency_key": "note-of-acme-dead",
        "correlation_id": "note-of-acme-correlation",
        "error_class": "non_retryable",
        "error_message": f"no such address {NOTE}",
        "attempt_count": 1,
        "tenant": OWN,
        "queue": "default",
        "job_id": str(house.own.dead),
        "resolution_notes": None,
        "reprocess_count": 0,
    }
    assert wanted.items() <= item.items()
    assert {"original_created_at", "created_at"} <= item.keys()
    assert "payload" not in item


@pytest.mark.requirement("W10")
def test_the_detail_has_the_payload_and_every_attempt(house: ShopHouse, manager: str) -> None:
    seen = house.call("GET", f"{DLQ}{house.own.letter}/", manager).json()
    assert seen["payload"] == {"note": NOTE}
    assert [attempt["error_type"] for attempt in seen["attempts"]] == ["NonRetryable"]


@pytest.mark.requirement("W10", "W12", "L10")
def test_reprocessing_makes_a_new_job_once_however_often_it_is_clicked(house: ShopHouse, manager: str) -> None:
    path = f"{DLQ}{house.own.letter}/reprocess/"
    first = house.call("POST", path, manager, json={"notes": "Fixed validation issue"}).json()
    assert first == {
        "message": "DLQ item reprocessed successfully",
        "dlq_id": house.own.letter,
        "new_job_id": first["new_job_id"],
        "new_idempotency_key": "note-of-acme-dead_retry_1",
    }
    again = house.call("POST", path, manager).json()
    assert again["new_job_id"] == first["new_job_id"]
    job = house.app.jobs.get(first["new_job_id"])
    assert job is not None
    assert (job.correlation_id, job.payload) == ("note-of-acme-correlation", f'{{"note":"{NOTE}"}}')
    audit = house.app.audit.list(target=f"dead_letter:{house.own.letter}").records
    mira = f"mira (token {house.credential('mira')})"
    assert [(record.action, record.by, record.notes) for record in reversed(audit)] == [
        ("job_dlq_reprocess_requested", mira, "Fixed validation issue"),
        ("job_dlq_reprocess_success", mira, "Fixed validation issue"),
    ]
    listed = house.call("GET", "/api/jobs/audit/", manager, params={"target": f"dead_letter:{house.own.letter}"})
    assert [record["id"] for record in listed.json()["records"]] == [record.id for record in audit]


def test_an_edited_payload_runs_and_the_original_is_kept(house: ShopHouse, manager: str) -> None:
    path = f"{DLQ}{house.own.letter}/"
    bad = house.call("POST", f"{path}reprocess/", manager, json={"payload": {"note": 7}})
    assert (bad.status_code, bad.json()["code"]) == (422, "invalid_arguments")
    done = house.call("POST", f"{path}reprocess/", manager, json={"payload": {"note": "right"}, "delay_s": 60}).json()
    job = house.app.jobs.get(done["new_job_id"])
    assert job is not None
    assert job.payload == '{"note":"right"}'
    assert (job.run_at - job.enqueued_at).total_seconds() == 60
    assert house.call("GET", path, manager).json()["payload"] == {"note": NOTE}


@pytest.mark.requirement("W10", "L10", "I7")
@pytest.mark.parametrize(
    ("act", "status", "by"),
    [("discard", "discarded", "closed_by"), ("resolve", "resolved", "closed_by"),
     ("acknowledge", "pending_review", "acknowledged_by")],
)  # fmt: skip
def test_a_letter_is_closed_or_acknowledged_with_notes(
    house: ShopHouse, manager: str, act: str, status: str, by: str
) -> None:
    answer = house.call("POST", f"{DLQ}{house.own.letter}/{act}/", manager, json={"notes": "seen to"}).json()
    mira = f"mira (token {house.credential('mira')})"
    assert (answer["item"]["status"], answer["item"][by]) == (status, mira)
    record = house.app.audit.list(action=f"job_dlq_{act}").records[0]
    assert (record.by, record.notes) == (mira, "seen to")


def test_what_is_closed_stays_closed(house: ShopHouse, manager: str) -> None:
    house.call("POST", f"{DLQ}{house.own.letter}/discard/", manager)
    again = house.call("POST", f"{DLQ}{house.own.letter}/reprocess/", manager)
    assert (again.status_code, again.json()["code"]) == (409, "invalid_state")


@pytest.mark.requirement("W10")
def test_statistics_count_by_status(house: ShopHouse, manager: str) -> None:
    house.call("POST", f"{DLQ}{house.own.letter}/resolve/", manager)
    counts = house.call("GET", f"{DLQ}statistics/", manager).json()
    assert counts == {"total_count": 2, "pending_review": 1, "retried": 0, "resolved": 1, "discarded": 0}


def test_a_dry_run_counts_and_changes_nothing(house: ShopHouse, manager: str) -> None:
    letters(house, 12)
    before = house.facts()
    body: dict[str, Any] = {
        "act": "discard",
        "where": {"queue": "default", "type": "mail.bounce"},
        "dry_run": True,
        "most": 5,
    }
    counted = house.call("POST", f"{DLQ}many/", manager, json=body).json()
    assert (counted["matched"], counted["total_count"], counted["done"]) == (5, 14, 0)
    assert house.facts() == before


def test_many_are_done_in_bounded_batches(house: ShopHouse, manager: str) -> None:
    letters(house, 12)
    body: dict[str, Any] = {"act": "resolve", "where": {"status": "pending_review"}, "most": 5, "notes": "outage"}
    done = []
    while True:
        answer = house.call("POST", f"{DLQ}many/", manager, json=body).json()
        done.append(answer["done"])
        if answer["next_cursor"] is None:
            break
        body["cursor"] = answer["next_cursor"]
    assert done == [5, 5, 4]
    assert house.app.statistics.counts().dead_letters == {"resolved": 14}


def test_of_a_selection_only_what_cannot_be_done_is_refused(house: ShopHouse, manager: str) -> None:
    some = letters(house, 2)
    house.call("POST", f"{DLQ}{some[0]}/discard/", manager)
    body = {"act": "reprocess", "ids": [*some, 10**9]}
    answer = house.call("POST", f"{DLQ}many/", manager, json=body).json()
    assert (answer["matched"], answer["done"]) == (3, 1)
    assert answer["refused"] == [
        {"id": str(some[0]), "code": "invalid_state"},
        {"id": str(10**9), "code": "dead_letter_not_found"},
    ]


def test_a_bound_for_filters_does_not_bound_a_selection(house: ShopHouse, manager: str) -> None:
    body = {"act": "discard", "ids": letters(house, 3), "most": 2}
    assert house.call("POST", f"{DLQ}many/", manager, json=body).json()["done"] == 3


def test_a_group_that_failed_alike_is_reprocessed_at_a_bounded_rate(house: ShopHouse, manager: str) -> None:
    letters(house, 9)
    groups = house.call("GET", f"{DLQ}groups/", manager).json()["groups"]
    [group] = [group for group in groups if group["fingerprint"] == house.own.fingerprint]
    assert group["count"] >= 10
    answer = house.call(
        "POST", f"{DLQ}groups/{group['fingerprint']}/reprocess/", manager, json={"per_second": 2}
    ).json()
    assert answer["done"] == group["count"]
    made = house.app.jobs.list(status="pending", type="mail.bounce", limit=200).jobs
    due = sorted((job.run_at - job.enqueued_at).total_seconds() for job in made)
    assert due == [index / 2 for index in range(group["count"])]


@pytest.mark.parametrize("route", ["many/", "groups/{}/reprocess/"])
def test_the_rate_holds_over_several_requests(house: ShopHouse, manager: str, route: str) -> None:
    letters(house, 9)
    body: dict[str, Any] = {"per_second": 2, "most": 4}
    if route == "many/":
        body |= {"act": "reprocess", "where": {"fingerprint": house.own.fingerprint}}
    behind = 0
    while True:
        answer = house.call("POST", DLQ + route.format(house.own.fingerprint), manager, json=body).json()
        behind += answer["matched"]
        if answer["next_cursor"] is None:
            break
        body |= {"cursor": answer["next_cursor"], "behind": behind}
    made = house.app.jobs.list(status="pending", type="mail.bounce", limit=200).jobs
    due = sorted((job.run_at - job.enqueued_at).total_seconds() for job in made)
    assert due == [index / 2 for index in range(behind)]
    refused = house.call("POST", DLQ + route.format("f"), manager, json=body | {"behind": 10**10})
    assert refused.status_code == 422


def test_exactly_one_of_ids_and_where(house: ShopHouse, manager: str) -> None:
    for body in ({"act": "discard"}, {"act": "discard", "ids": [1], "where": {}}):
        answer = house.call("POST", f"{DLQ}many/", manager, json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")


@pytest.mark.requirement("L5")
def test_jobs_are_failed_buried_and_retried_by_hand(house: ShopHouse) -> None:
    operator, manager = house.token(("operator",)), house.token(("staff", "manager"))
    jobs = "/api/jobs/"
    failed = house.call(
        "POST",
        f"{jobs}{house.own.running}/fail/",
        operator,
        json={"reason": "External service unavailable", "retry_delay_s": 9},
    ).json()
    assert (failed["status"], failed["last_error"]) == ("failed", "External service unavailable")
    buried = house.call("POST", f"{jobs}{house.own.ready}/bury/", operator, json={"reason": "Permanent"}).json()
    assert buried["status"] == "dead"
    retried = house.call("POST", f"{jobs}{house.own.ready}/retry/", manager).json()
    assert (retried["status"], retried["idempotency_key"]) == ("pending", "note-of-acme-ready_retry_1")
    alive = house.call("POST", f"{jobs}{retried['id']}/retry/", manager)
    assert (alive.status_code, alive.json()["code"]) == (409, "invalid_state")


def test_jobs_that_match_are_cancelled_after_a_dry_run(house: ShopHouse) -> None:
    operator = house.token(("operator",))
    for number in range(7):
        house.app.tasks["mail.send"].using(tenant=OWN, queue="bulk").enqueue(user_id=number)
    body: dict[str, Any] = {"act": "cancel", "where": {"queue": "bulk", "status": ["pending"]}, "dry_run": True}
    assert house.call("POST", "/api/jobs/many/", operator, json=body).json()["matched"] == 7
    body |= {"dry_run": False, "where": {}}
    for path, token in (("/api/jobs/many/", operator), (f"{DLQ}many/", house.token(("staff", "manager")))):
        refused = house.call(
            "POST", path, token, json=body | {"act": "discard" if path != "/api/jobs/many/" else "cancel"}
        )
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_option")
    body["where"] = {"queue": "bulk"}
    assert house.call("POST", "/api/jobs/many/", operator, json=body).json()["done"] == 7
    assert len(house.app.jobs.list(queue="bulk", status="cancelled").jobs) == 7
