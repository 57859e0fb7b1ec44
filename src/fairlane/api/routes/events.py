"""Routes for events: read past ones, or stream them as they happen."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query
from starlette.requests import Request
from starlette.responses import StreamingResponse

from fairlane.api.fields import Name
from fairlane.api.problems import Problem
from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.api.sse import lines
from fairlane.client.admin.events import EventAdmin
from fairlane.core.ops import EventPage

routes = Routes("events", "/api/jobs/events/")

After = Annotated[int | None, Query(ge=0, le=2**62, description="Continue after this event.")]
Kinds = Annotated[list[Name] | None, Query(alias="kind", max_length=50, description="Only these kinds.")]


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
    feed = ctx.state.feed
    if feed.is_full:
        raise Problem(
            429, "too_many_watchers", "this process already serves its maximum of streams", retry_after_s=10.0
        )
    begin = int(last_event_id) if last_event_id is not None else after
    stream = lines(
        ctx.app,
        feed,
        ctx.caller.tenant,
        after=begin,
        kinds=frozenset(kind or ()),
        roles=ctx.caller.roles,
        is_still_good=lambda: ctx.state.authenticator.is_still_good(ctx.caller, request),
    )
    return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
