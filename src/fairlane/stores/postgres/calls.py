"""Every operation as a call: the table that makes the store one line long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fairlane.core.ops import (
    Acknowledge,
    Bury,
    Cancel,
    DeadLetterAct,
    Discard,
    Enqueue,
    Fail,
    GetDeadLetter,
    GetJob,
    GetStats,
    JobAct,
    Op,
    PageAudit,
    PageDeadLetters,
    PageJobs,
    Purge,
    Purged,
    Reprocess,
    Reset,
    Resolve,
    Retain,
    Retained,
    Turn,
)
from fairlane.stores.postgres import (
    accessing,
    guarding,
    limiting,
    reading,
    scheduling,
    sealing,
    telling,
    watching,
    working,
)
from fairlane.stores.postgres.call import Call, answering, instant
from fairlane.stores.postgres.enqueueing import enqueue
from fairlane.stores.postgres.turning import turn

T = TypeVar("T")


def call_for(op: Op[T]) -> Call[T]:
    return _CALLS[type(op)](op)


_job_act = answering(JobAct)
_dead_letter_act = answering(DeadLetterAct)
_retained = answering(Retained)
_purged = answering(Purged)


def _taking(function: str) -> Callable[[Any], Call[JobAct]]:
    sql = f"select {{schema}}.{function}(%s, %s::uuid, %s, %s, %s::timestamptz)::text"

    def taking(op: Cancel | Reset) -> Call[JobAct]:
        return Call(sql, (op.scope.tenant, str(op.id), op.by, op.notes, instant(op.now)), _job_act)

    return taking


_END_BY_HAND = "select {schema}.end_by_hand_v1(%s, %s, %s::uuid, %s, %s::float8, %s, %s, %s::timestamptz)::text"


def _fail(op: Fail) -> Call[JobAct]:
    params = ("fail", op.scope.tenant, str(op.id), op.reason, op.retry_delay_s, op.by, op.notes, instant(op.now))
    return Call(_END_BY_HAND, params, _job_act)


def _bury(op: Bury) -> Call[JobAct]:
    params = ("bury", op.scope.tenant, str(op.id), op.reason, None, op.by, op.notes, instant(op.now))
    return Call(_END_BY_HAND, params, _job_act)


def _reprocess(op: Reprocess) -> Call[DeadLetterAct]:
    payload = None if op.payload is None else bytes(op.payload).decode()
    return Call(
        "select {schema}.reprocess_v1(%s, %s, %s::uuid, %s, %s, _at => %s::timestamptz, _payload => %s::json, _delay_s => %s::float8)::text",
        (op.scope.tenant, op.id, str(op.new_job_id), op.by, op.notes, instant(op.now), payload, op.delay_s),
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
        "select {schema}.retain_v1(%s::timestamptz, %s::timestamptz, %s, %s::timestamptz)::text",
        (instant(op.finished_before), instant(op.closed_before), max(op.limit, 0), instant(op.stats_before)),
        _retained,
    )


def _purge(_: Purge) -> Call[Purged]:
    return Call("select {schema}.purge_v1()::text", (), _purged)


_CALLS: dict[type, Callable[[Any], Call[Any]]] = {
    Enqueue: enqueue,
    Turn: turn,
    Cancel: _taking("cancel_v1"),
    Reset: _taking("reset_v1"),
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
    **working.CALLS,
    **guarding.CALLS,
    **scheduling.CALLS,
    **limiting.CALLS,
    **accessing.CALLS,
    **telling.CALLS,
    **watching.CALLS,
    **sealing.CALLS,
}
