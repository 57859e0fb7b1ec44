"""What may be sent: sizes, depths, pages; what an error says, and what it never says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fairlane.alerts import register_sinks
from fairlane.alerts.sinks import WEBHOOK
from fairlane.api.problems import _STATUSES
from fairlane.core.audit_chain import seal
from fairlane.core.ops import ReadUnsealed, SealAudit
from fairlane.errors import InvalidState, UnknownTask
from tests.api.house import EVERY_ROLE, FOREIGN, LIVE, OWN, ShopHouse, shop

SECRET = "canary-secret-hunter2"
NOON = "2026-01-01T12:00:00Z"


def enqueue(house: ShopHouse, **body: Any) -> Any:
    return house.call("POST", "/api/jobs/", house.token(("operator",)), json={"type": "mail.send", **body})


def test_a_job_enqueued_over_http_goes_by_the_applications_rules(house: ShopHouse) -> None:
    answer = enqueue(house, payload={"user_id": 9}, tenant=OWN, priority="high", delay_s=30, refs={"order": 4})
    assert answer.status_code == 201
    job = house.app.jobs.get(answer.json()["id"])
    assert job is not None
    assert (job.type, job.tenant, job.priority, job.created_by, job.refs) == ("mail.send", OWN, 0, "ada", {"order": 4})
    assert json.loads(job.payload) == {"user_id": 9}


@pytest.mark.requirement("W6")
def test_a_taken_key_is_answered_with_the_job_that_holds_it(house: ShopHouse) -> None:
    first = enqueue(house, payload={"user_id": 1}, idempotency_key="k").json()
    again = enqueue(house, payload={"user_id": 1}, idempotency_key="k")
    assert (again.status_code, again.json()) == (200, {"id": first["id"], "duplicate": True})
    raised = enqueue(house, payload={"user_id": 1}, idempotency_key="k", on_duplicate="raise")
    assert raised.status_code == 409
    assert raised.headers["content-type"] == "application/problem+json"
    assert (raised.json()["code"], raised.json()["existing_job_id"]) == ("duplicate_job", first["id"])


@pytest.mark.requirement("D24")
def test_a_key_is_given_as_text_or_with_what_is_said_of_it(house: ShopHouse) -> None:
    options = {"payload": {"user_id": 1}, "tenant": OWN, "key": "import:42"}
    first = enqueue(house, **options).json()
    again = enqueue(house, **options, on_conflict="discard")
    assert (again.status_code, again.json()) == (200, {"id": first["id"], "duplicate": True})
    refused = enqueue(house, **options, on_conflict="discard", on_duplicate="raise")
    assert (refused.status_code, refused.json()["code"]) == (409, "duplicate_job")
    assert "'import:42'" in refused.json()["detail"]
    key = {"value": "import:43", "running": 3, "rate": "10/s", "on_conflict": "replace"}
    assert enqueue(house, **{**options, "key": key}).status_code == 201
    for wrong in ({"key": {"value": "import:44", "ordered": True, "running": 2}}, {"key": None, "ordered": True}):
        assert enqueue(house, **{**options, **wrong}).status_code == 422, wrong
    found = house.call("GET", "/api/jobs/limits/keys/?name=import", house.token(("viewer",))).json()["keys"]
    assert [(use["key"], use["running"], use["rate"], use["waiting"]) for use in found] == [
        ("import:42", 1, None, 1),
        ("import:43", 3, "10/s", 1),
    ]
    why = house.call("GET", f"/api/jobs/{first['id']}/why/", house.token(("viewer",))).json()
    assert (why["place"], why["key_ahead"], why["key"]["key"]) == ("held", 0, "import:42")


@pytest.mark.requirement("D24")
def test_who_is_bound_to_a_tenant_gives_no_key_to_a_task_that_has_its_own() -> None:
    app = shop()

    @app.task(name="mail.sync", key="user_id")
    def sync(user_id: int) -> None: ...

    house = ShopHouse(app)
    try:
        bound = house.token(("operator",), tenant=OWN)
        for task, status in (("mail.send", 201), ("mail.sync", 422)):
            body = {"type": task, "payload": {"user_id": 1}, "key": "user:2"}
            assert house.call("POST", "/api/jobs/", bound, json=body).status_code == status
        del body["key"]
        answer = house.call("POST", "/api/jobs/", bound, json=body)
        assert house.call("GET", f"/api/jobs/{answer.json()['id']}/", bound).json()["job"]["key"] == "user:1"
    finally:
        house.close()


@pytest.mark.requirement("Q6")
def test_a_full_store_answers_429_and_says_when_to_come_again() -> None:
    house = ShopHouse(shop(capacity=3))
    try:
        statuses = [enqueue(house, payload={"user_id": 1}) for _ in range(5)]
        assert [answer.status_code for answer in statuses] == [201, 201, 201, 429, 429]
        assert statuses[-1].json()["code"] == "queue_full"
        assert int(statuses[-1].headers["retry-after"]) >= 1
    finally:
        house.close()


@pytest.mark.requirement("Q15")
def test_a_tenant_that_enqueues_too_fast_is_told_to_wait(house: ShopHouse) -> None:
    house.app.limits.set(tenant=OWN, enqueue_rate="2/min")
    house.clock.advance(5.0)  # by then every process has heard of it
    answers = [enqueue(house, payload={"user_id": 1}, tenant=OWN) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 429]
    assert answers[-1].json()["code"] == "enqueue_rate_reached"
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60


@pytest.mark.requirement("I2")
def test_a_tenants_full_queue_answers_429(house: ShopHouse) -> None:
    house.app.limits.set(tenant=OWN, waiting=1, when_full="reject")
    answer = enqueue(house, payload={"user_id": 1}, tenant=OWN)
    assert (answer.status_code, answer.json()["code"]) == (429, "tenant_limit_reached")


@pytest.mark.parametrize("name", ["fairlane-priority", "Fairlane-schedule", "fairlane-"])
def test_a_header_of_our_own_cannot_be_given(house: ShopHouse, name: str) -> None:
    before = house.app.jobs.list()
    answer = enqueue(house, payload={"user_id": 1}, tenant=OWN, headers={name: "high"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")
    assert 'none that begins with "fairlane-"' in answer.json()["detail"]
    assert house.app.jobs.list() == before


def test_every_status_of_an_error_is_declared_and_documented(house: ShopHouse) -> None:
    declared = house.api.openapi()["paths"]["/api/jobs/"]["post"]["responses"]
    statuses = {status for _, status in _STATUSES if status != 500}
    assert {str(status) for status in statuses} <= set(declared)
    table = (Path(__file__).parents[2] / "docs/guides/http-api.md").read_text().partition("## Problems")[2]
    documented = re.findall(r"\d+", " ".join(re.findall(r"(?m)^\| ([\d, ]+) \|", table)))
    assert {str(status) for status in statuses} <= set(documented)


@pytest.mark.requirement("L15", "D21")
@pytest.mark.parametrize(
    "path", ["/api/jobs/queues/default/pause/", "/api/jobs/queues/default/drain/", "/api/jobs/pauses/"]
)
def test_what_refuses_new_jobs_answers_423_with_the_reason(house: ShopHouse, path: str) -> None:
    body = {"refuse": True, "notes": "replica is down"}
    body |= {"kind": "queue", "name": "default"} if path.endswith("pauses/") else {}
    assert house.call("POST", path, house.token(("operator",)), json=body).status_code == 200
    answer = enqueue(house, payload={"user_id": 1}, tenant=OWN)
    assert (answer.status_code, answer.json()["code"]) == (423, "queue_paused")
    assert "replica is down" in answer.json()["detail"]
    house.app.queues.resume("default")
    assert enqueue(house, payload={"user_id": 1}, tenant=OWN).status_code == 201


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"type": "no.such"}, "unknown_task"),
        ({"type": "mail.send", "payload": {}}, "invalid_arguments"),
        ({"type": "mail.send", "payload": {"user_id": SECRET}}, "invalid_arguments"),
        ({"type": "mail.send", "payload": {"user_id": 1, "self": 2}}, "invalid_arguments"),
        ({"type": "mail.send", "payload": {"user_id": 1, "note": {"password": SECRET}}}, "invalid_payload"),
        ({"type": "mail.send", "payload": {"user_id": 1}, "priority": "urgent"}, "unknown_priority"),
        ({"type": "mail.send", "payload": {"user_id": 1}, "colour": SECRET}, "invalid_request"),
        ({"type": "mail.send", "payload": SECRET}, "invalid_request"),
        ({"type": "mail.send", "payload": {"user_id": 1}, "run_at": "0001-01-01T00:00:00+14:00"}, "invalid_request"),
        ({"type": "mail.send", "payload": {"user_id": 1}, "headers": {"a": SECRET + "\x00"}}, "invalid_request"),
    ],
)
def test_bad_input_is_refused_without_repeating_it(house: ShopHouse, body: dict[str, Any], code: str) -> None:
    token = house.token(("operator",))
    before = house.facts()
    answer = house.call(
        "POST", "/api/jobs/", token, content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    if "\\u0000" in json.dumps(body):
        code = "malformed_body"
    assert answer.json()["code"] == code
    assert answer.status_code in {400, 422}
    assert SECRET not in answer.text
    assert house.facts() == before


def send(house: ShopHouse, content: bytes, **headers: str) -> Any:
    given = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return house.call("POST", "/api/jobs/", house.token(("operator",)), content=content, headers=given)


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"[" * 100_000, 400, "malformed_body"),
        (b'{"type":' + b'{"a":' * 90 + b"1" + b"}" * 91, 400, "malformed_body"),
        (b'{"type":"mail.send","payload":{"user_id":1,"user_id":2}}', 400, "malformed_body"),
        (b'{"type":"mail.send","payload":{"user_id":' + b"9" * 5000 + b"}}", 400, "malformed_body"),
        (b'{"type":"mail.send","payload":{"note":"\\ud800"}}', 400, "malformed_body"),
        (b'{"type":"mail.send","payload":{"user_id":NaN}}', 400, "malformed_body"),
        (b"\xff\xfe", 400, "malformed_body"),
        (b"{", 400, "malformed_body"),
        (b" " * 1_200_000, 413, "body_too_large"),
        (b"", 422, "invalid_request"),
    ],
)
def test_a_body_is_looked_at_before_it_is_parsed(house: ShopHouse, content: bytes, status: int, code: str) -> None:
    answer = send(house, content)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_a_packed_body_is_not_unpacked(house: ShopHouse) -> None:
    assert send(house, b"\x1f\x8b", Content_Encoding="gzip").status_code == 415


@pytest.mark.parametrize("media_type", ["application/x-www-form-urlencoded", "text/plain", "", "application/jsonp"])
def test_a_body_that_is_not_said_to_be_json_is_refused_with_what_to_say(house: ShopHouse, media_type: str) -> None:
    answer = send(house, b'{"type":"mail.send","payload":{"user_id":1}}', Content_Type=media_type)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert "Content-Type: application/json" in answer.json()["detail"]


def test_nobody_writes_fairlanes_own_alerts_for_it() -> None:
    """Mail and signed webhooks are jobs of tasks of our own, known wherever a worker runs in the same process."""
    house = ShopHouse(shop(alerts={"webhooks": {"pager": {"url": "https://hooks.example/", "secret": "s" * 16}}}))
    app = house.app
    try:
        register_sinks(app)
        token = house.token(EVERY_ROLE)
        answer = house.call("POST", "/api/jobs/", token, json={"type": WEBHOOK, "payload": {}})
        assert (answer.status_code, answer.json()["code"]) == (422, "unknown_task")
        for rules in (app.runtime, None):
            with pytest.raises(UnknownTask):
                app.tasks.enqueue(WEBHOOK, {}, rules=rules)
            with pytest.raises(UnknownTask):
                app.tasks.call(WEBHOOK, {}, rules=rules)
        assert app.jobs.list().jobs == ()

        alert = {"status": "fired", "rule": "r", "about": "", "severity": "critical", "value": 1.0, "threshold": 1.0}
        forged = {
            "sink": "pager",
            "message": {**alert, "since": NOON, "at": NOON, "text": "FORGED: restart everything"},
        }
        job = app.tasks[WEBHOOK].enqueue(**forged)
        app.jobs.bury(job, "the receiver is gone")
        [letter] = app.dead_letters.list().dead_letters
        answer = house.call("POST", f"/api/jobs/admin/dlq/{letter.id}/reprocess/", token, json={"payload": forged})
        assert (answer.status_code, answer.json()["code"]) == (409, "invalid_state")
        assert "reprocess it unedited" in answer.json()["detail"]
        with pytest.raises(InvalidState, match="only Fairlane writes"):
            app.dead_letters.reprocess(letter, payload=forged)
        assert len(app.jobs.list().jobs) == 1
        again = house.call("POST", f"/api/jobs/admin/dlq/{letter.id}/reprocess/", token, json={})
        assert again.status_code == 200, "as it is, it may be sent again"
    finally:
        house.close()


def test_a_body_in_pieces_is_cut_off_as_soon_as_it_is_too_large(house: ShopHouse) -> None:
    read = 0

    async def pieces() -> Any:
        nonlocal read
        while True:
            read += 65_536
            yield b" " * 65_536

    answer = house.call(
        "POST", "/api/jobs/", house.token(("operator",)), content=pieces(), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 413
    assert read < 2_000_000


def test_a_body_is_not_read_before_its_sender_is_known(house: ShopHouse) -> None:
    async def pieces() -> Any:
        raise AssertionError("read before the door")
        yield b""

    answer = house.call("POST", "/api/jobs/", content=pieces(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=201", "limit=x", "cursor=-1", "cursor=" + "9" * 19, "cursor=abc", "status=odd", "queue=a%20b",
     "enqueued_from=2026-01-01", "enqueued_from=0001-01-01T00:00:00%2B23:00", "parent_id=1", "created_by=%00"],
)  # fmt: skip
def test_a_filter_out_of_range_is_refused(house: ShopHouse, query: str) -> None:
    answer = house.call("GET", f"/api/jobs/?{query}", house.token(("viewer",)))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert len(answer.json()["errors"]) == 1


@pytest.mark.requirement("W11", "L5", "L16")
def test_jobs_are_listed_by_filter_and_page_by_page(house: ShopHouse) -> None:
    viewer = house.token(("viewer",))
    expected = {str(job.id) for job in house.app.jobs.list(limit=200).jobs}
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = house.call(
            "GET", "/api/jobs/", viewer, params={"limit": 2, **({"cursor": cursor} if cursor else {})}
        ).json()
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == len(expected)
    assert set(seen) == expected
    params = {"status": ["pending", "dead"], "correlation_id": "note-of-acme-correlation"}
    found = house.call("GET", "/api/jobs/", viewer, params=params).json()["jobs"]
    assert {job["id"] for job in found} == {str(house.own.ready), str(house.own.dead)}
    assert "payload" not in found[0]
    parent = house.call("GET", f"/api/jobs/{house.own.done}/", house.token(("operator",))).json()
    assert [child["id"] for child in parent["children"]] == [str(house.own.ready)]
    assert parent["job"]["payload"] == {"user_id": 1, "note": f"note-of-acme {LIVE}"}
    assert [attempt["outcome"] for attempt in parent["attempts"]] == ["completed"]


def test_an_unknown_path_and_a_wrong_method_are_problems_too(house: ShopHouse) -> None:
    for method, path, status in (("GET", "/api/nowhere", 404), ("DELETE", "/api/jobs/", 405), ("GET", "/nowhere", 404)):
        answer = house.call(method, path, house.token(EVERY_ROLE))
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == status


def test_a_path_without_its_last_slash_means_the_same(house: ShopHouse) -> None:
    operator = house.token(("operator",))
    assert house.call("GET", "/api/jobs", operator).status_code == 200
    assert house.call("POST", f"/api/jobs/{house.own.ready}/cancel", operator, json={"notes": "x"}).status_code == 200


def test_probes_need_no_credentials_and_say_when_the_store_is_away() -> None:
    house = ShopHouse()
    assert house.call("GET", "/readyz").status_code == 200
    house.app.close()
    assert house.call("GET", "/healthz").status_code == 200
    away = house.call("GET", "/readyz")
    assert (away.status_code, away.json()["code"]) == (503, "store_closed")
    assert "retry-after" in away.headers
    house.runner.close()


def test_many_of_one_tenant_are_meant_by_its_name(house: ShopHouse) -> None:
    def counted(path: str, act: str, tenant: str, bound: str | None = None) -> Any:
        body = {"act": act, "where": {"tenant": tenant}, "dry_run": True}
        return house.call("POST", path, house.token(EVERY_ROLE, tenant=bound), json=body)

    for path, act in (("/api/jobs/many/", "cancel"), ("/api/jobs/admin/dlq/many/", "resolve")):
        found = {tenant: counted(path, act, tenant).json()["matched"] for tenant in (OWN, FOREIGN, "nobody")}
        assert found[OWN] == found[FOREIGN] > 0
        assert found["nobody"] == 0
        assert counted(path, act, OWN, bound=OWN).json()["matched"] == found[OWN]
        refused = counted(path, act, FOREIGN, bound=OWN)
        assert (refused.status_code, refused.json()["code"]) == (404, "tenant_not_found")


def test_a_kept_link_of_the_audit_that_is_gone_or_another_is_told(house: ShopHouse) -> None:
    def verified(**query: Any) -> Any:
        return house.call("GET", "/api/jobs/audit/verify/", house.token(("viewer",)), params=query)

    waiting = house.app.runtime.access.run(ReadUnsealed())
    links = seal(None, waiting.records[:3])
    assert house.app.runtime.access.run(SealAudit(links=links)).sealed
    assert verified().json()["links"] == 3
    behind = verified(after=2, hash=links[1].hash).json()
    assert (behind["is_whole"], behind["links"], behind["last"]) == (True, 1, links[2].hash)
    assert verified(after=3, hash=links[2].hash).json()["is_whole"]
    assert verified(after=9, hash=links[2].hash).json()["broken"]["why"] == "gap"
    assert verified(after=3, hash="a" * 64).json()["broken"]["why"] == "link_changed"
    assert verified(after=3).status_code == verified(hash="a" * 64).status_code == 422


def test_a_mistyped_filter_is_refused_and_lists_nothing(house: ShopHouse) -> None:
    answer = house.call("GET", "/api/jobs/?staus=dead", house.token(("viewer",)))
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_parameter")
    [error] = answer.json()["errors"]
    assert (error["where"], 'Nearest: "status"' in error["message"]) == ("query.staus", True)


@pytest.mark.parametrize(
    ("rule", "hint"),
    [("queue_backlock", "queue_backlog"), ("store_unreachable", "enabled = false")],
    ids=["there is none", "it is told while nothing can be read"],
)
def test_a_rule_that_heeds_no_silence_cannot_be_silenced(house: ShopHouse, rule: str, hint: str) -> None:
    token = house.token(("operator",))
    answer = house.call("POST", f"/api/jobs/alerts/{rule}/silence/", token, json={"for_s": 60})
    assert answer.status_code == 422
    assert hint in answer.json()["detail"]
    assert house.call("GET", "/api/jobs/alerts/", token).json()["silences"] == []


def bound(house: ShopHouse, **body: Any) -> Any:
    given = {"type": "mail.send", "payload": {"user_id": 1}, **body}
    return house.call("POST", "/api/jobs/", house.token(("operator",), OWN), json=given)


@pytest.mark.parametrize(
    ("body", "option", "expected"),
    [
        ({"priority": 0}, "priority", "5 or a higher number"),
        ({"priority": 4}, "priority", "5 or a higher number"),
        ({"priority": "high"}, "priority", "5 or a higher number"),
        ({"queue": "critical"}, "queue", '"default"'),
        ({"queue": "made-up"}, "queue", '"default"'),
        ({"max_attempts": 11}, "max_attempts", "at most 10"),
    ],
)
def test_a_tenants_caller_goes_before_no_other_tenant(
    house: ShopHouse, body: dict[str, Any], option: str, expected: str
) -> None:
    before = house.app.jobs.list(limit=200)
    answer = bound(house, **body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")
    assert answer.json()["detail"].startswith(f"{option}: expected {expected}")
    assert "api_tenant_" in answer.json()["detail"]
    assert house.app.jobs.list(limit=200) == before
    assert enqueue(house, payload={"user_id": 1}, **body).status_code == 201, "one who is bound to no tenant may"


def test_a_tenants_caller_may_give_what_settings_and_task_allow() -> None:
    house = ShopHouse(shop(api_tenant_priority=3, api_tenant_queues=("bulk",), api_tenant_max_attempts=2))
    urgent = house.app.task(name="mail.urgent", queue="critical", priority=1, max_attempts=7)(lambda: None)
    try:
        assert urgent.name == "mail.urgent"
        for body in (
            {"priority": 3},
            {"priority": "low"},
            {"queue": "bulk"},
            {"queue": "default"},
            {"max_attempts": 2},
        ):
            assert bound(house, **body).status_code == 201, body
        for body in ({"priority": 2}, {"queue": "critical"}, {"max_attempts": 3}):
            assert bound(house, **body).status_code == 422, body
        own = {"type": "mail.urgent", "payload": {}}
        for body in ({}, {"priority": 1}, {"queue": "critical"}, {"max_attempts": 7}):
            assert bound(house, **own, **body).status_code == 201, body
        for body in ({"priority": 0}, {"queue": "default"}, {"max_attempts": 8}):
            assert bound(house, **own, **body).status_code == 422, body
    finally:
        house.close()


@pytest.mark.requirement("L8")
def test_a_breaker_that_does_not_exist_is_neither_opened_nor_reset(house: ShopHouse) -> None:
    operator = house.token(("operator",))
    before = house.facts()
    for act in ("open", "reset"):
        answer = house.call("POST", f"/api/jobs/breakers/smtq/{act}/", operator)
        assert (answer.status_code, answer.json()["code"]) == (404, "breaker_not_found")
        assert 'Nearest: "smtp"' in answer.json()["detail"]
    assert house.facts() == before
    assert house.call("POST", "/api/jobs/breakers/smtp/reset/", operator).json()["state"] == "closed"


def test_the_breaker_of_a_task_is_opened_before_its_first_use() -> None:
    house = ShopHouse(shop())
    house.app.task(name="mail.guarded", breaker="imap")(lambda: None)
    try:
        answer = house.call("POST", "/api/jobs/breakers/imap/open/", house.token(("operator",)))
        assert (answer.status_code, answer.json()["state"]) == (200, "open")
    finally:
        house.close()
