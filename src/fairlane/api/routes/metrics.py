"""Routes for Prometheus metrics: of all tenants, and of one."""

from __future__ import annotations

from starlette.responses import Response

from fairlane.api.fields import TenantName
from fairlane.api.problems import Problem
from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.client.rights import Right
from fairlane.metrics import CONTENT_TYPE, aexposition

routes = Routes("metrics", "/metrics")
tenant_routes = Routes("metrics", "/api/jobs/tenants/")


class Exposition(Response):
    media_type = CONTENT_TYPE


_TEXT = {200: {"description": "Prometheus's text format", "content": {"text/plain": {"schema": {"type": "string"}}}}}


@routes.get("", Right.METRICS, all_tenants=True, response_class=Exposition, responses=_TEXT)
async def show_metrics(ctx: Context) -> Response:
    """Return the metrics of all tenants; the busiest have their own labels."""
    return Exposition(await aexposition(ctx.app))


@tenant_routes.get("{name:path}/metrics/", Right.METRICS, response_class=Exposition, responses=_TEXT)
async def show_tenant_metrics(ctx: Context, name: TenantName) -> Response:
    """Return the metrics of one tenant."""
    if ctx.caller.tenant not in {None, name}:
        raise Problem(404, "tenant_not_found", "no such tenant here")
    return Exposition(await aexposition(ctx.app, tenant=name))
