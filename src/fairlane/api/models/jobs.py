"""Jobs and their attempts, as answers show them. Listings never hold payloads, headers or results."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from pydantic import BaseModel, Field

from fairlane.api.fields import Seen
from fairlane.api.paging import NextCursor
from fairlane.core.job import AttemptOutcome, ErrorClass, Job, Status
from fairlane.core.ops import JobDetail, JobPage
from fairlane.core.payload.redaction import value_without_secrets
from fairlane.core.payload.secrets import SensitivePolicy


class JobSummary(Seen):
    seq: int = Field(
        description="The store's own number: it orders jobs, and is the id of the dead letter.", examples=[41]
    )
    id: UUID
    type: str = Field(examples=["email_ingestion_fetch"])
    status: Status
    tenant: str = Field(examples=["123"])
    queue: str = Field(examples=["default"])
    priority: int = Field(examples=[5])
    category: str | None = Field(examples=["ingestion"])
    idempotency_key: str = Field(examples=["email_fetch_conn_456_msg_789"])
    dedup_key: str | None
    correlation_id: str
    parent_id: UUID | None
    created_by: str | None
    refs: dict[str, int | str] = Field(examples=[{"connection_id": 456}])
    attempt: int = Field(description="Grows at every claim.")
    attempts: int = Field(description="Runs that failed and were charged.")
    crashes: int
    max_attempts: int
    timeout_s: float | None
    enqueued_at: datetime
    scheduled_at: datetime = Field(description="When it was first due.")
    run_at: datetime = Field(description="When it is, or was last, due.")
    started_at: datetime | None
    finished_at: datetime | None
    worker: UUID | None
    cancel_requested: bool
    error_class: ErrorClass | None
    error_type: str | None
    last_error: str | None
    last_error_at: datetime | None


class AttemptSeen(Seen):
    attempt: int
    outcome: AttemptOutcome
    worker: UUID | None
    leased_at: datetime
    started_at: datetime | None
    ended_at: datetime
    error_class: ErrorClass | None
    error_type: str | None
    error_message: str | None
    traceback: str | None


class LogLineSeen(Seen):
    at: datetime
    attempt: int
    message: str


class JobSeen(JobSummary):
    """A job with everything there is to know about it."""

    payload: Any = Field(description="JSON; the text itself where it is none.", examples=[{"connection_id": 456}])
    payload_version: int
    headers: dict[str, str]
    result: Any = Field(description="What its task returned, as JSON, without secrets unless the task allows them.")


class JobInFull(BaseModel):
    job: JobSeen
    attempts: list[AttemptSeen]
    progress: float | None = Field(description="0 to 1, as an attempt said last.")
    log: list[LogLineSeen]
    children: list[JobSummary] = Field(description="Jobs that it enqueued, newest first, 50 at most.")


class JobList(BaseModel):
    jobs: list[JobSummary]
    next_cursor: NextCursor


def summary(job: Job) -> JobSummary:
    return JobSummary.model_validate(job)


def seen(job: Job, policy: SensitivePolicy) -> JobSeen:
    facts = msgspec.structs.asdict(job)
    result = None if job.result is None else as_json(job.result)
    if policy != "allow":
        result = value_without_secrets(result)
    return JobSeen.model_validate({**facts, "payload": as_json(job.payload), "result": result})


def in_full(detail: JobDetail, children: JobPage, policy: SensitivePolicy) -> JobInFull:
    """`policy` is the task's: payloads were held to it before they were kept, results are as they are shown."""
    return JobInFull(
        job=seen(detail.job, policy),
        attempts=[AttemptSeen.model_validate(attempt) for attempt in detail.attempts],
        progress=detail.progress,
        log=[LogLineSeen.model_validate(line) for line in detail.log],
        children=[summary(child) for child in children.jobs],
    )


def as_json(text: str) -> Any:
    """The value a stored text holds; the text itself where it holds none, as a row written by hand may."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return text
