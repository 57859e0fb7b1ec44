"""Breakers: which dependencies are spared; resetting and forcing one open."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from fairlane.api.auth.rights import Right
from fairlane.api.fields import Act, Name, Seen
from fairlane.api.request import Here
from fairlane.api.router import Routes
from fairlane.core.breaker import BreakerState

routes = Routes("breakers", "/api/jobs/breakers/")


class BreakerSeen(Seen):
    name: str = Field(examples=["email-service"])
    state: BreakerState
    failures: int = Field(description="In a row, while closed.")
    successes: int
    probing: int
    opened_at: datetime | None
    half_opened_at: datetime | None
    retry_at: datetime | None = Field(description="Open: when a call is tried; null: not before somebody resets it.")
    last_failure_at: datetime | None
    updated_at: datetime


class BreakerList(BaseModel):
    breakers: list[BreakerSeen]


@routes.get("", Right.READ, house_wide=True)
async def list_breakers(here: Here) -> BreakerList:
    """List every breaker that has been used."""
    return BreakerList(breakers=[BreakerSeen.model_validate(one) for one in await here.app.breakers.alist()])


@routes.post("{name}/reset/", Right.ACT, house_wide=True)
async def reset_breaker(here: Here, name: Name, body: Act | None = None) -> BreakerSeen:
    """Close a breaker by hand."""
    notes = None if body is None else body.notes
    return BreakerSeen.model_validate(await here.app.breakers.areset(name, by=here.by, notes=notes))


@routes.post("{name}/open/", Right.ACT, house_wide=True)
async def open_breaker(here: Here, name: Name, body: Act | None = None) -> BreakerSeen:
    """Open a breaker by hand, until somebody resets it."""
    notes = None if body is None else body.notes
    return BreakerSeen.model_validate(await here.app.breakers.aopen(name, by=here.by, notes=notes))
