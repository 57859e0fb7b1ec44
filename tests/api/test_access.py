"""Tokens, links, sessions: how one gets in, and how others do not."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.requests import Request

from fairlane.api import Person, create_api
from fairlane.api.auth.admission import BURST, MOST_ADDRESSES, REFILL_S, FailedGuesses
from fairlane.api.auth.sessions import COOKIE, LOOPBACK_COOKIE
from fairlane.client.admin.tokens import has_shape_of_secret, hash_of
from fairlane.core.clock import FakeClock
from fairlane.core.ops import SESSION_S, FindCredential, IssueCredential, ListCredentials, Op
from fairlane.web import create_dashboard
from tests.api.house import CANARY, EVERY_ROLE, OWN, ShopHouse

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


def logged_in(house: ShopHouse, roles: tuple[str, ...] = ("operator",)) -> str:
    answer = house.call("POST", f"/login?link={house.link(roles)}")
    return answer.headers["set-cookie"].partition(";")[0]


def test_a_secret_has_256_bits_and_only_its_hash_is_kept(house: ShopHouse) -> None:
    secret = house.token(("viewer",))
    assert has_shape_of_secret(secret)
    assert len(secret) == 46
    assert house.token(("viewer",)) != secret
    answer = house.call("POST", "/api/jobs/tokens/", house.token(("admin",)), json={"name": "ci", "roles": ["viewer"]})
    made = answer.json()
    assert has_shape_of_secret(made["token"])
    assert made["token"].startswith(made["credential"]["prefix"])
    listed = house.call("GET", "/api/jobs/tokens/", house.token(("admin",)))
    assert made["token"] not in listed.text
    assert hash_of(made["token"]) not in listed.text
    assert made["token"].encode() not in house.facts()
    assert house.call("GET", "/api/jobs/me/", made["token"]).json()["name"] == "ci"


def test_a_revoked_token_is_good_for_nothing_at_once(house: ShopHouse) -> None:
    admin, token = house.token(("admin",)), house.token(("viewer",), name="leaver")
    assert house.call("GET", "/api/jobs/", token).status_code == 200
    [leaver] = [
        c for c in house.app.runtime.access.run(ListCredentials(kind="token")).credentials if c.name == "leaver"
    ]
    assert house.call("DELETE", f"/api/jobs/tokens/{leaver.id}/", admin).status_code == 200
    assert house.call("GET", "/api/jobs/", token).status_code == 401
    assert house.app.audit.list(action="token_revoke").records[0].by.startswith("ada (token ")


def test_when_a_token_was_last_used_is_kept(house: ShopHouse) -> None:
    house.clock.advance(3600)
    token = house.token(("viewer",), name="busy")
    house.call("GET", "/api/jobs/", token)
    [busy] = [c for c in house.app.runtime.access.run(ListCredentials(kind="token")).credentials if c.name == "busy"]
    assert busy.last_used_at == house.clock.now()


@pytest.mark.parametrize("wrong", ["", "Bearer", "Bearer ", "Basic abc", "bearer fl_short", "Bearer fl_" + "é" * 43])
def test_what_is_no_token_is_nobody(house: ShopHouse, wrong: str) -> None:
    answer = house.call("GET", "/api/jobs/", headers={"Authorization": wrong.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_every_wrong_token_of_the_right_shape_is_asked_for_in_the_same_way(
    house: ShopHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One question by the hash, whatever the token begins with: nothing to time."""
    good = house.token(("viewer",))
    asked: list[Op[object]] = []
    arun = house.app.runtime.access.arun

    async def noting(op: Op[object], **how: object) -> object:
        asked.append(op)
        return await arun(op)

    monkeypatch.setattr(house.app.runtime.access, "arun", noting)
    for wrong in (good[:-1] + ("A" if good[-1] != "A" else "B"), "fl_" + "A" * 43, good[:11] + "z" * 35):
        asked.clear()
        assert house.call("GET", "/api/jobs/me/", wrong).status_code == 401
        assert asked == [FindCredential(kind="token", hash=hash_of(wrong))]


