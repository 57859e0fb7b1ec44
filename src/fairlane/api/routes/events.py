"""Routes for events: read past ones, or stream them as they happen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from fairlane.api.fields import Name
from fairlane.api.problems import Problem
from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.api.sse import EventFeed, Watcher, lines
from fairlane.client.admin.events import EventAdmin
from fairlane.core.ops import EventPage

routes = Routes("events", "/api/jobs/events/")

After = Annotated[int | None, Query(ge=0, le=2**62, description="Continue after this event.")]
Kinds = Annotated[list[Name] | None, Query(alias="kind", max_length=50, description="Only these kinds.")]


class EventStream(StreamingResponse):
    """A stream that is counted until its response ends, however it ends: the client may leave before the first line."""

    def __init__(self, stream: AsyncIterator[bytes], feed: EventFeed, watcher: Watcher) -> None:
        super().__init__(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._feed, self._watcher = feed, watcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.leave(self._watcher)


@routes.get("", EventAdmin.alist)
async def list_events(
    ctx: Context, after: After = None, kind: Kinds = None, limit: Annotated[int, Query(ge=1, le=1000)] = 200
) -> EventPage:
    """List events, oldest first; pass `last` as the `after` of the next request."""
    page = await ctx.app.events.alist(after=after or 0, kinds=tuple(kind or ()), limit=limit)
    return EventPage(events=page.events, last=page.events[-1].id if page.events else max(after or 0, page.last))


@routes.get(
    "stream/",
    EventAdmin.alist,
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def watch_events(
    request: Request,
    ctx: Context,
    after: After = None,
    kind: Kinds = None,
    last_event_id: Annotated[str | None, Header(pattern=r"^[0-9]{1,18}$")] = None,
) -> StreamingResponse:
    """Stream events as they happen (server-sent events).

    Begins after `Last-Event-ID` or `after` if given, else now. A slow reader loses nothing and costs no memory: it is
    served from the store. The stream ends when the credential does, or when the hook of the host application no
    longer returns the same user.
    """
    feed, caller = ctx.state.feed, ctx.caller
    owner = str(caller.credential_id or f"{caller.tenant}/{caller.name}")
    if full := feed.is_full(owner, caller.tenant):
        raise Problem(429, "too_many_watchers", f"{full}; close one, or try again later", retry_after_s=10.0)
    watcher = feed.enter(caller.tenant, frozenset(kind or ()), owner)
    begin = int(last_event_id) if last_event_id is not None else after
    stream = lines(
        ctx.app,
        feed,
        watcher,
        after=begin,
        roles=caller.roles,
        is_still_good=lambda: ctx.state.authenticator.is_still_good(caller, request),
    )
    return EventStream(stream, feed, watcher)
