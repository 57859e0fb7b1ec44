"""Is it alive, is it ready; for probes, which have no credentials."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field
from starlette.requests import Request

from fairlane.api.auth.rights import Right
from fairlane.api.fields import Seen
from fairlane.api.request import Here, ThisHouse
from fairlane.api.router import Routes
from fairlane.core.ops import Check

routes = Routes("health", "")


class Alive(BaseModel):
    status: str = Field(examples=["ok"])


class StoreHealth(Seen):
    """The store as it says of itself."""

    now: datetime
    store: str = Field(examples=["postgresql"])
    server: str
    schema_version: int
    durable: bool
    degraded: list[str] = Field(description="What keeps it from being durable or safe, each with the remedy.")


@routes.get("/healthz", Right.OPEN)
async def is_alive() -> Alive:
    """Say that the process answers. Asks nothing of the store."""
    return Alive(status="ok")


@routes.get("/readyz", Right.OPEN)
async def is_ready(house: ThisHouse) -> Alive:
    """Say that the store can be reached; 503 where it cannot."""
    await house.app.runtime.access.arun(Check())
    return Alive(status="ok")


@routes.get("/api/jobs/health/", Right.READ)
async def show_health(here: Here) -> StoreHealth:
    """Look at the store's own state."""
    return StoreHealth.model_validate(await here.app.statistics.ahealth())


@routes.get("/api/openapi.json", Right.READ, include_in_schema=True)
async def describe_api(request: Request, here: Here) -> dict[str, Any]:
    """Read this description, as OpenAPI 3.1."""
    document: dict[str, Any] = request.app.openapi()
    return document
