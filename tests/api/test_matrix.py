"""Every route × every caller: who may gets an answer, who may not changes nothing and learns nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import httpx
import pytest

from fairlane import Fairlane
from fairlane.api import create_api
from fairlane.api.router import GatedRoute, UndeclaredRoute, gated_routes
from fairlane.client.rights import Right, holding, right_of
from fairlane.client.steps import Verbs
from fairlane.core.ids import JobId, WorkerId
from fairlane.core.ops import CaughtException, Renew, ReportExceptions
from fairlane.errors import RoleMissing
from tests.api.asgi import Stream
from tests.api.house import CANARY, DEAD, EVERY_ROLE, FOREIGN, LIVE, OWN, ROLE_SETS, Mine, ShopHouse
from tests.api.requests import REQUESTS, Request

OPERATIONS: dict[str, GatedRoute] = {
    route.operation_id or "": route for route in gated_routes(create_api(Fairlane("memory://")))
}
GATED = {name: route for name, route in OPERATIONS.items() if route.declared.right is not Right.OPEN}
TENANTS_OWN = {name: route for name, route in GATED.items() if not route.declared.for_all_tenants}
HOUSE_WIDE = {name: route for name, route in GATED.items() if route.declared.for_all_tenants}
RIGHTS: dict[str, set[str]] = {
    "open": {"is_alive", "is_ready", "log_in"},
    "known": {"show_me", "log_out"},
    "metrics": {"show_metrics", "show_tenant_metrics"},
    "read": {
        "show_health", "describe_api", "list_jobs", "show_job", "explain_job", "list_queues", "list_tenants", "show_tenant",
        "list_pauses", "list_limits", "list_keys", "list_breakers", "list_schedules", "list_workers", "list_exceptions", "list_audit", "verify_audit",
        "list_events", "list_signals", "watch_events", "list_alerts", "list_concerns", "show_statistics",
        "list_workflows", "show_workflow",
    },
    "act": {
        "enqueue_job", "cancel_job", "fail_job", "bury_job", "reset_job", "free_place", "act_on_jobs", "pause_queue", "resume_queue",
        "drain_queue", "set_tenant", "pause_claims", "resume_claims", "set_limit", "clear_limit", "reset_breaker", "emit_signal",
        "open_breaker", "claim_job", "renew_claim", "complete_claim", "fail_claim", "release_claim", "run_schedule", "pause_schedule", "resume_schedule", "silence_alerts", "cancel_workflow",
    },
    "manage": {
        "retry_job", "list_queue", "show_queued_job", "show_queue_statistics", "list_dead_letters", "count_dead_letters",
        "group_dead_letters", "reprocess_group", "act_on_dead_letters", "show_dead_letter", "reprocess_dead_letter",
        "discard_dead_letter", "resolve_dead_letter", "acknowledge_dead_letter", "retry_workflow",
    },
    "tokens": {"list_tokens", "create_token", "create_link", "revoke_credential"},
}  # fmt: skip
"""Written out, not derived: a route or a verb that changes its right has to be changed here, too."""
RIGHT_OF = {name: right for right, names in RIGHTS.items() for name in names}
MAY: dict[str, set[str]] = {
    "open": {*ROLE_SETS},
    "known": {*ROLE_SETS},
    "metrics": {*ROLE_SETS},
    "read": {*ROLE_SETS} - {"metrics"},
    "act": {"operator", "staff and manager"},
    "manage": {"staff and manager"},
    "tokens": {"admin"},
}
NAMES_A_FOREIGN_THING = {
    "emit_signal", "enqueue_job", "show_job", "explain_job", "show_queued_job", "cancel_job", "retry_job", "fail_job", "bury_job", "reset_job",
    "free_place", "list_keys", "list_jobs", "list_queue", "list_dead_letters", "show_statistics",
    "show_dead_letter", "reprocess_dead_letter", "discard_dead_letter", "resolve_dead_letter", "acknowledge_dead_letter",
    "show_tenant", "show_tenant_metrics", "pause_claims", "resume_claims", "run_schedule", "pause_schedule", "resume_schedule",
    "list_workflows", "show_workflow", "cancel_workflow", "retry_workflow",
}  # fmt: skip


def ask(house: ShopHouse, name: str, mine: Mine, token: str | None) -> httpx.Response:
    return sent(house, name, REQUESTS[name](house, mine), token)


def sent(house: ShopHouse, name: str, request: Request, token: str | None) -> httpx.Response:
    route = OPERATIONS[name]
    path = route.path_format.format(**request.path)
    [method] = route.methods
    if name == "watch_events":
        return opened(house, path, request.query, token)
    return house.call(method, path, token, params=request.query, json=request.json)


def opened(house: ShopHouse, path: str, query: dict[str, Any], token: str | None) -> httpx.Response:
    """The stream's status and what it says of the past."""

    async def look() -> httpx.Response:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        async with Stream(house.api, path, query, **headers) as stream:
            text = await stream.text()
            if stream.status == 200:
                text += await stream.until("event: job_dead")
            return httpx.Response(stream.status, text=text)

    return house.runner.run(look())


