"""Routes for limits: those set at run time, those declared by code, and the keys at which jobs wait."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from pydantic import Field

from fairlane.api.fields import ActBody, Key, Name, PageSize, TenantName, accepting, many, shape
from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.client.admin.limits import LimitAdmin
from fairlane.core.ids import EVERY_TENANT
from fairlane.core.limits import Limit, LimitKind, StoredLimit
from fairlane.core.ops import KeyUse
from fairlane.errors import InvalidOption

routes = Routes("limits", "/api/jobs/limits/")

_RATE = Annotated[str | None, Meta(description="How many in a span of time, such as `100/min`.", examples=["50/min"])]
LIMIT = shape(
    "LimitSummary",
    Limit,
    rate=_RATE,
    enqueue_rate=_RATE,
    by=Annotated[str | None, Meta(description="Who set it; null if declared by code.")],
    at=datetime | None,
    paused_until=datetime | None,
)
LIMITS = shape(
    "LimitList",
    limits=many(LIMIT, "Set at run time; they override the code's."),
    code_limits=many(LIMIT, "Declared by settings and code."),
)
KEYS = shape("KeyList", keys=many(shape("KeySummary", KeyUse, rate=_RATE), "Those with the most waiting jobs first."))
CLEARED = shape("LimitCleared", changed=bool)


class AboutLimitBody(ActBody):
    kind: LimitKind
    name: TenantName = Field(examples=["acme"])
    queue: Name | None = None

    def about(self) -> dict[str, Any]:
        """The target of the limit, as the client's arguments."""
        if self.queue is not None and self.kind != "tenant":
            raise InvalidOption("queue", self.queue, "none, unless the limit is a tenant's")
        option = {"type": "task", "named": "name"}.get(self.kind, self.kind)
        return {option: self.name, **({} if self.queue is None else {"queue": self.queue})}


_FIGURES = ("running", "rate", "waiting", "when_full", "enqueue_rate", "payload_bytes", "types")


class LimitBody(accepting(Limit, *_FIGURES, base=AboutLimitBody)):  # type: ignore[misc]  # made at run time
    pass


@routes.get("", LimitAdmin.alist, answer=LIMITS)
async def list_limits(ctx: Context) -> object:
    """List limits set at run time, and those declared by code."""
    stored, declared, tenant = await ctx.app.limits.alist(), ctx.app.limits.declared, ctx.caller.tenant
    return {
        "limits": stored_limits(one for one in stored if tenant is None or concerns(one.limit, tenant)),
        "code_limits": [_summary(limit) for limit in declared if tenant is None or concerns(limit, tenant)],
    }


@routes.put("", LimitAdmin.aset, all_tenants=True, answer=LIMIT)
async def set_limit(ctx: Context, body: LimitBody) -> object:
    """Set the limit of one queue, tenant, task or name, or of each key of a name, at once.

    Replaces the limit set before.
    """
    figures = body.model_dump(exclude={"kind", "name", "queue"}, exclude_none=True)
    stored = await ctx.app.limits.aset(**body.about(), **figures, by=ctx.by)
    key = (body.kind, body.name, body.queue or "")
    return stored_limits(one for one in stored if one.limit.key == key)[0]


@routes.post("clear/", LimitAdmin.aclear, all_tenants=True, answer=CLEARED)
async def clear_limit(ctx: Context, body: AboutLimitBody) -> object:
    """Remove a limit set at run time; the code's own limit applies again."""
    return {"changed": await ctx.app.limits.aclear(**body.about(), by=ctx.by, notes=body.notes)}


@routes.get("keys/", LimitAdmin.akeys, answer=KEYS)
async def list_keys(
    ctx: Context, name: Name | None = None, key: Key | None = None, tenant: TenantName | None = None,
    limit: PageSize = 50,
) -> object:  # fmt: skip
    """List the keys at which jobs wait, with who has their places."""
    keys = await ctx.app.limits.akeys(name=name, key=key, tenant=tenant, limit=limit)
    rates = [None if use.rate is None else str(use.rate) for use in keys]
    return {"keys": [{**msgspec.structs.asdict(use), "rate": rate} for use, rate in zip(keys, rates, strict=True)]}


def stored_limits(records: Iterable[StoredLimit]) -> list[dict[str, Any]]:
    """Limits set at run time as a response body."""
    return [_summary(one.limit, by=one.by, at=one.at, paused_until=one.paused_until) for one in records]


def concerns(limit: Limit, tenant: str) -> bool:
    """Whether a limit is one of a tenant's own; others are not shown to those who are bound to it."""
    return limit.kind == "tenant" and limit.name in {tenant, EVERY_TENANT}


def _summary(limit: Limit, **stored: Any) -> dict[str, Any]:
    rates = {"rate": limit.rate, "enqueue_rate": limit.enqueue_rate}
    return {
        **msgspec.structs.asdict(limit),
        **{name: None if rate is None else str(rate) for name, rate in rates.items()},
        "by": None,
        "at": None,
        "paused_until": None,
        **stored,
    }
