"""Routes for signals that jobs wait for."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from fairlane.api.fields import Body, Key, Name, PageSize, TenantName, many, shape
from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.client.admin.signals import SignalAdmin
from fairlane.client.context import in_scope
from fairlane.core.ops import Emitted, Signal
from fairlane.core.payload.codec import stored_json

routes = Routes("signals", "/api/jobs/signals/")

SIGNALS = shape("SignalList", signals=many(shape("KeptSignal", Signal, data=Any)))


class SignalBody(Body):
    name: Name = Field(description="What has happened.", examples=["paid"])
    data: Any = Field(default=None, description="Any JSON; jobs that wait for it get it.", examples=[{"sum": 300}])
    key: Key | None = Field(default=None, description="What it is about, such as an order's id.", examples=["order-7"])
    tenant: TenantName | None = Field(default=None, examples=["123"])
    idempotency_key: Key | None = Field(default=None, description="The same call made again is the same signal.")


@routes.get("", SignalAdmin.alist, answer=SIGNALS)
async def list_signals(ctx: Context, name: Name | None = None, key: Key | None = None, limit: PageSize = 50) -> object:
    """List the newest signals that are kept."""
    page = await ctx.app.signals.alist(name=name, key=key, limit=limit)
    fields = ("id", "tenant", "name", "key", "at")
    return {
        "signals": [
            {**{field: getattr(one, field) for field in fields}, "data": stored_json(one.data)} for one in page.signals
        ]
    }


@routes.post("", SignalAdmin.aemit, answer=Emitted)
async def emit_signal(ctx: Context, body: SignalBody) -> Emitted:
    """Emit a signal: jobs that wait for it go on, and those that come to wait later find it."""
    return await ctx.app.signals.aemit(
        body.name, body.data, tenant=in_scope(body.tenant).tenant, key=body.key, idempotency_key=body.idempotency_key
    )