def test_every_operation_is_in_the_matrix() -> None:
    assert set(REQUESTS) == set(OPERATIONS)
    assert len(OPERATIONS) == 79
    assert len(GATED) == 76
    assert (len(TENANTS_OWN), len(HOUSE_WIDE)) == (52, 24)
    assert {name: str(route.declared.right) for name, route in OPERATIONS.items()} == RIGHT_OF


@pytest.mark.requirement("W13")
def test_everything_below_admin_stands_behind_the_three_gates() -> None:
    below = {name for name, route in OPERATIONS.items() if "/api/jobs/admin/" in route.path}
    assert len(below) == 13
    assert {OPERATIONS[name].declared.right for name in below} == {Right.MANAGE}


def test_a_route_that_declares_no_right_cannot_be_built() -> None:
    api = create_api(Fairlane("memory://"))
    with pytest.raises(UndeclaredRoute, match="declares no right"):
        api.router.add_api_route("/leak", lambda: "everything", route_class_override=GatedRoute)
    api.add_route("/leak", lambda request: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(UndeclaredRoute, match="leak"):
        gated_routes(api)


@pytest.mark.requirement("W13")
@pytest.mark.parametrize("name", GATED)
def test_who_is_not_let_in_changes_nothing(house: ShopHouse, name: str) -> None:
    expired = house.token(EVERY_ROLE, ttl_s=5.0)
    house.clock.advance(6.0)
    nobody = {
        "nobody": None,
        "expired": expired,
        "revoked": house.revoked(),
        "unknown": "fl_" + "x" * 43,
        "odd": "hello",
    }
    before = house.facts()
    for who, token in nobody.items():
        answer = ask(house, name, house.own, token)
        assert (who, answer.status_code) == (who, 401)
        assert answer.json()["code"] == "unauthenticated"
        assert "note-of-acme" not in answer.text
    assert house.facts() == before


@pytest.mark.requirement("W13")
@pytest.mark.parametrize("name", GATED)
def test_a_missing_role_is_refused_and_changes_nothing(house: ShopHouse, name: str) -> None:
    short = [(who, tenant) for who in ROLE_SETS.keys() - MAY[RIGHT_OF[name]] for tenant in (None, OWN)]
    tokens = {(who, tenant): house.token(ROLE_SETS[who], tenant) for who, tenant in short}
    before = house.facts()
    for (who, tenant), token in tokens.items():
        answer = ask(house, name, house.own, token)
        assert (who, tenant, answer.status_code) == (who, tenant, 403)
        assert answer.json()["code"] == "role_missing"
        assert answer.json()["role"] in {"viewer", "operator", "staff", "manager", "admin"} - {*ROLE_SETS[who]}
        assert "note-of-acme" not in answer.text
    assert house.facts() == before


def roles_that_may(name: str) -> Iterator[str]:
    yield from (who for who in ROLE_SETS if who in MAY[RIGHT_OF[name]])


@pytest.mark.requirement("W13")
@pytest.mark.parametrize("tenant", [None, OWN], ids=["all tenants", "one tenant"])
@pytest.mark.parametrize("who", ROLE_SETS)
def test_contents_are_shown_to_those_who_may_see_them_and_to_nobody_else(
    house: ShopHouse, who: str, tenant: str | None
) -> None:
    """Payloads, results, headers, error texts, logs and notes, in every answer of every operation that the role may use."""
    token = house.token(ROLE_SETS[who], tenant)
    house.log(house.own.running, LIVE)
    house.app.jobs.fail(house.own.running, f"reason: {LIVE}", retry_delay=60, by="eve", notes=LIVE)
    house.app.queues.pause("default", by="eve", notes=LIVE)
    house.app.alerts.silence("queue_backlog", 3600, by="eve", notes=LIVE)
    house.app.dead_letters.acknowledge(house.own.letter, by="eve", notes=DEAD)
    seen: dict[str, set[str]] = {LIVE: set(), DEAD: set()}
    reads = [name for name in OPERATIONS if OPERATIONS[name].methods == {"GET"}]
    jobs = ("ready", "running", "done", "dead")
    for name in [*reads, *(name for name in OPERATIONS if name not in {*reads, "log_out", "retry_job"})]:
        if name in {"log_in", "create_token", "create_link"} or who not in MAY[RIGHT_OF[name]]:
            continue
        requests = [REQUESTS[name](house, house.own)]
        if name in {"show_job", "show_queued_job", "explain_job"}:
            requests = [requests[0]._replace(path={"id": getattr(house.own, job)}) for job in jobs]
        for request in requests:
            text = sent(house, name, request, token).text
            for canary, names in seen.items():
                names |= {name} if canary in text else set()
    manages, operates = who == "staff and manager", who in {"operator", "staff and manager"}
    assert bool(seen[LIVE]) == operates, seen
    assert bool(seen[DEAD]) == manages, seen
    if operates:
        assert {"list_jobs", "show_job", "explain_job", "list_audit"} <= seen[LIVE]
        assert tenant is not None or {"list_pauses", "list_alerts"} <= seen[LIVE]
    if manages:
        assert {"list_jobs", "show_job", "list_audit", "list_events", "watch_events", "list_dead_letters"} <= seen[DEAD]


@pytest.mark.requirement("W13", "D18")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("{dead}/retry/", None),
        ("many/", {"act": "retry", "where": {"status": ["dead"]}}),
        ("many/", {"act": "retry", "ids": ["dead"]}),
        ("many/", {"act": "retry", "ids": ["dead"], "dry_run": True}),
        ("many/", {"act": "retry", "ids": []}),
        ("admin/dlq/{letter}/reprocess/", None),
        ("admin/dlq/many/", {"act": "reprocess", "all": True}),
        ("admin/dlq/groups/{fingerprint}/reprocess/", None),
    ],
)
def test_who_may_not_reprocess_runs_a_dead_job_again_by_no_route(
    house: ShopHouse, path: str, body: dict[str, Any] | None
) -> None:
    own = house.own
    path = f"/api/jobs/{path.format(dead=own.dead, letter=own.letter, fingerprint=own.fingerprint)}"
    if body is not None and "ids" in body:
        body = {**body, "ids": [str(own.dead) for _ in body["ids"]]}
    others = [roles for who, roles in ROLE_SETS.items() if who not in MAY["manage"]]
    tokens = [house.token(roles, tenant) for roles in others for tenant in (None, OWN)]
    before = house.facts()
    for token in tokens:
        answer = house.call("POST", path, token, json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "role_missing")
    assert house.facts() == before
    answer = house.call("POST", path, house.token(("staff", "manager"), OWN), json=body)
    assert answer.status_code == 200, answer.text


