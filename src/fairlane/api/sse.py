"""Server-sent events: the process reads the store once, and every reader gets a copy.

    store ──app.events── EventFeed ──┬── Watcher (a few hundred events at most) ── one reader
                                     └── Watcher …

A reader too slow for its watcher loses nothing: it catches up from the store.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

import msgspec

from fairlane.client.app import Fairlane
from fairlane.client.context import all_tenants
from fairlane.client.rights import holding, visible
from fairlane.core.ops import Event
from fairlane.errors import StoreError

POLL_S = 1.0
WATCH_S = 10.0
"""How often a poll also registers a watcher: a write, which the store keeps three times as long."""
PAGE = 1_000
MOST_BUFFERED = 500
MOST_WATCHERS = 200
BEYOND = 2**62
"""An id greater than every event's: reading after it returns only the last id so far."""


class Watcher:
    """The events that one reader has not received yet."""

    def __init__(self, tenant: str | None, kinds: frozenset[str], owner: str, most: int) -> None:
        self.tenant, self.kinds, self.owner, self._most = tenant, kinds, owner, most
        self._waiting: deque[Event] = deque()
        self._woken = asyncio.Event()
        self.is_behind = False
        """Events were dropped: call `catch_up`, then read them from the store."""
        self.is_over = False

    def offer(self, event: Event) -> None:
        if self.is_behind or not self._wants(event):
            return
        if len(self._waiting) >= self._most:
            self.is_behind = True
            self._waiting.clear()
        else:
            self._waiting.append(event)
        self._woken.set()

    def catch_up(self) -> None:
        """Accept events again. Call it before reading the store, or the events in between are missed."""
        self._waiting.clear()
        self.is_behind = False

    def end(self) -> None:
        self.is_over = True
        self._woken.set()

    async def take(self, within_s: float) -> list[Event]:
        """The events received; none after `within_s` seconds without any."""
        if not self._waiting and not self.is_behind and not self.is_over:
            self._woken.clear()
            try:
                await asyncio.wait_for(self._woken.wait(), within_s)
            except TimeoutError:
                return []
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def _wants(self, event: Event) -> bool:
        if self.tenant is not None and event.tenant != self.tenant:
            return False
        return not self.kinds or event.kind in self.kinds


class EventFeed:
    """Reads the store only while somebody watches. Belongs to one event loop."""

    def __init__(self, app: Fairlane, *, poll_s: float = POLL_S, most_buffered: int = MOST_BUFFERED) -> None:
        self._app, self._poll_s, self._most_buffered = app, poll_s, most_buffered
        self._watchers: set[Watcher] = set()
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    def is_full(self, owner: str, tenant: str | None) -> str | None:
        """What keeps this owner from one more stream; None if nothing does."""
        settings = self._app.runtime.settings
        if sum(watcher.owner == owner for watcher in self._watchers) >= settings.api_streams:
            return f"this credential already holds its {settings.api_streams} streams"
        of_tenant = sum(watcher.tenant == tenant for watcher in self._watchers)
        if tenant is not None and of_tenant >= settings.api_tenant_streams:
            return f"this tenant already holds its {settings.api_tenant_streams} streams"
        return "this process already serves its maximum of streams" if len(self._watchers) >= MOST_WATCHERS else None

    def enter(self, tenant: str | None, kinds: frozenset[str] = frozenset(), owner: str = "") -> Watcher:
        """A watcher, counted from here on: `join` starts it, `leave` removes it."""
        watcher = Watcher(tenant, kinds, owner, self._most_buffered)
        self._watchers.add(watcher)
        return watcher

    async def join(self, watcher: Watcher) -> None:
        """Start a watcher: it receives every event committed from now on; read earlier ones from the store."""
        if self._task is None or self._task.done():
            self._ready = asyncio.Event()
            # A task keeps the context it is created in; this one reads for callers of all tenants and roles.
            with all_tenants(), holding(None):
                self._task = asyncio.create_task(self._run(), name="fairlane event feed")
        try:
            await self._ready.wait()
        except BaseException:
            self.leave(watcher)
            raise

    def leave(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)
        if not self._watchers and self._task is not None:
            self._task.cancel()
            self._task = None

    def stop(self) -> None:
        """End every stream, because the process is stopping."""
        for watcher in list(self._watchers):
            watcher.end()

    async def _run(self) -> None:
        last, watched_s = -1, -math.inf
        try:
            while True:
                now_s = self._app.runtime.clock.monotonic()
                watch = now_s - watched_s >= WATCH_S
                try:
                    after = BEYOND if last < 0 else last
                    page = await self._app.events.alist(after=after, limit=PAGE, watch=watch)
                except StoreError:
                    await asyncio.sleep(self._poll_s)
                    continue
                watched_s = now_s if watch else watched_s
                for event in page.events:
                    for watcher in self._watchers:
                        watcher.offer(event)
                last = page.events[-1].id if page.events else page.last if last < 0 else last
                self._ready.set()
                if len(page.events) < PAGE:
                    await asyncio.sleep(self._poll_s)
        finally:
            self._ready.set()
            for watcher in self._watchers:
                watcher.end()


BEAT_S = 15.0
"""Seconds without events before a comment is sent: it keeps proxies connected and detects revoked credentials."""
STREAM_PAGE = 200


async def lines(
    app: Fairlane,
    feed: EventFeed,
    watcher: Watcher,
    *,
    after: int | None,
    roles: Iterable[str],
    is_still_good: Callable[[], Awaitable[bool]],
    beat_s: float = BEAT_S,
) -> AsyncIterator[bytes]:
    """Events after `after` (None: from now on), each once and in order, as these roles may see them."""
    tenant = watcher.tenant
    await feed.join(watcher)
    asked_s = app.runtime.clock.monotonic()

    async def may_go_on(*, is_silent: bool = False) -> bool:
        # Checked during steady traffic too, not only in silence.
        nonlocal asked_s
        now_s = app.runtime.clock.monotonic()
        if not is_silent and now_s - asked_s < beat_s:
            return True
        asked_s = now_s
        return await is_still_good()

    try:
        yield b": these are Fairlane's events\n\n"
        last = after if after is not None else (await app.events.alist(after=BEYOND, limit=1, tenant=tenant)).last
        while not watcher.is_over:
            watcher.catch_up()
            while page := await _behind(app, tenant, last, watcher.kinds):
                if not await may_go_on():
                    return
                for event in page:
                    yield line_of(visible(event, roles))
                last = page[-1].id
            while not watcher.is_behind and not watcher.is_over:
                taken = await watcher.take(beat_s)
                is_silent = not taken and not watcher.is_behind
                if not await may_go_on(is_silent=is_silent):
                    return
                for event in taken:
                    if event.id > last:
                        yield line_of(visible(event, roles))
                        last = event.id
                if is_silent:
                    yield b": still here\n\n"
    finally:
        feed.leave(watcher)


def line_of(event: Event) -> bytes:
    kind = event.kind.replace("\r", " ").replace("\n", " ")
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, kind.encode(), msgspec.json.encode(event))


async def _behind(app: Fairlane, tenant: str | None, last: int, kinds: frozenset[str]) -> tuple[Event, ...]:
    return (await app.events.alist(after=last, kinds=tuple(sorted(kinds)), tenant=tenant, limit=STREAM_PAGE)).events
