"""Enqueue as one call of `enqueue_v1`, and jobs as the text it takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw

from fairlane.core.job import JobSpec
from fairlane.core.ops import Enqueue, EnqueueResult
from fairlane.stores.postgres.call import Call, answering, instant
from fairlane.stores.postgres.limiting import enqueue_limits, terms_text

# Sent as text and cast by the server: on a borrowed asyncpg connection json and timestamptz may have codecs of the caller's.
SQL = "select {schema}.enqueue_v1(%s::text::json, %s::text::timestamptz, %s::integer, %s::text, %s::text::json, %s::text::json)::text"

_enqueued = answering(EnqueueResult)


def enqueue(op: Enqueue) -> Call[EnqueueResult]:
    limits = enqueue_limits(op.limits) if op.limits else None
    terms = None if limits is None else terms_text(op.limits, op.jobs)
    return Call(SQL, (jobs_text(op.jobs), instant(op.now), op.capacity, op.notify, limits, terms), _enqueued)


def jobs_text(jobs: Sequence[JobSpec]) -> str:
    text = msgspec.json.encode(jobs)
    if b"\\u" in text:
        # Escapes that no PostgreSQL text can hold stay escaped only within a string of their own.
        text = msgspec.json.encode([_with_payload_as_text(job) for job in jobs])
    return text.decode()


def _with_payload_as_text(job: JobSpec) -> dict[str, Any]:
    without = msgspec.json.encode(msgspec.structs.replace(job, payload=Raw(b"null")))
    return msgspec.json.decode(without, type=dict[str, Raw]) | {"payload_text": bytes(job.payload).decode()}