def test_the_audit_names_credentials_only_to_those_who_may_list_them(house: ShopHouse) -> None:
    for who, roles in ROLE_SETS.items():
        if who in MAY["read"]:
            text = house.call("GET", "/api/jobs/audit/", house.token(roles), params={"limit": 200}).text
            assert ('"token_create"' in text) == (who == "admin"), who


def test_every_verb_of_the_client_declares_its_right(house: ShopHouse) -> None:
    """A new route cannot forget a right: the verb it calls has one, and refuses by itself."""
    admins = [found for name in dir(house.app) if isinstance(found := getattr(house.app, name, None), Verbs)]
    assert len(admins) == 17
    for admin in admins:
        kind = type(admin)
        names = [name for name in dir(kind) if name.startswith("a") and hasattr(kind, f"_{name[1:]}")]
        assert names
        for name in names:
            verb = getattr(kind, name[1:])
            assert right_of(verb) is right_of(getattr(kind, name)), (kind, name)
            with holding(("metrics",)), pytest.raises(RoleMissing):
                verb(admin)


@pytest.mark.parametrize(("name", "who"), [(name, who) for name in OPERATIONS for who in roles_that_may(name)])
def test_who_may_is_answered(house: ShopHouse, name: str, who: str) -> None:
    answer = ask(house, name, house.own, house.token(ROLE_SETS[who]))
    assert answer.status_code in {200, 201, 204, 303}, answer.text


