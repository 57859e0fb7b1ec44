"""HEAD: what GET would say, without saying it; load balancers and monitors ask that way."""

from __future__ import annotations

import httpx
import pytest

from tests.api.house import EVERY_ROLE, ShopHouse
from tests.api.requests import REQUESTS
from tests.api.test_events import PATH, served
from tests.api.test_matrix import OPERATIONS, ask

READS = sorted(name for name, route in OPERATIONS.items() if route.methods == {"GET"})
WRITES = sorted(name for name, route in OPERATIONS.items() if route.path not in {OPERATIONS[n].path for n in READS})

__all__ = ["served"]


def head(house: ShopHouse, name: str, token: str | None) -> httpx.Response:
    request = REQUESTS[name](house, house.own)
    path = OPERATIONS[name].path_format.format(**request.path)
    return house.call("HEAD", path, token, params=request.query)


@pytest.mark.parametrize("name", READS)
def test_head_answers_like_get_without_a_body(house: ShopHouse, name: str) -> None:
    token = house.token(EVERY_ROLE)
    wanted, found = ask(house, name, house.own, token), head(house, name, token)
    assert (found.status_code, found.content) == (wanted.status_code, b"")
    assert "x-frame-options" in found.headers
    if name == "watch_events":  # read from the past alone, it never ends
        assert found.headers["content-type"].startswith("text/event-stream")
        assert not house.api.state.fairlane.feed._watchers, "nobody watches"
    else:
        assert set(found.headers) == set(wanted.headers)
        assert found.headers["content-type"] == wanted.headers["content-type"]
        assert int(found.headers["content-length"]) > 0


@pytest.mark.requirement("W13")
@pytest.mark.parametrize("name", READS)
def test_head_stands_behind_the_same_door_as_get(house: ShopHouse, name: str) -> None:
    for token in (None, house.revoked()):
        wanted, found = ask(house, name, house.own, token), head(house, name, token)
        assert (found.status_code, found.content) == (wanted.status_code, b"")


@pytest.mark.parametrize("name", WRITES)
def test_head_on_what_only_acts_is_refused_and_changes_nothing(house: ShopHouse, name: str) -> None:
    token, request = house.token(EVERY_ROLE), REQUESTS[name](house, house.own)
    before = house.facts()
    path = OPERATIONS[name].path_format.format(**request.path)
    found, got = (house.call(method, path, token, params=request.query) for method in ("HEAD", "GET"))
    assert (found.status_code, found.content) == (got.status_code, b"")
    assert found.status_code in {405, 422}
    assert house.facts() == before


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/api/jobs/", "GET, HEAD, POST"), ("/api/jobs/audit", "GET, HEAD"), ("/logout", "POST")],
)
def test_where_a_method_is_refused_all_others_of_the_path_are_named(house: ShopHouse, path: str, allowed: str) -> None:
    for method in ("DELETE", "HEAD" if "GET" not in allowed else "PUT"):
        answer = house.call(method, path, house.token(EVERY_ROLE))
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


def test_a_real_server_answers_head_and_keeps_the_connection(house: ShopHouse, served: str) -> None:
    headers = {"Authorization": f"Bearer {house.token(('viewer',))}"}
    with httpx.Client(base_url=served, headers=headers, timeout=20) as http:
        for path in ("/healthz", "/metrics", PATH, "/api/jobs/", "/nowhere", "/readyz"):
            answer = http.head(path)
            assert (answer.status_code, answer.content) == (404 if path == "/nowhere" else 200, b"")
        assert http.get("/healthz").json() == {"status": "ok"}
