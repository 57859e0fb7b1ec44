"""Filters of listings and of acts on many, each written once."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Query
from pydantic import Field

from fairlane.api.fields import Body, Instant, Key, Name, TenantName
from fairlane.core.ids import JobId
from fairlane.core.job import DeadLetterStatus, ErrorClass, Status
from fairlane.core.ops import DeadLetterFilter, JobFilter


class JobsWhere(Body):
    """Every given field must match; within `status` any."""

    tenant: TenantName | None = None
    status: list[Status] = Field(default=[], max_length=6)
    queue: Name | None = None
    type: Name | None = None
    category: Name | None = None
    correlation_id: Key | None = None
    parent_id: UUID | None = None
    created_by: Key | None = None
    idempotency_key: Key | None = None
    enqueued_from: Instant | None = None
    enqueued_before: Instant | None = None

    def filter(self) -> JobFilter:
        given = self.model_dump(exclude_none=True, exclude={"tenant"})
        given["statuses"] = tuple(dict.fromkeys(given.pop("status")))
        if self.parent_id is not None:
            given["parent_id"] = JobId(self.parent_id)
        return JobFilter(**given)


class DeadLettersWhere(Body):
    """Every given field must match."""

    tenant: TenantName | None = None
    status: DeadLetterStatus | None = None
    acknowledged: bool | None = None
    queue: Name | None = None
    type: Name | None = None
    error_class: ErrorClass | None = None
    error_type: Key | None = None
    fingerprint: Key | None = None
    correlation_id: Key | None = None

    def filter(self) -> DeadLetterFilter:
        return DeadLetterFilter(**self.model_dump(exclude_none=True, exclude={"tenant"}))


async def jobs_where(
    status: Annotated[list[Status] | None, Query(max_length=6, description="Any of these.")] = None,
    queue: Name | None = None,
    type: Name | None = None,
    category: Name | None = None,
    correlation_id: Key | None = None,
    parent_id: UUID | None = None,
    created_by: Key | None = None,
    idempotency_key: Key | None = None,
    enqueued_from: Instant | None = None,
    enqueued_before: Instant | None = None,
) -> JobsWhere:
    return JobsWhere(
        status=status or [],
        queue=queue,
        type=type,
        category=category,
        correlation_id=correlation_id,
        parent_id=parent_id,
        created_by=created_by,
        idempotency_key=idempotency_key,
        enqueued_from=enqueued_from,
        enqueued_before=enqueued_before,
    )


async def dead_letters_where(
    status: DeadLetterStatus | None = None,
    acknowledged: bool | None = None,
    queue: Name | None = None,
    type: Name | None = None,
    error_class: ErrorClass | None = None,
    error_type: Key | None = None,
    fingerprint: Key | None = None,
    correlation_id: Key | None = None,
) -> DeadLettersWhere:
    return DeadLettersWhere(
        status=status,
        acknowledged=acknowledged,
        queue=queue,
        type=type,
        error_class=error_class,
        error_type=error_type,
        fingerprint=fingerprint,
        correlation_id=correlation_id,
    )