@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("POST", 303), ("POST", 401)])
def test_a_link_is_in_no_address_once_its_request_is_over(house: ShopHouse, method: str, status: int) -> None:
    """Access logs and tracing read the address when the answer begins; the page of a link does not use it up."""
    dashboard = create_dashboard(house.app)
    begun: list[bytes] = []

    async def served(scope: Any, receive: Any, send: Any) -> None:
        async def sending(message: Any) -> None:
            begun.append(scope["query_string"])
            await send(message)

        await dashboard(scope, receive, sending)

    async def ask() -> int:
        transport = httpx.ASGITransport(served)
        async with httpx.AsyncClient(transport=transport, base_url="https://jobs.example") as http:
            link = house.link() if status != 401 else "fl_" + "x" * 43
            return (await http.request(method, "/login", params={"link": link})).status_code

    assert house.runner.run(ask()) == status
    assert set(begun) == {b""}


@pytest.mark.requirement("W13")
def test_a_link_logs_in_once(house: ShopHouse) -> None:
    link = house.link(("operator",))
    first = house.call("POST", f"/login?link={link}", headers={"Accept": "application/json"})
    assert first.json()["name"] == "lea"
    again = house.call("POST", f"/login?link={link}")
    assert (again.status_code, again.json()["code"]) == (401, "link_used_up")
    assert "set-cookie" not in again.headers


def test_an_old_link_is_refused(house: ShopHouse) -> None:
    link = house.link(ttl_s=60)
    house.clock.advance(61)
    assert house.call("POST", f"/login?link={link}").status_code == 401


def test_a_sessions_cookie_is_out_of_reach_of_scripts_and_other_sites(house: ShopHouse) -> None:
    header = house.call("POST", f"/login?link={house.link()}").headers["set-cookie"]
    parts = {part.strip().lower() for part in header.split(";")[1:]}
    assert header.startswith(f"{COOKIE}=fl_")
    assert {"httponly", "secure", "samesite=strict", "path=/", f"max-age={int(SESSION_S)}"} <= parts
    assert not any(part.startswith("domain") for part in parts)


def test_on_ones_own_machine_without_tls_the_cookie_works_all_the_same(house: ShopHouse) -> None:
    here = {"client": ("127.0.0.1", 5000), "base": "http://127.0.0.1:8650"}
    header = house.call("POST", f"/login?link={house.link()}", **here).headers["set-cookie"]
    assert header.startswith(f"{LOOPBACK_COOKIE}=fl_")
    assert "secure" not in header.lower()
    cookie = header.partition(";")[0]
    assert house.call("GET", "/api/jobs/me/", headers={"Cookie": cookie}, **here).status_code == 200
    # Through a proxy, or asked for by another name, there is a network between: no cookie without TLS.
    proxied = house.call("POST", f"/login?link={house.link()}", client=("127.0.0.1", 5000), base="http://jobs.example")
    assert "secure" in proxied.headers["set-cookie"].lower()


def test_a_second_log_in_ends_the_session_that_the_browser_had(house: ShopHouse) -> None:
    first, of_another_browser = logged_in(house), logged_in(house)
    wrong = house.call("POST", f"/login?link={'fl_' + 'x' * 43}", headers={"Cookie": first})
    assert wrong.status_code == 401
    assert house.call("GET", "/api/jobs/me/", headers={"Cookie": first}).status_code == 200, "nobody logged in"
    second = house.call("POST", f"/login?link={house.link()}", headers={"Cookie": first}).headers["set-cookie"]
    for cookie, status in ((first, 401), (second.partition(";")[0], 200), (of_another_browser, 200)):
        assert house.call("GET", "/api/jobs/me/", headers={"Cookie": cookie}).status_code == status
    [ended] = [one for one in house.app.audit.list().records if one.notes == "logged in again"]
    assert ended.by.startswith("lea (session ")


