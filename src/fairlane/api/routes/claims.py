"""Routes for code of any language that claims jobs by hand: claim, renew, complete, fail and release one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from msgspec import Struct
from pydantic import Field

from fairlane.api.fields import Body, Key, Name, Words
from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.api.routes.jobs import JOB, PAYLOAD, Delay
from fairlane.client.admin.claims import LEASE_S, LONGEST_LEASE_S, SHORTEST_LEASE_S, ClaimedJob, ClaimVerbs
from fairlane.client.app import Fairlane
from fairlane.core.job import DEFAULT_QUEUE, ErrorClass, Job
from fairlane.core.payload.codec import stored_json
from fairlane.errors import JobNotFound

routes = Routes("claims", "/api/jobs/claims/")

LeaseSpan = Annotated[
    float,
    Field(ge=SHORTEST_LEASE_S, le=LONGEST_LEASE_S, description="The job runs again after it unless it is renewed."),
]
Names = Annotated[list[Name], Field(min_length=1, max_length=100)]


class ClaimBody(Body):
    queues: Names = Field(default=[DEFAULT_QUEUE], description="Tried in this order.", examples=[["legacy"]])
    types: Names | None = Field(default=None, description="Only jobs of these tasks.", examples=[["mail.send"]])
    lease_s: LeaseSpan = LEASE_S
    worker: Key | None = Field(default=None, description="A name for people; by default the caller's.")


class CompleteBody(Body):
    result: Any = Field(default=None, description="Any JSON; kept with the job.")


class FailClaimBody(Body):
    message: Words = Field(examples=["the mail server hung up"])
    error_class: ErrorClass = Field(default="retryable", description="Decides whether and when the job runs again.")
    retry: bool = Field(default=True, description="False: it is a dead letter now.")
    retry_after_s: Delay | None = Field(default=None, description="How long the other side asked to wait.")
    error_type: Key | None = Field(default=None, examples=["smtplib.SMTPServerDisconnected"])


class RenewBody(Body):
    lease_s: LeaseSpan = LEASE_S


class Claim(Struct, frozen=True, kw_only=True):
    """A job that is the caller's until its lease ends."""

    token: UUID
    """Names the claim in the calls that follow."""
    lease_until: datetime
    id: UUID
    type: str
    tenant: str
    queue: str
    attempt: int
    attempts: int
    """Attempts that failed before this one."""
    max_attempts: int
    correlation_id: str
    idempotency_key: str
    payload: PAYLOAD
    payload_version: int


class ClaimAnswer(Struct, frozen=True, kw_only=True):
    claim: Claim | None
    """Null: there is no job to claim now."""


class ClaimEnd(Struct, frozen=True, kw_only=True):
    lease_until: datetime


_SHOWN = tuple(name for name in Claim.__struct_fields__ if not name.startswith("payload"))


@routes.post("", ClaimVerbs.aclaim, all_tenants=True, answer=ClaimAnswer)
async def claim_job(ctx: Context, body: ClaimBody) -> object:
    """Claim the next ready job of these queues, for code that is no registered task."""
    worker = body.worker or ctx.by
    claimed = await ctx.app.jobs.aclaim(body.queues, types=body.types, lease=body.lease_s, worker=worker)
    if claimed is None:
        return {"claim": None}
    more = {"payload": stored_json(claimed.lease.payload), "payload_version": claimed.lease.payload_version}
    return {"claim": {**{name: getattr(claimed, name) for name in _SHOWN}, **more}}


@routes.post("{token}/complete/", ClaimVerbs.aclaimed, all_tenants=True, answer=JOB)
async def complete_claim(ctx: Context, token: UUID, body: CompleteBody) -> Job:
    """The job is done; its result is kept. 409 if the claim does not hold it any more."""
    claimed = await ctx.app.jobs.aclaimed(token)
    await claimed.acomplete(body.result)
    return await _job(ctx.app, claimed)


@routes.post("{token}/fail/", ClaimVerbs.aclaimed, all_tenants=True, answer=JOB)
async def fail_claim(ctx: Context, token: UUID, body: FailClaimBody) -> Job:
    """The attempt failed: the job runs again by the rules of a worker, or is a dead letter."""
    claimed = await ctx.app.jobs.aclaimed(token)
    await claimed.afail(
        body.message,
        error_class=body.error_class,
        retry=body.retry,
        retry_after=body.retry_after_s,
        error_type=body.error_type,
    )
    return await _job(ctx.app, claimed)


@routes.post("{token}/release/", ClaimVerbs.aclaimed, all_tenants=True, answer=JOB)
async def release_claim(ctx: Context, token: UUID) -> Job:
    """Give the job back: it is ready again and no attempt is counted."""
    claimed = await ctx.app.jobs.aclaimed(token)
    await claimed.arelease()
    return await _job(ctx.app, claimed)


@routes.post("{token}/renew/", ClaimVerbs.aclaimed, all_tenants=True, answer=ClaimEnd)
async def renew_claim(ctx: Context, token: UUID, body: RenewBody) -> ClaimEnd:
    """Keep the job for longer, from now on."""
    claimed = await ctx.app.jobs.aclaimed(token)
    return ClaimEnd(lease_until=await claimed.arenew(body.lease_s))


async def _job(app: Fairlane, claimed: ClaimedJob) -> Job:
    job = await app.jobs.aget(claimed.id)
    if job is None:
        raise JobNotFound(claimed.id)
    return job
