"""Dead letters in the words of document W, with what we know beside."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, Field

from fairlane.api.models.jobs import AttemptSeen, as_json
from fairlane.api.paging import NextCursor
from fairlane.core.job import DeadLetter, DeadLetterStatus, ErrorClass
from fairlane.core.ops import DeadLetterDetail


class DeadLetterItem(BaseModel):
    dlq_id: int = Field(examples=[123])
    job_id: UUID
    tenant: str = Field(examples=["123"])
    queue: str = Field(examples=["default"])
    category: str | None = Field(examples=["ingestion"])
    job_type: str = Field(examples=["email_ingestion_fetch"])
    status: DeadLetterStatus
    idempotency_key: str = Field(examples=["email_fetch_conn_456_msg_789"])
    correlation_id: str
    error_class: ErrorClass
    error_type: str = Field(examples=["ValidationError"])
    error_message: str = Field(description="The reason, up to 2,000 characters.", examples=["invalid payload"])
    fingerprint: str = Field(description="Alike for failures that are alike.")
    attempt_count: int = Field(description="Runs that failed.", examples=[1])
    original_created_at: datetime = Field(description="When the job was enqueued.")
    created_at: datetime = Field(description="When it died.")
    acknowledged_by: str | None
    acknowledged_at: datetime | None
    closed_by: str | None
    closed_at: datetime | None
    resolution_notes: str | None
    reprocess_count: int
    reprocessed_as: UUID | None = Field(description="The newest job made from it.")


class DeadLetterSeen(DeadLetterItem):
    """A dead letter with its payload, every attempt, and all the times of the job."""

    payload: Any = Field(description="JSON; the text itself where it is none.", examples=[{"connection_id": 456}])
    payload_version: int
    refs: dict[str, int | str]
    headers: dict[str, str]
    parent_id: UUID | None
    created_by: str | None
    max_attempts: int
    scheduled_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempts: list[AttemptSeen]


class DeadLetterList(BaseModel):
    dlq_items: list[DeadLetterItem]
    total_count: int = Field(description="How many match on all pages, counted up to 100,000.", examples=[1])
    next_cursor: NextCursor


class Reprocessed(BaseModel):
    message: str = Field(examples=["DLQ item reprocessed successfully"])
    dlq_id: int = Field(examples=[123])
    new_job_id: UUID
    new_idempotency_key: str = Field(examples=["email_fetch_conn_456_msg_789_retry_1"])


class Reviewed(BaseModel):
    message: str = Field(examples=["DLQ item discarded"])
    dlq_id: int = Field(examples=[123])
    item: DeadLetterItem


def item(letter: DeadLetter) -> DeadLetterItem:
    return DeadLetterItem.model_validate(_facts(letter))


def seen(detail: DeadLetterDetail) -> DeadLetterSeen:
    job = detail.dead_letter.job
    return DeadLetterSeen.model_validate(
        {
            **_facts(detail.dead_letter),
            "payload": as_json(job.payload),
            "payload_version": job.payload_version,
            "refs": job.refs,
            "headers": job.headers,
            "parent_id": job.parent_id,
            "created_by": job.created_by,
            "max_attempts": job.max_attempts,
            "scheduled_at": job.scheduled_at,
            "run_at": job.run_at,
            "started_at": job.started_at,
            "finished_at": job.finished_at,
            "attempts": [AttemptSeen.model_validate(attempt) for attempt in detail.attempts],
        }
    )


def _facts(letter: DeadLetter) -> dict[str, Any]:
    job = letter.job
    return {
        "dlq_id": letter.id,
        "job_id": job.id,
        "tenant": job.tenant,
        "queue": job.queue,
        "category": job.category,
        "job_type": job.type,
        "status": letter.status,
        "idempotency_key": job.idempotency_key,
        "correlation_id": job.correlation_id,
        "error_class": letter.error_class,
        "error_type": letter.error_type,
        "error_message": letter.reason,
        "fingerprint": letter.fingerprint,
        "attempt_count": job.attempts,
        "original_created_at": job.enqueued_at,
        "created_at": letter.died_at,
        "acknowledged_by": letter.acknowledged_by,
        "acknowledged_at": letter.acknowledged_at,
        "closed_by": letter.closed_by,
        "closed_at": letter.closed_at,
        "resolution_notes": letter.resolution_notes,
        "reprocess_count": letter.reprocess_count,
        "reprocessed_as": letter.reprocessed_as,
    }