def test_a_session_ends_when_one_logs_out_or_its_time_is_over(house: ShopHouse) -> None:
    cookie = logged_in(house)
    assert house.call("GET", "/api/jobs/me/", headers={"Cookie": cookie}).json()["by"] == "session"
    assert house.call("POST", "/logout", headers={"Cookie": cookie, **SAME_ORIGIN}).status_code == 204
    assert house.call("GET", "/api/jobs/me/", headers={"Cookie": cookie}).status_code == 401
    cookie = logged_in(house)
    left = house.call("POST", "/logout", headers={"Cookie": cookie, "Accept": "text/html", **SAME_ORIGIN})
    assert (left.status_code, left.headers["location"]) == (303, "login")
    assert "Max-Age=0" in left.headers["set-cookie"]
    assert house.call("GET", "/api/jobs/me/", headers={"Cookie": cookie}).status_code == 401
    cookie = logged_in(house)
    house.clock.advance(SESSION_S + 1)
    over = house.call("GET", "/api/jobs/me/", headers={"Cookie": cookie})
    assert over.status_code == 401
    assert "Max-Age=0" in over.headers["set-cookie"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://jobs.example.evil.example"},
        {"Origin": "https://jobs.example", "Sec-Fetch-Site": "cross-site"},
    ],
)
def test_another_sites_page_cannot_act_through_a_session(house: ShopHouse, headers: dict[str, str]) -> None:
    cookie = logged_in(house)
    before = house.facts()
    path = f"/api/jobs/{house.own.ready}/cancel/"
    answer = house.call("POST", path, headers={"Cookie": cookie, **headers})
    assert (answer.status_code, answer.json()["code"]) == (403, "cross_site")
    assert house.facts() == before


@pytest.mark.parametrize("headers", [SAME_ORIGIN, {"Origin": "https://jobs.example"}])
def test_our_own_page_can(house: ShopHouse, headers: dict[str, str]) -> None:
    cookie = logged_in(house)
    answer = house.call("POST", f"/api/jobs/{house.own.ready}/cancel/", headers={"Cookie": cookie, **headers})
    assert answer.json()["status"] == "cancelled"


