"""Liveness and readiness for probes without credentials; store state and API description for authenticated callers."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from starlette.requests import Request

from fairlane.api.request import Context, State
from fairlane.api.router import Routes
from fairlane.client.admin.statistics import StatisticsAdmin
from fairlane.client.rights import Right
from fairlane.core.ops import Health

routes = Routes("health", "")


class Alive(Struct, frozen=True):
    status: str = "ok"


@routes.get("/healthz", Right.OPEN)
async def is_alive() -> Alive:
    """Report that the process is running. Does not query the store."""
    return Alive()


@routes.get("/readyz", Right.OPEN)
async def is_ready(state: State) -> Alive:
    """Report that the store can be reached; 503 if it cannot be reached."""
    await state.app.statistics.ahealth()
    return Alive()


@routes.get("/api/jobs/health/", StatisticsAdmin.ahealth)
async def show_health(ctx: Context) -> Health:
    """Show the state of the store."""
    return await ctx.app.statistics.ahealth()


@routes.get("/api/openapi.json", Right.READ)
async def describe_api(request: Request, ctx: Context) -> dict[str, Any]:
    """Return the API description as OpenAPI 3.1."""
    document: dict[str, Any] = request.app.openapi()
    return document
