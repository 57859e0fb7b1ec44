"""Server-sent events: the lines of one reader's stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from fairlane.api.feed import EventFeed
from fairlane.client.app import Fairlane
from fairlane.core.ops import Event, ReadEvents, Scope

BEAT_S = 15.0
"""A comment is sent after so much silence: proxies keep the connection, and a revoked credential ends it."""
PAGE = 200


async def lines(
    app: Fairlane,
    feed: EventFeed,
    scope: Scope,
    *,
    after: int | None,
    kinds: frozenset[str],
    is_still_good: Callable[[], Awaitable[bool]],
    beat_s: float = BEAT_S,
) -> AsyncIterator[bytes]:
    """Events behind `after` (None: from now on), each once and in order, for as long as somebody reads."""
    watcher = await feed.join(scope, kinds)
    asked_s = app.clock.monotonic()

    async def may_go_on(*, is_silent: bool = False) -> bool:
        # Not in silence alone: where events never cease, nobody would ever ask.
        nonlocal asked_s
        now_s = app.clock.monotonic()
        if not is_silent and now_s - asked_s < beat_s:
            return True
        asked_s = now_s
        return await is_still_good()

    try:
        yield b": these are Fairlane's events\n\n"
        last = (await app.access.arun(ReadEvents(scope=scope, after=2**62, limit=1))).last if after is None else after
        while not watcher.is_over:
            watcher.catch_up()
            while page := await _behind(app, scope, last, kinds):
                if not await may_go_on():
                    return
                for event in page:
                    yield line_of(event)
                last = page[-1].id
            while not watcher.is_behind and not watcher.is_over:
                taken = await watcher.take(beat_s)
                is_silent = not taken and not watcher.is_behind
                if not await may_go_on(is_silent=is_silent):
                    return
                for event in taken:
                    if event.id > last:
                        yield line_of(event)
                        last = event.id
                if is_silent:
                    yield b": still here\n\n"
    finally:
        feed.leave(watcher)


def line_of(event: Event) -> bytes:
    kind = event.kind.replace("\r", " ").replace("\n", " ")
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, kind.encode(), msgspec.json.encode(event))


async def _behind(app: Fairlane, scope: Scope, last: int, kinds: frozenset[str]) -> tuple[Event, ...]:
    op = ReadEvents(scope=scope, after=last, kinds=tuple(sorted(kinds)), limit=PAGE)
    return (await app.access.arun(op)).events
