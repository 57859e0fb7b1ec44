"""Events: read back, or watched as they happen."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Header, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import StreamingResponse

from fairlane.api.auth.rights import Right
from fairlane.api.fields import Name, Seen
from fairlane.api.problems import Problem
from fairlane.api.request import Here
from fairlane.api.router import Routes
from fairlane.api.sse import lines
from fairlane.core.ops import ReadEvents

routes = Routes("events", "/api/jobs/events/")

After = Annotated[int | None, Query(ge=0, le=2**62, description="Go on behind this event.")]
Kinds = Annotated[list[Name] | None, Query(alias="kind", max_length=50, description="Only these kinds.")]


class EventSeen(Seen):
    id: int
    at: datetime
    kind: str = Field(examples=["job_limit_warning"])
    tenant: str | None
    data: dict[str, Any] = Field(examples=[{"organization": "acme", "queue": "bulk"}])


class EventList(BaseModel):
    events: list[EventSeen]
    last: int = Field(description="Pass as `after` to go on, once the events here are dealt with.")


@routes.get("", Right.READ)
async def list_events(
    here: Here, after: After = None, kind: Kinds = None, limit: Annotated[int, Query(ge=1, le=1000)] = 200
) -> EventList:
    """Read events back, oldest first."""
    page = await here.ask(ReadEvents(scope=here.scope, after=after or 0, kinds=tuple(kind or ()), limit=limit))
    events = [EventSeen.model_validate(event) for event in page.events]
    return EventList(events=events, last=events[-1].id if events else max(after or 0, page.last))


@routes.get(
    "stream/",
    Right.READ,
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def watch_events(
    request: Request,
    here: Here,
    after: After = None,
    kind: Kinds = None,
    last_event_id: Annotated[str | None, Header(pattern=r"^[0-9]{1,18}$")] = None,
) -> StreamingResponse:
    """Watch events as they happen (server-sent events).

    Goes on behind `Last-Event-ID` or `after` where given, else begins now. A slow reader loses nothing and costs no memory: it is
    served from the store. It ends when the credential does, or when the host application no longer says the same of its user.
    """
    feed = here.house.feed
    if feed.is_full:
        raise Problem(429, "too_many_watchers", "this process serves as many streams as it can", retry_after_s=10.0)
    begin = int(last_event_id) if last_event_id is not None else after
    stream = lines(
        here.app,
        feed,
        here.scope,
        after=begin,
        kinds=frozenset(kind or ()),
        is_still_good=lambda: here.house.door.is_still_good(here.caller, request),
    )
    return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
