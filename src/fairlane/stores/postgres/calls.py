"""Every operation as a call: the table that makes the store one line long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from fairlane.core.job import JobSpec
from fairlane.core.ops import (
    Acknowledge,
    Bury,
    Cancel,
    DeadLetterAct,
    Discard,
    Enqueue,
    EnqueueResult,
    Fail,
    GetDeadLetter,
    GetJob,
    GetStats,
    JobAct,
    Op,
    PageAudit,
    PageDeadLetters,
    PageJobs,
    Promote,
    Promoted,
    Purge,
    Purged,
    Reclaim,
    ReclaimResult,
    Renew,
    Renewed,
    Reprocess,
    Resolve,
    Retain,
    Retained,
    Retire,
    Retired,
    Turn,
)
from fairlane.stores.postgres import reading
from fairlane.stores.postgres.call import Call, Rows, instant
from fairlane.stores.postgres.turning import turn

T = TypeVar("T")


def call_for(op: Op[T]) -> Call[T]:
    return _CALLS[type(op)](op)


def _read(answer: type[T]) -> Callable[[Rows], T]:
    decode = msgspec.json.Decoder(answer).decode

    def read(rows: Rows) -> T:
        return decode(rows[0][0])

    return read


_enqueued = _read(EnqueueResult)
_renewed = _read(Renewed)
_retired = _read(Retired)
_reclaimed = _read(ReclaimResult)
_promoted = _read(Promoted)
_job_act = _read(JobAct)
_dead_letter_act = _read(DeadLetterAct)
_retained = _read(Retained)
_purged = _read(Purged)

# Sent as text and cast by the server: on a borrowed asyncpg connection json and timestamptz may have codecs of the caller's.
ENQUEUE = "select {schema}.enqueue_v1(%s::text::json, %s::text::timestamptz, %s::integer, %s::text)::text"


def enqueue(op: Enqueue) -> Call[EnqueueResult]:
    jobs = msgspec.json.encode(op.jobs)
    if b"\\u" in jobs:
        # Escapes that no PostgreSQL text can hold stay escaped only within a string of their own.
        jobs = msgspec.json.encode([_with_payload_as_text(job) for job in op.jobs])
    return Call(ENQUEUE, (jobs.decode(), instant(op.now), op.capacity, op.notify), _enqueued)


def _with_payload_as_text(job: JobSpec) -> dict[str, Any]:
    without = msgspec.json.encode(msgspec.structs.replace(job, payload=Raw(b"null")))
    return msgspec.json.decode(without, type=dict[str, Raw]) | {"payload_text": bytes(job.payload).decode()}


def _renew(op: Renew) -> Call[Renewed]:
    return Call(
        "select {schema}.renew_v1(%s::uuid, %s, %s, %s::text[], %s::text[], %s, %s::timestamptz)::text",
        (str(op.worker), op.lease_s, op.name, list(op.queues), list(op.types), op.wake_address, instant(op.now)),
        _renewed,
    )


def _retire(op: Retire) -> Call[Retired]:
    return Call(
        "select {schema}.retire_v1(%s::uuid, %s::timestamptz)::text", (str(op.worker), instant(op.now)), _retired
    )


def _reclaim(op: Reclaim) -> Call[ReclaimResult]:
    return Call("select {schema}.reclaim_v1(%s, %s::timestamptz)::text", (op.limit, instant(op.now)), _reclaimed)


def _promote(op: Promote) -> Call[Promoted]:
    return Call("select {schema}.promote_v1(%s, %s::timestamptz)::text", (op.limit, instant(op.now)), _promoted)


def _cancel(op: Cancel) -> Call[JobAct]:
    return Call(
        "select {schema}.cancel_v1(%s, %s::uuid, %s, %s, %s::timestamptz)::text",
        (op.scope.tenant, str(op.id), op.by, op.notes, instant(op.now)),
        _job_act,
    )


_END_BY_HAND = "select {schema}.end_by_hand_v1(%s, %s, %s::uuid, %s, %s::float8, %s, %s, %s::timestamptz)::text"


def _fail(op: Fail) -> Call[JobAct]:
    params = ("fail", op.scope.tenant, str(op.id), op.reason, op.retry_delay_s, op.by, op.notes, instant(op.now))
    return Call(_END_BY_HAND, params, _job_act)


def _bury(op: Bury) -> Call[JobAct]:
    params = ("bury", op.scope.tenant, str(op.id), op.reason, None, op.by, op.notes, instant(op.now))
    return Call(_END_BY_HAND, params, _job_act)


def _reprocess(op: Reprocess) -> Call[DeadLetterAct]:
    return Call(
        "select {schema}.reprocess_v1(%s, %s, %s::uuid, %s, %s, _at => %s::timestamptz)::text",
        (op.scope.tenant, op.id, str(op.new_job_id), op.by, op.notes, instant(op.now)),
        _dead_letter_act,
    )


def _closing(act: str) -> Callable[[Any], Call[DeadLetterAct]]:
    def closing(op: Discard | Resolve | Acknowledge) -> Call[DeadLetterAct]:
        return Call(
            "select {schema}.close_dead_letter_v1(%s, %s, %s, %s, %s, %s::timestamptz)::text",
            (act, op.scope.tenant, op.id, op.by, op.notes, instant(op.now)),
            _dead_letter_act,
        )

    return closing


def _retain(op: Retain) -> Call[Retained]:
    return Call(
        "select {schema}.retain_v1(%s::timestamptz, %s::timestamptz, %s)::text",
        (instant(op.finished_before), instant(op.closed_before), max(op.limit, 0)),
        _retained,
    )


def _purge(_: Purge) -> Call[Purged]:
    return Call("select {schema}.purge_v1()::text", (), _purged)


_CALLS: dict[type, Callable[[Any], Call[Any]]] = {
    Enqueue: enqueue,
    Turn: turn,
    Renew: _renew,
    Retire: _retire,
    Reclaim: _reclaim,
    Promote: _promote,
    Cancel: _cancel,
    Fail: _fail,
    Bury: _bury,
    Reprocess: _reprocess,
    Discard: _closing("discard"),
    Resolve: _closing("resolve"),
    Acknowledge: _closing("acknowledge"),
    GetJob: reading.get_job,
    PageJobs: reading.page_jobs,
    GetDeadLetter: reading.get_dead_letter,
    PageDeadLetters: reading.page_dead_letters,
    GetStats: reading.get_stats,
    PageAudit: reading.page_audit,
    Retain: _retain,
    Purge: _purge,
}

REPEATABLE: frozenset[type] = frozenset(_CALLS) - {Cancel, Fail, Bury, Discard, Resolve, Acknowledge}
"""Safe to send again when the reply was lost: ids, claim numbers or their nature make the second one the first.

A person's act is not: failed by hand twice is charged twice. It is reported as unknown instead.
"""
