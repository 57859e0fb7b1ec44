"""Every route × every caller: who may gets an answer, who may not changes nothing and learns nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fairlane import Fairlane
from fairlane.api import create_api
from fairlane.api.auth.rights import Right, missing_role
from fairlane.api.router import GatedRoute, UndeclaredRoute, gated_routes
from tests.api.asgi import Stream
from tests.api.house import CANARY, EVERY_ROLE, FOREIGN, OWN, ROLE_SETS, Mine, ShopHouse
from tests.api.requests import REQUESTS

OPERATIONS: dict[str, GatedRoute] = {
    route.operation_id or "": route for route in gated_routes(create_api(Fairlane("memory://")))
}
GATED = {name: route for name, route in OPERATIONS.items() if route.declared.right is not Right.OPEN}
TENANTS_OWN = {name: route for name, route in GATED.items() if not route.declared.for_all_tenants}
HOUSE_WIDE = {name: route for name, route in GATED.items() if route.declared.for_all_tenants}
NAMES_A_FOREIGN_THING = {
    "enqueue_job", "show_job", "explain_job", "show_queued_job", "cancel_job", "retry_job", "fail_job", "bury_job", "reset_job",
    "show_dead_letter", "reprocess_dead_letter", "discard_dead_letter", "resolve_dead_letter", "acknowledge_dead_letter",
    "show_tenant", "show_tenant_metrics", "pause_claims", "resume_claims", "run_schedule", "pause_schedule", "resume_schedule",
}  # fmt: skip


def ask(house: ShopHouse, name: str, mine: Mine, token: str | None) -> httpx.Response:
    route, request = OPERATIONS[name], REQUESTS[name](house, mine)
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
    assert len(OPERATIONS) == 66
    assert len(GATED) == 62
    assert (len(TENANTS_OWN), len(HOUSE_WIDE)) == (44, 18)


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
    right = GATED[name].declared.right
    short = {who: roles for who, roles in ROLE_SETS.items() if missing_role(roles, right)}
    tokens = {who: house.token(roles) for who, roles in short.items()}
    before = house.facts()
    for who, token in tokens.items():
        answer = ask(house, name, house.own, token)
        assert (who, answer.status_code) == (who, 403)
        assert answer.json()["role"] == missing_role(ROLE_SETS[who], right)
        assert "note-of-acme" not in answer.text
    assert house.facts() == before


def roles_that_may(name: str) -> Iterator[str]:
    for who, roles in ROLE_SETS.items():
        if missing_role(roles, OPERATIONS[name].declared.right) is None:
            yield who


@pytest.mark.parametrize(("name", "who"), [(name, who) for name in OPERATIONS for who in roles_that_may(name)])
def test_who_may_is_answered(house: ShopHouse, name: str, who: str) -> None:
    answer = ask(house, name, house.own, house.token(ROLE_SETS[who]))
    assert answer.status_code in {200, 201, 204, 303}, answer.text


@pytest.mark.requirement("W13")
@pytest.mark.parametrize("name", TENANTS_OWN)
def test_a_tenants_caller_is_answered_about_its_own(on_each_store: ShopHouse, name: str) -> None:
    house = on_each_store
    answer = ask(house, name, house.own, house.token(EVERY_ROLE, tenant=OWN))
    assert answer.status_code in {200, 201, 204}, answer.text
    assert CANARY not in answer.text
    assert FOREIGN not in answer.text


@pytest.mark.requirement("W13")
@pytest.mark.parametrize("name", TENANTS_OWN)
def test_a_tenants_caller_learns_and_changes_nothing_of_another(on_each_store: ShopHouse, name: str) -> None:
    house = on_each_store
    token = house.token(EVERY_ROLE, tenant=OWN)
    before = house.facts()
    answer = ask(house, name, house.foreign, token)
    if name in NAMES_A_FOREIGN_THING:
        assert answer.status_code == 404, answer.text
    else:
        assert answer.status_code in {200, 204}, answer.text
    told = answer.text.replace(house.foreign.schedule, "") if answer.status_code == 404 else answer.text
    assert CANARY not in told
    assert house.facts() == before


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
        ("many/", {"act": "cancel", "where": {}}),
        ("many/", {"act": "bury", "where": {"queue": "default"}, "reason": "x"}),
        ("admin/dlq/many/", {"act": "discard", "where": {}}),
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
    assert (record.by, record.notes, record.tenant) == ("grace", "asked for by phone", OWN)
