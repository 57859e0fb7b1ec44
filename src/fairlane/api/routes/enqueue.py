"""The route that enqueues jobs of registered tasks, by the application's rules."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Struct
from pydantic import Field
from starlette.responses import Response

from fairlane.api.fields import Key, Name, TenantName, accepting
from fairlane.api.request import Context
from fairlane.api.router import Routes, answered
from fairlane.client.admin.tasks import TaskAdmin
from fairlane.client.context import in_scope
from fairlane.client.enqueue.options import Options
from fairlane.errors import JobNotFound

routes = Routes("jobs", "/api/jobs/")

_RENAMED = {"delay_s": "delay", "timeout_s": "timeout", "parent_id": "parent"}
"""Fields that are options of `using(…)` under another name."""
_ACCEPTED = ("queue", "run_at", "dedup_key", "correlation_id", "max_attempts")


class JobBody(accepting(Options, *_ACCEPTED, delay_s="delay", timeout_s="timeout")):  # type: ignore[misc]  # made at run time
    type: Name = Field(description="The task's name.", examples=["email_ingestion_fetch"])
    payload: dict[str, Any] = Field(
        default={}, description="The task's arguments by name.", examples=[{"connection_id": 456}]
    )
    tenant: TenantName | None = Field(default=None, examples=["123"])
    priority: Annotated[int, Field(ge=0, le=32_767)] | Name | None = Field(default=None, examples=["high"])
    idempotency_key: Key | None = Field(default=None, examples=["email_fetch_conn_456_msg_789"])
    parent_id: UUID | None = None
    refs: dict[Key, Annotated[int, Field(ge=-(2**63), lt=2**63)] | Key] = Field(default={}, max_length=100)
    headers: dict[Key, Key] = Field(default={}, max_length=100)
    on_duplicate: Literal["return", "raise"] = Field(
        default="return", description="If the key is taken: return the existing job, or answer 409 with its id."
    )


class EnqueuedJob(Struct, frozen=True, kw_only=True):
    id: UUID
    duplicate: bool
    """The key was taken: this is the existing job, nothing was enqueued."""


@routes.post(
    "",
    TaskAdmin.aenqueue,
    status_code=201,
    answer=EnqueuedJob,
    responses={200: {"description": "the key was taken: the existing job"}},
)
async def enqueue_job(ctx: Context, body: JobBody) -> EnqueuedJob | Response:
    """Enqueue one job; it is stored when the response arrives.

    429 with Retry-After if the store, the tenant's queue or its rate is full. `created_by` is the caller.
    """
    tenant = in_scope(body.tenant).tenant
    if body.parent_id is not None and await ctx.app.jobs.aget(body.parent_id) is None:
        raise JobNotFound(body.parent_id)
    given = body.model_dump(exclude={"type", "payload", "tenant"}, exclude_unset=True, exclude_none=True)
    options: Any = {_RENAMED.get(name, name): value for name, value in given.items()}
    options |= {"created_by": ctx.caller.name, "tenant": tenant}
    handle = await ctx.app.tasks.aenqueue(body.type, body.payload, rules=ctx.app.runtime, **options)
    enqueued = EnqueuedJob(id=handle.id, duplicate=handle.duplicate)
    return answered(enqueued, EnqueuedJob) if handle.duplicate else enqueued
