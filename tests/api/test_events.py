"""The stream of events: resumable, narrow, and bounded for those who read slowly."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.exceptions import HTTPException
from starlette.requests import Request

from fairlane.api import Person, sse
from fairlane.api.sse import EventFeed
from fairlane.core.ops import ALL_TENANTS, AddEvents, EventDraft, ReadEvents, RevokeCredential
from tests.api.asgi import Stream
from tests.api.house import CANARY, EVERY_ROLE, FOREIGN, OWN, ShopHouse, shop

PATH = "/api/jobs/events/stream/"


@pytest.fixture
def viewer(house: ShopHouse) -> dict[str, str]:
    return {"authorization": f"Bearer {house.token(('viewer',))}"}


def tell(house: ShopHouse, kind: str, tenant: str | None = None, **data: Any) -> int:
    house.app.runtime.access.run(AddEvents(events=(EventDraft(kind=kind, tenant=tenant, data=data),)))
    return last_id(house)


def last_id(house: ShopHouse) -> int:
    return house.app.runtime.access.run(ReadEvents(scope=ALL_TENANTS, after=2**62)).last


def ids(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"^id: (\d+)$", text, re.MULTILINE)]


def run(house: ShopHouse, story: Coroutine[Any, Any, None]) -> None:
    house.runner.run(asyncio.wait_for(story, 60))


@pytest.mark.requirement("I13")
def test_a_watcher_sees_what_happens_from_now_on(house: ShopHouse, viewer: dict[str, str]) -> None:
    async def story() -> None:
        async with Stream(house.api, PATH, **viewer) as stream:
            assert stream.status == 200
            await stream.text()
            told = tell(house, "job_limit_warning", OWN, organization=OWN, queue="bulk")
            text = await stream.until("job_limit_warning")
            assert ids(text) == [told]
            assert '"organization":"acme","queue":"bulk"' in text

    run(house, story())


def test_a_watcher_goes_on_where_it_left_off_and_sees_each_event_once(house: ShopHouse, viewer: dict[str, str]) -> None:
    first = tell(house, "one")
    told = [tell(house, "more") for _ in range(450)]

    async def story() -> None:
        async with Stream(house.api, PATH, **viewer, last_event_id=str(first)) as stream:
            text = await stream.until(f"id: {told[-1]}\n")
            told.append(tell(house, "live"))
            text += await stream.until("event: live")
            assert ids(text) == told
        async with Stream(house.api, PATH, {"after": told[-2]}, **viewer) as stream:
            assert ids(await stream.until("event: live")) == told[-1:]

    run(house, story())


def test_what_is_asked_for_by_kind_is_all_that_comes(house: ShopHouse, viewer: dict[str, str]) -> None:
    async def story() -> None:
        before = last_id(house)
        tell(house, "noise")
        tell(house, "dlq_alert", count=51, threshold=50)
        async with Stream(house.api, PATH, {"after": before, "kind": "dlq_alert"}, **viewer) as stream:
            text = await stream.until("dlq_alert")
            tell(house, "noise")
            tell(house, "dlq_alert", count=52, threshold=50)
            text += await stream.until('"count":52')
        assert "noise" not in text

    run(house, story())


@pytest.mark.requirement("W13")
def test_a_tenants_watcher_sees_its_own_events_alone(house: ShopHouse) -> None:
    token = house.token(("viewer",), tenant=OWN)

    async def story() -> None:
        async with Stream(house.api, PATH, {"after": 0}, authorization=f"Bearer {token}") as stream:
            text = await stream.until("event: job_dead")
            tell(house, "job_dead", FOREIGN, note=CANARY)
            tell(house, "worker_started")
            tell(house, "mine", OWN)
            text += await stream.until("event: mine")
        assert CANARY not in text
        assert "worker_started" not in text

    run(house, story())


def test_a_slow_reader_is_kept_within_bounds_and_misses_nothing(house: ShopHouse) -> None:
    feed = EventFeed(house.app, poll_s=0.001, most_buffered=10)

    async def always() -> bool:
        return True

    async def story() -> None:
        begin = last_id(house)
        stream = sse.lines(
            house.app, feed, feed.enter(None), after=begin, roles=EVERY_ROLE, is_still_good=always, beat_s=0.01
        )
        await anext(stream)
        tell(house, "first")
        text = (await _until(stream, b"first")).decode()
        [watcher] = feed._watchers
        watcher._woken.clear()
        told = [tell(house, "flood") for _ in range(300)]
        await watcher._woken.wait()
        assert watcher.is_behind
        assert len(watcher._waiting) == 0, "what did not fit is in the store, not in memory"
        text += (await _until(stream, b"id: %d\n" % told[-1])).decode()
        assert ids(text) == [told[0] - 1, *told]
        await stream.aclose()
        assert feed._task is None

    run(house, story())


async def _until(stream: Any, wanted: bytes) -> bytes:
    read = b""
    while wanted not in read:
        read += await anext(stream)
    return read


def test_silence_is_broken_by_a_comment_and_a_revoked_credential_ends_the_stream(house: ShopHouse) -> None:
    feed = EventFeed(house.app, poll_s=0.001)
    good = True

    async def is_still_good() -> bool:
        return good

    async def story() -> None:
        nonlocal good
        stream = sse.lines(
            house.app,
            feed,
            feed.enter(OWN),
            after=None,
            roles=EVERY_ROLE,
            is_still_good=is_still_good,
            beat_s=0.001,
        )
        await _until(stream, b": still here\n\n: still here\n\n")
        good = False
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert not feed._watchers

    run(house, story())


@pytest.mark.parametrize("is_late", [False, True], ids=["as they happen", "from the store"])
def test_a_revoked_credential_ends_a_stream_that_is_never_silent(house: ShopHouse, is_late: bool) -> None:
    feed = EventFeed(house.app, poll_s=0.001)
    good, many = True, 2 * sse.PAGE + 1

    async def is_still_good() -> bool:
        return good

    async def story() -> None:
        nonlocal good
        begin = last_id(house)
        for _ in range(many if is_late else 1):
            tell(house, "before")
        stream = sse.lines(
            house.app, feed, feed.enter(None), after=begin, roles=EVERY_ROLE, is_still_good=is_still_good
        )
        await _until(stream, b"before")
        for _ in range(0 if is_late else many):
            tell(house, "secret")
        house.clock.advance(sse.BEAT_S)
        good = False
        more = [line async for line in stream]
        assert len(more) < many - 1, "what is left of one page at most"

    run(house, story())


def test_a_revoked_token_is_noticed_by_the_door(house: ShopHouse) -> None:
    door = house.api.state.fairlane.authenticator
    token = house.token(("viewer",))

    async def story() -> None:
        headers = [(b"authorization", f"Bearer {token}".encode())]
        request = Request({"type": "http", "headers": headers, "client": ("203.0.113.1", 1)})
        caller = await door.caller(request)
        assert await door.is_still_good(caller, request)
        house.app.runtime.access.run(RevokeCredential(id=caller.credential_id, by="eve"))
        assert not await door.is_still_good(caller, request)

    run(house, story())


def test_a_stream_goes_on_in_whatever_order_the_host_application_names_the_roles() -> None:
    found = [Person(name="heidi", roles=("viewer", "operator"), tenant=OWN)]
    house = ShopHouse(users=lambda _: found[0]).furnish()

    async def story() -> None:
        async with Stream(house.api, PATH) as stream:
            await stream.text()
            found[0] = Person(name="heidi", roles=("operator", "viewer"), tenant=OWN)
            house.clock.advance(sse.BEAT_S)
            tell(house, "known", OWN)
            await stream.until("event: known")

    try:
        run(house, story())
    finally:
        house.close()


@pytest.mark.requirement("W13")
@pytest.mark.parametrize(
    "then",
    [
        None,
        Person(name="heidi", roles=("viewer",), tenant=FOREIGN),
        Person(name="heidi", roles=(), tenant=OWN),
        Person(name="ivan", roles=("viewer",), tenant=OWN),
        HTTPException(401),
    ],
    ids=["logged out", "of another tenant", "without a role", "somebody else", "refused by an error"],
)
def test_a_stream_of_somebody_the_host_application_knows_ends_once_it_does_not_any_more(
    then: Person | Exception | None,
) -> None:
    found: list[Person | Exception | None] = [Person(name="heidi", roles=("viewer",), tenant=OWN)]

    async def users(request: Request) -> Person | None:
        assert request.headers["x-user"] == "heidi"
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    house = ShopHouse(users=users).furnish()

    async def story() -> None:
        async with Stream(house.api, PATH, x_user="heidi") as stream:
            await stream.text()
            house.clock.advance(sse.BEAT_S)
            tell(house, "known", OWN)
            await stream.until("event: known")
            found[0] = then
            house.clock.advance(sse.BEAT_S)
            tell(house, "secret", OWN)
            assert "secret" not in await stream.rest()

    try:
        run(house, story())
    finally:
        house.close()


def test_the_store_is_asked_once_however_many_watch(house: ShopHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    arun = house.app.runtime.access.arun

    async def counting(op: Any, **how: Any) -> Any:
        nonlocal asked
        asked += isinstance(op, ReadEvents) and op.watch
        return await arun(op)

    feed = EventFeed(house.app, poll_s=3600.0)
    monkeypatch.setattr(house.app.runtime.access, "arun", counting)

    async def story() -> None:
        watchers = [feed.enter(None) for _ in range(20)]
        for watcher in watchers:
            await feed.join(watcher)
        assert asked == 1
        for watcher in watchers:
            feed.leave(watcher)

    run(house, story())


def test_watching_is_said_now_and_then_and_not_with_every_look(
    house: ShopHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[bool] = []
    enough = asyncio.Event()
    arun = house.app.runtime.access.arun

    async def listening(op: Any, **how: Any) -> Any:
        said.append(op.watch)
        if len(said) == 25:
            enough.set()
        house.clock.advance(1.0)
        return await arun(op)

    feed = EventFeed(house.app, poll_s=0.0)
    monkeypatch.setattr(house.app.runtime.access, "arun", listening)

    async def story() -> None:
        watcher = await feed.join(None)
        await enough.wait()
        feed.leave(watcher)
        assert [look for look, watch in enumerate(said[:25]) if watch] == [0, 10, 20]

    run(house, story())


@pytest.fixture
def served(house: ShopHouse) -> Iterator[str]:
    """The API on a port of its own."""
    server = uvicorn.Server(uvicorn.Config(house.api, log_level="error", timeout_graceful_shutdown=1))
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listening.close()


def test_a_real_server_streams_and_stops(house: ShopHouse, served: str, viewer: dict[str, str]) -> None:
    with httpx.Client(base_url=served, headers=viewer, timeout=20) as http, http.stream("GET", PATH) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines).startswith(":")
        tell(house, "live")
        assert next(line for line in lines if line.startswith("event:")) == "event: live"


def test_a_credential_and_a_tenant_hold_a_bounded_number_of_streams(house: ShopHouse) -> None:
    """One viewer that opens streams without end takes no other's place."""
    settings = house.app.runtime.settings
    busy, same_tenant, root = (house.token(("viewer",), tenant) for tenant in (OWN, OWN, None))
    path, feed = "/api/jobs/events/stream/", house.api.state.fairlane.feed

    async def opened(stack: AsyncExitStack, token: str) -> int:
        stream = Stream(house.api, path, authorization=f"Bearer {token}")
        await stack.enter_async_context(stream)
        if stream.status != 200:
            assert "too_many_watchers" in await stream.text()
        return stream.status

    async def story() -> None:
        async with AsyncExitStack() as stack:
            at_once = await asyncio.gather(*(opened(stack, busy) for _ in range(settings.api_streams + 5)))
            assert sorted(at_once) == [200] * settings.api_streams + [429] * 5
            others = [house.app.tokens.create(f"v{n}", ["viewer"], tenant=OWN).secret for n in range(5)]
            statuses = [await opened(stack, token) for token in others for _ in range(settings.api_streams)]
            most = settings.api_tenant_streams - settings.api_streams
            assert statuses == [200] * most + [429] * (len(statuses) - most)
            assert await opened(stack, same_tenant) == 429
            assert await opened(stack, root) == 200

    run(house, story())
    assert not feed._watchers
    assert house.call("HEAD", path, busy).status_code == 200
    assert not feed._watchers, "an answer without a body holds no place"


def test_a_user_of_the_host_application_holds_a_bounded_number_of_streams() -> None:
    house = ShopHouse(
        shop(api_streams=2), users=lambda _: Person(name="heidi", roles=("viewer",), tenant=OWN)
    ).furnish()

    async def story() -> None:
        async with AsyncExitStack() as stack:
            streams = [Stream(house.api, "/api/jobs/events/stream/") for _ in range(3)]
            for stream in streams:
                await stack.enter_async_context(stream)
            assert [stream.status for stream in streams] == [200, 200, 429]

    try:
        run(house, story())
    finally:
        house.close()
