"""Requests that arrive slowly, in halves, twice over or too large: they cost little, and other requests go on."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fairlane.api import request as reading
from fairlane.cli.server import ApiServer, PromptProtocol
from fairlane.testing import run_due
from tests.api.house import ShopHouse


class Impatient(PromptProtocol):
    arrival_s = 0.5


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[tuple[str, int], ShopHouse]]:
    """A real server that waits half a second for a request."""
    monkeypatch.setattr(reading, "ARRIVAL_S", 0.3)
    house = ShopHouse()
    listening = socket.create_server(("127.0.0.1", 0))
    server = ApiServer(house.api, Impatient)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield listening.getsockname(), house
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
        house.close()


def head(method: str, token: str, *headers: str) -> bytes:
    lines = (f"{method} /api/jobs/ HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", *headers, "", "")
    return "\r\n".join(lines).encode()


JSON = "Content-Type: application/json"


def test_a_request_that_does_not_arrive_is_dropped_and_one_that_does_is_answered(
    address: tuple[tuple[str, int], ShopHouse],
) -> None:
    place, house = address
    token = house.token(("operator",))
    halves = {
        "nothing": b"",
        "half a head": b"GET /api/jobs/ HTTP/1.1\r\nHost:",
        "a head without its body": head("POST", token, JSON, "Content-Length: 100"),
        "half a body": head("POST", token, JSON, "Content-Length: 100") + b'{"type":',
        "half a chunk": head("POST", token, JSON, "Transfer-Encoding: chunked") + b'64\r\n{"type":',
        "a body for which nobody waits": head("GET", token, "Content-Length: 100") + b"{",
        "a body of somebody unknown": head("POST", "nobody", JSON, "Content-Length: 100") + b"{",
    }
    for sent in halves.values():
        with socket.create_connection(place, timeout=20) as half:
            half.sendall(sent)
            while half.recv(65_536):
                pass  # an answer may come before the end; a connection kept open would end the test by its timeout
    with httpx.Client(base_url=f"http://127.0.0.1:{place[1]}", headers={"Authorization": f"Bearer {token}"}) as http:
        for _ in range(2):
            assert http.get("/api/jobs/").status_code == 200


def test_a_body_that_comes_too_slowly_is_answered(address: tuple[tuple[str, int], ShopHouse]) -> None:
    place, house = address
    with socket.create_connection(place, timeout=20) as slow:
        slow.sendall(head("POST", house.token(("operator",)), JSON, "Content-Length: 100") + b'{"type":')
        assert slow.recv(65_536).startswith(b"HTTP/1.1 408 ")


def test_somebody_who_leaves_in_the_middle_of_a_body_is_no_error(
    address: tuple[tuple[str, int], ShopHouse], caplog: pytest.LogCaptureFixture
) -> None:
    place, house = address
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with socket.create_connection(place, timeout=20) as leaver:
                leaver.sendall(head("POST", house.token(("operator",)), JSON, "Content-Length: 100") + b'{"type":')
        with httpx.Client(base_url=f"http://127.0.0.1:{place[1]}") as http:
            assert http.get("/healthz").status_code == 200
    # The server handles connections in the order in which they came; the last answer follows the leavers' errors.
    assert [record.getMessage() for record in caplog.records] == []


def test_a_body_with_two_lengths_is_refused_and_what_follows_is_not_a_request(
    address: tuple[tuple[str, int], ShopHouse],
) -> None:
    place, house = address
    token = house.token(("operator",))
    body = b"2\r\n{}\r\n0\r\n\r\n"
    with socket.create_connection(place, timeout=20) as smuggler:
        first = head("POST", token, JSON, f"Content-Length: {len(body)}", "Transfer-Encoding: chunked")
        smuggler.sendall(first + body + head("GET", token))
        answer = b""
        while more := smuggler.recv(65_536):
            answer += more
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"two_lengths" in answer
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("filling", [0, 70_000, 900_000])
@pytest.mark.parametrize("twice", ['"type":"mail.send","type":"mail.bounce"', '"type":"mail.send","t\\u0079pe":"x"'])
def test_a_key_that_comes_twice_is_refused_at_any_size(house: ShopHouse, filling: int, twice: str) -> None:
    body = f'{{{twice},"payload":{{"user_id":1,"note":"{"x" * filling}"}}}}'
    headers = {"Content-Type": "application/json"}
    answer = house.call("POST", "/api/jobs/", house.token(("operator",)), content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body")
    assert "comes twice" in answer.text


def turns_during(house: ShopHouse, method: str, path: str, **request: Any) -> tuple[int, httpx.Response]:
    """The turns that the event loop makes while a request of an operator is answered, and the answer."""
    headers = {"Authorization": f"Bearer {house.token(('operator',))}", "Content-Type": "application/json"}

    async def counted() -> tuple[int, httpx.Response]:
        transport = httpx.ASGITransport(house.api)
        async with httpx.AsyncClient(transport=transport, base_url="https://jobs.example", headers=headers) as http:
            sent = asyncio.create_task(http.request(method, path, **request))
            turns = 0
            while not sent.done():
                turns += 1
                await asyncio.sleep(0.001)
            return turns, sent.result()

    return house.runner.run(counted())


def test_the_loop_goes_on_while_a_large_body_is_checked(house: ShopHouse) -> None:
    """125,000 small objects held it for 2.3 s. Counted in turns of the loop, not in time."""
    house.app.task(name="bulk.load", sensitive="refuse")(lambda items: None)
    payload: dict[str, Any] = {"items": [{"a": n % 10} for n in range(110_000)]}
    content = json.dumps({"type": "bulk.load", "payload": payload}, separators=(",", ":")).encode()
    turns, answer = turns_during(house, "POST", "/api/jobs/", content=content)
    assert answer.status_code == 201
    assert turns > 5  # one or two, if it were checked on the loop


def test_the_loop_goes_on_while_a_large_result_is_redacted(house: ShopHouse) -> None:
    items = [{"a": n % 10} for n in range(60_000)]
    handle = house.app.task(name="bulk.read")(lambda: items).using(tenant="acme").enqueue()
    run_due(house.app)
    turns, answer = turns_during(house, "GET", f"/api/jobs/{handle.id}/")
    assert answer.json()["job"]["result"] == items
    assert turns > 5  # one, when it was done on the loop


def test_a_query_of_any_length_costs_little(house: ShopHouse) -> None:
    long = "&".join(f"parameter_{n}=1" for n in range(3_000))
    answer = house.call("GET", f"/healthz?{long}")
    assert (answer.status_code, answer.json()["code"]) == (414, "query_too_long")
    some = "&".join(f"parameter_{n}=1" for n in range(300))
    answer = house.call("GET", f"/healthz?{some}")
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == 20