def test_a_program_with_a_token_needs_no_origin(house: ShopHouse) -> None:
    path = f"/api/jobs/{house.own.ready}/cancel/"
    answer = house.call("POST", path, house.token(("operator",)), headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 200


def test_another_site_cannot_log_anybody_in(house: ShopHouse) -> None:
    link = house.link()
    answer = house.call("POST", f"/login?link={link}", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403
    assert house.call("POST", f"/login?link={link}").status_code == 303


def test_wrong_guesses_are_braked_and_good_credentials_of_the_same_address_are_not(house: ShopHouse) -> None:
    good, cookie, wrong = house.token(("viewer",)), logged_in(house), "fl_" + "x" * 43
    statuses = [house.call("GET", "/api/jobs/me/", wrong).status_code for _ in range(BURST + 30)]
    assert statuses == [401] * BURST + [429] * 30
    held = house.call("POST", f"/login?link={wrong}")
    assert (held.status_code, held.json()["code"]) == (429, "too_many_failures")
    assert int(held.headers["retry-after"]) >= 1
    assert house.call("GET", "/api/jobs/me/", headers={"Cookie": f"{COOKIE}={wrong}"}).status_code == 429
    for _ in range(BURST + 30):
        assert house.call("GET", "/api/jobs/me/", good).status_code == 200
    assert house.call("GET", "/api/jobs/me/", headers={"Cookie": cookie}).status_code == 200
    assert house.call("POST", f"/login?link={house.link()}").status_code == 303
    assert house.call("GET", "/api/jobs/me/", wrong, client=("203.0.113.9", 1)).status_code == 401
    house.clock.advance(REFILL_S)
    assert [house.call("GET", "/api/jobs/me/", wrong).status_code for _ in range(2)] == [401, 429]


def test_asking_without_credentials_is_no_guess(house: ShopHouse) -> None:
    for _ in range(BURST + 5):
        assert house.call("GET", "/api/jobs/me/").status_code == 401


def test_what_is_remembered_of_wrong_guesses_is_bounded() -> None:
    clock = FakeClock()
    failures = FailedGuesses(clock)
    for number in range(MOST_ADDRESSES + 50):
        failures.note(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
    assert len(failures._buckets) == MOST_ADDRESSES
    for _ in range(BURST):
        failures.note("2001:db8::1")
    assert failures.wait_s("2001:db8::ffff") > 0, "the same network"
    assert failures.wait_s("2001:db8:0:1::1") == 0


def test_people_of_the_host_application_come_in_by_its_hook() -> None:
    async def users(request: Request) -> Person | None:
        name = request.headers.get("x-user")
        return None if name is None else Person(name=name, roles=("operator",), tenant=OWN)

    house = ShopHouse(users=users).furnish()
    try:
        me = house.call("GET", "/api/jobs/me/", headers={"X-User": "heidi"}).json()
        assert (me["name"], me["tenant"], me["by"]) == ("heidi", OWN, "host")
        assert house.call("GET", "/api/jobs/me/").status_code == 401
        path = f"/api/jobs/{house.own.ready}/cancel/"
        for headers in ({"Cookie": "sid=1"}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
            answer = house.call("POST", path, headers={"X-User": "heidi", **headers})
            assert (answer.status_code, answer.json()["code"]) == (403, "cross_site"), headers
        assert house.call("POST", path, headers={"X-User": "heidi"}).status_code == 200, "a program sends no cookie"
        schedule = f"/api/jobs/schedules/{house.own.schedule}/run/"
        cookie = {"Cookie": "sid=1", **SAME_ORIGIN}
        assert house.call("POST", schedule, headers={"X-User": "heidi", **cookie}).status_code == 200
        foreign = f"/api/jobs/{house.foreign.ready}/"
        assert house.call("GET", foreign, headers={"X-User": "heidi"}).status_code == 404
    finally:
        house.close()


def test_a_token_of_the_host_applications_own_is_for_its_hook() -> None:
    def users(request: Request) -> Person | None:
        heidi = Person(name="heidi", roles=("viewer",), all_tenants=True)
        return heidi if request.headers["authorization"] == "Bearer a.b.c" else None

    house = ShopHouse(users=users).furnish()
    try:
        assert house.call("GET", "/api/jobs/me/", "a.b.c").json()["name"] == "heidi"
        assert house.call("GET", "/api/jobs/me/", "x.y.z").status_code == 401
        assert house.call("GET", "/api/jobs/me/", house.token(("viewer",))).json()["by"] == "token"
        assert house.call("GET", "/api/jobs/me/", house.revoked()).status_code == 401
    finally:
        house.close()


@pytest.mark.parametrize("given", [{}, {"tenant": OWN, "all_tenants": True}])
def test_a_user_whose_tenant_is_unset_sees_nothing(given: dict[str, Any]) -> None:
    """`tenant=user.organization` is None for one who has none yet: that is not the right to see all."""
    house = ShopHouse(users=lambda _: Person(name="heidi", roles=EVERY_ROLE, **given)).furnish()
    try:
        before = house.facts()
        for method, path in (("GET", ""), ("GET", "me/"), ("POST", f"{house.own.ready}/cancel/")):
            answer = house.call(method, f"/api/jobs/{path}")
            assert (answer.status_code, answer.json()["code"]) == (403, "tenant_missing")
            assert "all_tenants=True" in answer.json()["detail"]
        assert house.facts() == before
    finally:
        house.close()


def test_below_a_base_path_everything_is_there(house: ShopHouse) -> None:
    below = create_api(house.app, base_path="/ops/")
    assert {route.path.startswith("/ops/") for route in below.routes} == {True}  # type: ignore[attr-defined]


def test_mounted_in_another_application_everything_works(house: ShopHouse) -> None:
    web = FastAPI()
    web.mount("/fairlane", house.api)
    token = house.token(("operator",))

    async def ask(method: str, path: str, **request: Any) -> httpx.Response:
        transport = httpx.ASGITransport(web)
        async with httpx.AsyncClient(transport=transport, base_url="https://shop.example") as http:
            return await http.request(method, path, headers={"Authorization": f"Bearer {token}"}, **request)

    run = house.runner.run
    assert run(ask("GET", "/fairlane/api/jobs")).status_code == 200
    made = run(ask("POST", "/fairlane/api/jobs/", json={"type": "mail.send", "payload": {"user_id": 1}}))
    assert made.status_code == 201
    assert run(ask("GET", f"/fairlane/api/jobs/{made.json()['id']}/why/")).json()["place"] == "ready"
    assert run(ask("POST", f"/fairlane/login?link={house.link()}")).headers["location"] == "./"
    assert run(ask("GET", "/fairlane/nowhere")).headers["content-type"] == "application/problem+json"


def test_answers_tell_browsers_to_be_careful(house: ShopHouse) -> None:
    for path in ("/healthz", "/api/jobs/", "/nowhere"):
        headers = house.call("GET", path).headers
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


def test_a_token_cannot_be_given_a_role_that_is_none(house: ShopHouse) -> None:
    admin = house.token(("admin",))
    before = house.facts()
    for roles in ([], ["root"], ["viewer", "root"]):
        answer = house.call("POST", "/api/jobs/tokens/", admin, json={"name": "x", "roles": roles})
        assert answer.status_code == 422
    assert house.facts() == before


def test_roles_are_what_they_are_said_to_be(house: ShopHouse) -> None:
    me = house.call("GET", "/api/jobs/me/", house.token(EVERY_ROLE)).json()
    assert me["roles"] == list(EVERY_ROLE)
    assert me["rights"] == ["open", "known", "metrics", "read", "contents", "act", "manage", "tokens"]
    assert house.call("GET", "/api/jobs/me/", house.token(("metrics",))).json()["rights"] == [
        "open",
        "known",
        "metrics",
    ]


def test_nobody_from_outside_is_the_application_itself(house: ShopHouse) -> None:
    """Neither a token, nor a link, nor a job, nor a credential made before the name was reserved."""
    token = house.token(EVERY_ROLE)
    body = {"name": "ci", "roles": ["viewer"], "tenant": "system"}
    answers = [
        house.call("POST", "/api/jobs/tokens/", token, json=body),
        house.call("POST", "/api/jobs/tokens/links/", token, json=body),
        house.call(
            "POST", "/api/jobs/", token, json={"type": "mail.send", "payload": {"user_id": 1}, "tenant": "system"}
        ),
    ]
    older = "fl_" + "o" * 43
    op = IssueCredential(
        id=house.app.runtime.new_job_id(), kind="token", name="old", prefix=older[:11], hash=hash_of(older),
        roles=EVERY_ROLE, tenant="system", ttl_s=None, by="eve",
    )  # fmt: skip
    house.app.runtime.access.run(op)
    answers.append(house.call("GET", "/api/jobs/", older))
    assert [answer.status_code for answer in answers] == [422, 422, 422, 422]
    assert all("another name" in answer.text for answer in answers)


def test_a_hook_does_not_name_the_application_itself() -> None:
    house = ShopHouse(users=lambda _: Person(name="mallory", roles=("viewer",), tenant="system")).furnish()
    try:
        answer = house.call("GET", "/api/jobs/")
        assert answer.status_code == 422
        assert "another name" in answer.text
        assert CANARY not in answer.text
    finally:
        house.close()


def test_a_token_is_found_behind_hundreds_of_newer_ones(house: ShopHouse) -> None:
    admin = house.token(("admin",))
    hidden = house.app.tokens.create("backdoor", ["admin"]).credential.id
    for _ in range(201):
        house.token(("viewer",), name="noise")
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 100}
    while True:
        page = house.call("GET", "/api/jobs/tokens/", admin, params=query).json()
        seen += [credential["id"] for credential in page["credentials"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert len(seen) == len(set(seen))
    assert str(hidden) in seen
    named = house.call("GET", "/api/jobs/tokens/", admin, params={"name": "backdoor"}).json()
    assert [credential["id"] for credential in named["credentials"]] == [str(hidden)]
    for cursor in ("1", "x.y", "1." + "0" * 36, "9" * 40):
        answer = house.call("GET", "/api/jobs/tokens/", admin, params={"cursor": cursor})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")