def mark_what_all_share(house: ShopHouse) -> None:
    """Who did what to a shared queue or task and why, and where workers run, is not a tenant's business."""
    house.app.queues.pause("default", by=CANARY, notes=CANARY)
    house.app.tasks.pause("mail.send", by=CANARY, notes=CANARY)
    house.app.limits.set(queue="default", running=50, by=CANARY, notes=CANARY)
    store, worker = house.app.runtime.store, WorkerId(house.app.runtime.new_job_id())
    store.run(Renew(worker=worker, lease_s=3600, name=CANARY))
    caught = CaughtException(
        id=JobId(house.own.dead),
        task="mail.send",
        tenant=OWN,
        attempt=1,
        type="OSError",
        error="no route",
        error_class="transient",
        is_final=False,
        at=house.clock.now(),
    )
    store.run(ReportExceptions(worker=worker, exceptions=(caught,)))


@pytest.mark.requirement("W13")
@pytest.mark.parametrize("name", TENANTS_OWN)
def test_a_tenants_caller_is_answered_about_its_own(on_each_store: ShopHouse, name: str) -> None:
    house = on_each_store
    mark_what_all_share(house)
    answer = ask(house, name, house.own, house.token(EVERY_ROLE, tenant=OWN))
    assert answer.status_code in {200, 201, 204}, answer.text
    assert CANARY not in answer.text
    assert FOREIGN not in answer.text


@pytest.mark.requirement("W13")
def test_a_tenants_caller_learns_and_changes_nothing_of_another(on_each_store: ShopHouse) -> None:
    house = on_each_store
    token = house.token(EVERY_ROLE, tenant=OWN)
    before = house.facts()
    for name in TENANTS_OWN:
        answer = ask(house, name, house.foreign, token)
        statuses = {404} if name in NAMES_A_FOREIGN_THING else {200, 204}
        assert answer.status_code in statuses, (name, answer.text)
        told = answer.text.replace(house.foreign.schedule, "") if answer.status_code == 404 else answer.text
        assert CANARY not in told, name
        assert house.facts() == before, name


@pytest.mark.requirement("W13")
@pytest.mark.parametrize("name", HOUSE_WIDE)
def test_a_tenants_caller_has_no_say_in_what_concerns_all(house: ShopHouse, name: str) -> None:
    token = house.token(EVERY_ROLE, tenant=OWN)
    before = house.facts()
    answer = ask(house, name, house.own, token)
    assert (answer.status_code, answer.json()["code"]) == (403, "tenant_bound")
    assert CANARY not in answer.text
    assert house.facts() == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("many/", {"act": "cancel", "where": {}, "all": True}),
        ("many/", {"act": "bury", "where": {"queue": "default"}, "reason": "x"}),
        ("admin/dlq/many/", {"act": "discard", "all": True}),
        ("admin/dlq/many/", {"act": "reprocess", "where": {"status": "pending_review"}}),
    ],
)
def test_a_tenants_act_on_all_that_match_ends_at_its_own(
    on_each_store: ShopHouse, path: str, body: dict[str, Any]
) -> None:
    house = on_each_store

    def of_globex() -> list[Any]:
        return [
            house.app.jobs.list(tenant=FOREIGN),
            house.app.dead_letters.list(tenant=FOREIGN),
            house.app.audit.list(tenant=FOREIGN),
        ]

    before = of_globex()
    answer = house.call("POST", f"/api/jobs/{path}", house.token(EVERY_ROLE, tenant=OWN), json=body)
    assert answer.status_code == 200
    assert answer.json()["done"] >= 1
    assert of_globex() == before


