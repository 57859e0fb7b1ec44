"""The route that enqueues jobs of registered tasks, by the application's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

from msgspec import Struct
from pydantic import Field
from starlette.responses import Response

from fairlane.api.auth.admission import Caller
from fairlane.api.fields import Key, Name, TenantName, accepting
from fairlane.api.request import Context
from fairlane.api.router import Routes, answered
from fairlane.client.admin.tasks import TaskAdmin
from fairlane.client.context import in_scope
from fairlane.client.enqueue.options import Options
from fairlane.core.job import DEFAULT_QUEUE
from fairlane.core.job_keys import JobKey, OnConflict
from fairlane.core.limits import read_rate
from fairlane.errors import InvalidOption, JobNotFound

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane

routes = Routes("jobs", "/api/jobs/")

_RENAMED = {"delay_s": "delay", "timeout_s": "timeout", "parent_id": "parent"}
"""Fields that are options of `using(…)` under another name."""
_SETTINGS = {"priority": "priority", "queue": "queues", "max_attempts": "max_attempts"}
_ACCEPTED = ("queue", "run_at", "dedup_key", "correlation_id", "max_attempts")


class KeyBody(accepting(JobKey, "running", "rate", "ordered", "on_conflict")):  # type: ignore[misc]  # made at run time
    """A key with what is said of it; text alone takes the rest from the task."""

    value: Key = Field(examples=["customer:42"])

    def key(self) -> JobKey:
        given = self.model_dump()
        return JobKey(**{**given, "rate": None if self.rate is None else read_rate("rate", self.rate)})


class JobBody(accepting(Options, *_ACCEPTED, delay_s="delay", timeout_s="timeout")):  # type: ignore[misc]  # made at run time
    type: Name = Field(description="The task's name.", examples=["email_ingestion_fetch"])
    payload: dict[str, Any] = Field(
        default={}, description="The task's arguments by name.", examples=[{"connection_id": 456}]
    )
    tenant: TenantName | None = Field(default=None, examples=["123"])
    priority: Annotated[int, Field(ge=0, le=32_767)] | Name | None = Field(default=None, examples=["high"])
    key: Key | KeyBody | None = Field(
        default=None, description="Jobs with one key wait for each other.", examples=["customer:42"]
    )
    ordered: bool | None = Field(default=None, description="Jobs with its key run one by one, as they were enqueued.")
    on_conflict: OnConflict | None = Field(default=None, description="While its key has no place; default: `wait`.")
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
    refuse_beyond_caps(
        ctx.app, ctx.caller, body.type, priority=body.priority, queue=body.queue, max_attempts=body.max_attempts,
        key=body.key,
    )  # fmt: skip
    given = body.model_dump(exclude={"type", "payload", "tenant"}, exclude_unset=True, exclude_none=True)
    options: Any = {_RENAMED.get(name, name): value for name, value in given.items()}
    options |= {"created_by": ctx.caller.name, "tenant": tenant}
    if isinstance(body.key, KeyBody):
        options["key"] = body.key.key()
    handle = await ctx.app.tasks.aenqueue(body.type, body.payload, rules=ctx.app.runtime, **options)
    enqueued = EnqueuedJob(id=handle.id, duplicate=handle.duplicate)
    return answered(enqueued, EnqueuedJob) if handle.duplicate else enqueued


def refuse_beyond_caps(
    app: Fairlane,
    caller: Caller,
    type: str,
    *,
    priority: str | int | None = None,
    queue: str | None = None,
    max_attempts: int | None = None,
    key: object = None,
) -> None:
    """Refuse options by which a caller bound to a tenant would run before or beside the jobs of other tenants.

    What the task itself declares is always allowed; of one that is not known here, the default queue.
    """
    task, settings = app.tasks.get(type), app.runtime.settings
    if caller.tenant is None:
        return
    queues = {DEFAULT_QUEUE if task is None else task.definition.queue, *settings.api_tenant_queues}
    if queue is not None and queue not in queues:
        raise _beyond("queue", queue, " or ".join(f'"{allowed}"' for allowed in sorted(queues)))
    if task is None:
        return
    own = task.definition
    if key is not None and own.key is not None:
        raise InvalidOption("key", key, "none: you are bound to a tenant, and the task gives its jobs their keys")
    if priority is not None:
        highest = min(settings.api_tenant_priority, own.priority)
        if app.runtime.preparer.priorities.resolve(priority) < highest:
            raise _beyond("priority", priority, f"{highest} or a higher number, which is less urgent")
    highest = max(settings.api_tenant_max_attempts, own.max_attempts or 0)
    if (max_attempts or 0) > highest:
        raise _beyond("max_attempts", max_attempts, f"at most {highest}")


def _beyond(option: str, given: object, expected: str) -> InvalidOption:
    return InvalidOption(
        option, given, f"{expected}: you are bound to a tenant; the setting api_tenant_{_SETTINGS[option]} allows more"
    )
