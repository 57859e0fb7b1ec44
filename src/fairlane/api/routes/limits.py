"""Limits set at run time, beside those of the code."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field

from fairlane.api.auth.rights import Right
from fairlane.api.fields import Act, Name, Seen, TenantName
from fairlane.api.problems import Problem
from fairlane.api.request import Here
from fairlane.api.router import Routes
from fairlane.core.ids import EVERY_TENANT
from fairlane.core.limits import FullPolicy, Limit, LimitKind, Rate, StoredLimit, check_limit, rate_text, read_rate
from fairlane.core.ops import ClearLimit, ListLimits, SetLimit

routes = Routes("limits", "/api/jobs/limits/")

Number = Annotated[int, Field(ge=-1, le=2**31 - 1, description="-1: no limit.")]
RateText = Annotated[str, Field(max_length=40, pattern=r"^[0-9a-z /.]+$", examples=["50/min"])]


class LimitSeen(BaseModel):
    kind: LimitKind
    name: str = Field(description="Of the queue, tenant (* is every tenant), task, or its own.", examples=["acme"])
    queue: str = Field(description="A tenant's limit in this queue alone; empty: over all.")
    running: int | None = Field(description="At once; -1: no limit, said out loud; null: nothing is said.")
    rate: str | None = Field(description="Starts in a span of time.", examples=["50/min"])
    waiting: int | None
    when_full: FullPolicy | None
    enqueue_rate: str | None
    payload_bytes: int | None
    types: list[str]
    set_by: str | None = Field(description="Who set it; null: the code.")
    set_at: datetime | None
    paused_until: datetime | None


class LimitList(BaseModel):
    limits: list[LimitSeen] = Field(description="Those people set; they win over the code's.")
    code_limits: list[LimitSeen] = Field(description="What settings and code allow.")


class AboutLimit(Act):
    kind: LimitKind
    name: TenantName = Field(examples=["acme"])
    queue: Name | None = None


class NewLimit(AboutLimit):
    running: Number | None = None
    rate: RateText | None = None
    waiting: Number | None = None
    when_full: FullPolicy | None = None
    enqueue_rate: RateText | None = None
    payload_bytes: Number | None = None
    types: list[Name] = Field(default=[], max_length=1000, description="For a named limit: the tasks that share it.")


class LimitCleared(Seen):
    changed: bool


@routes.get("", Right.READ)
async def list_limits(here: Here) -> LimitList:
    """List limits: those set at run time, and the code's."""
    kept = (await here.ask(ListLimits())).limits
    given = here.app.limits.declared
    if here.tenant is not None:
        kept = tuple(record for record in kept if _concerns(record.limit, here.tenant))
        given = tuple(limit for limit in given if _concerns(limit, here.tenant))
    return LimitList(limits=[_kept(record) for record in kept], code_limits=[_seen(limit) for limit in given])


@routes.put("", Right.ACT, house_wide=True)
async def set_limit(here: Here, body: NewLimit) -> LimitSeen:
    """Set what one queue, tenant, task or named limit is allowed, in place of what was set before; in force at once."""
    limit = Limit(
        kind=body.kind,
        name=body.name,
        queue=body.queue or "",
        running=body.running,
        rate=_rate("rate", body.rate),
        waiting=body.waiting,
        when_full=body.when_full,
        enqueue_rate=_rate("enqueue_rate", body.enqueue_rate),
        payload_bytes=body.payload_bytes,
        types=tuple(body.types),
    )
    if limit == Limit(kind=limit.kind, name=limit.name, queue=limit.queue):
        raise Problem(422, "invalid_option", "limit: expected at least one figure; clear takes back what was set")
    answer = await here.ask(SetLimit(limit=check_limit(limit), by=here.by, notes=body.notes))
    return next(_kept(record) for record in answer.limits if record.limit.key == limit.key)


@routes.post("clear/", Right.ACT, house_wide=True)
async def clear_limit(here: Here, body: AboutLimit) -> LimitCleared:
    """Take back what was set: the code's own limit is in force again."""
    op = ClearLimit(kind=body.kind, name=body.name, queue=body.queue or "", by=here.by, notes=body.notes)
    return LimitCleared(changed=(await here.ask(op)).changed)


def _concerns(limit: Limit, tenant: str) -> bool:
    return limit.kind == "tenant" and limit.name in {tenant, EVERY_TENANT}


def _rate(option: str, text: str | None) -> Rate | None:
    return None if text is None else read_rate(option, text)


def _kept(record: StoredLimit) -> LimitSeen:
    return _seen(record.limit, set_by=record.by, set_at=record.at, paused_until=record.paused_until)


def _seen(limit: Limit, **kept: Any) -> LimitSeen:
    return LimitSeen(
        kind=limit.kind,
        name=limit.name,
        queue=limit.queue,
        running=limit.running,
        rate=None if limit.rate is None else rate_text(limit.rate),
        waiting=limit.waiting,
        when_full=limit.when_full,
        enqueue_rate=None if limit.enqueue_rate is None else rate_text(limit.enqueue_rate),
        payload_bytes=limit.payload_bytes,
        types=list(limit.types),
        **{"set_by": None, "set_at": None, "paused_until": None, **kept},
    )


def limits_of(records: tuple[StoredLimit, ...]) -> list[LimitSeen]:
    return [_kept(record) for record in records]