def test_the_name_of_the_credential_signs_every_act(house: ShopHouse) -> None:
    token = house.token(("operator",), name="grace")
    house.call("POST", f"/api/jobs/{house.own.ready}/cancel/", token, json={"notes": "asked for by phone"})
    record = house.app.audit.list(action="job_cancel").records[0]
    assert (record.notes, record.tenant) == ("asked for by phone", OWN)
    assert record.by == f"grace (token {house.credential('grace')})"


def test_two_credentials_of_one_name_are_told_apart_in_the_audit(house: ShopHouse) -> None:
    name = "ö" * 256
    for token in (house.token(("operator",), name=name), house.token(("operator",), name=name)):
        assert house.call("POST", "/api/jobs/queues/bulk/pause/", token).status_code == 200
        assert house.call("POST", "/api/jobs/queues/bulk/resume/", token).status_code == 200
    first, _, second, _ = [record.by for record in house.app.audit.list(target="queue:bulk").records]
    assert first != second
    ids = {str(token.id) for token in house.app.tokens.list(name=name).credentials}
    assert {by.rpartition(" ")[2].rstrip(")") for by in (first, second)} == ids
    made = house.call("POST", "/api/jobs/", token, json={"type": "mail.send", "payload": {"user_id": 1}}).json()
    assert house.app.jobs.list(created_by=name).jobs[0].id == UUID(made["id"])


@pytest.mark.requirement("Q7", "D18")
@pytest.mark.parametrize(
    ("roles", "texts"),
    [
        (("viewer",), {"mail.send": "", "mail.export": ""}),
        (("operator",), {"mail.send": "", "mail.export": ""}),
        (("staff", "manager"), {"mail.send": "no route", "mail.export": "no account"}),
    ],
)
def test_the_text_of_an_exception_is_for_those_who_may_see_dead_letters_since_its_job_may_be_dead_by_now(
    house: ShopHouse, roles: tuple[str, ...], texts: dict[str, str]
) -> None:
    """A worker keeps what an attempt raised, and the attempt after it may have been the last."""
    store, at = house.app.runtime.store, house.clock.now()
    worker = WorkerId(house.app.runtime.new_job_id())
    store.run(Renew(worker=worker, lease_s=3600, name="box:1"))
    common: Any = {"id": house.own.dead, "attempt": 1, "type": "OSError", "error_class": "transient", "at": at}
    alive = CaughtException(**common, task="mail.send", tenant=OWN, error="no route", is_final=False)
    dead = CaughtException(**common, task="mail.export", tenant=FOREIGN, error="no account", is_final=True)
    store.run(ReportExceptions(worker=worker, exceptions=(alive, dead)))
    path = "/api/jobs/workers/exceptions/"
    shown = house.call("GET", path, house.token(roles)).json()["exceptions"]
    assert {one["caught"]["task"]: one["caught"]["error"] for one in shown} == texts
    assert {one["name"] for one in shown} == {"box:1"}
    bound = house.call("GET", path, house.token(roles, tenant=OWN)).json()["exceptions"]
    assert [(one["caught"]["tenant"], one["name"]) for one in bound] == [(OWN, None)]


@pytest.mark.parametrize("roles", [("viewer",), ("operator",), ("staff", "manager")])
def test_a_tenant_is_not_shown_who_paused_what_all_share_and_why(house: ShopHouse, roles: tuple[str, ...]) -> None:
    house.app.queues.pause("default", by="shared-eve", notes="shared-cause")
    house.app.tasks.pause("mail.send", by="shared-eve", notes="shared-cause")
    house.app.tenants.pause(OWN, by="own-ada", notes="own-cause")
    path = f"/api/jobs/{house.own.ready}/why/"
    answer = house.call("GET", path, house.token(roles, tenant=OWN))
    assert "shared-" not in answer.text
    because = ": own-cause" if roles != ("viewer",) else ""
    assert sorted(one["says"] for one in answer.json()["reasons"] if one["code"] == "paused") == [
        'queue "default" is paused',
        'task "mail.send" is paused',
        f'tenant "{OWN}" is paused by own-ada{because}',
    ]
    assert "by shared-eve" in house.call("GET", path, house.token(roles)).text
