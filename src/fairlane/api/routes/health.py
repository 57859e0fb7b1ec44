"""Liveness and readiness for probes without credentials; store state, API description and Prometheus metrics."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from fairlane.api.fields import TenantName
from fairlane.api.problems import Problem
from fairlane.api.request import Context, State
from fairlane.api.router import Routes
from fairlane.client.admin.statistics import StatisticsAdmin
from fairlane.client.rights import Right
from fairlane.core.ops import Health
from fairlane.metrics import CONTENT_TYPE, aexposition

routes = Routes("health", "")
metrics_routes = Routes("metrics", "/metrics")
tenant_metrics_routes = Routes("metrics", "/api/jobs/tenants/")


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


class Exposition(Response):
    media_type = CONTENT_TYPE


_TEXT = {200: {"description": "Prometheus's text format", "content": {"text/plain": {"schema": {"type": "string"}}}}}


@metrics_routes.get("", Right.METRICS, all_tenants=True, response_class=Exposition, responses=_TEXT)
async def show_metrics(ctx: Context) -> Response:
    """Return the metrics of all tenants; the busiest have their own labels."""
    return Exposition(await aexposition(ctx.app))


@tenant_metrics_routes.get("{name:path}/metrics/", Right.METRICS, response_class=Exposition, responses=_TEXT)
async def show_tenant_metrics(ctx: Context, name: TenantName) -> Response:
    """Return the metrics of one tenant."""
    if ctx.caller.tenant not in {None, name}:
        raise Problem(404, "tenant_not_found", "no such tenant here")
    return Exposition(await aexposition(ctx.app, tenant=name))
