"""Turn as one call of `turn_v2`: its first row is the answer, each of the others a lease, read by position."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from fairlane.core.ids import JobId, LeaseKey
from fairlane.core.job import Lease
from fairlane.core.limits import Limit
from fairlane.core.ops import Refusal, Turn, TurnResult
from fairlane.core.outcome import Completed, Outcome
from fairlane.stores.postgres.calls import Call, GarbledRows, Rows, instant, limits_text

SQL = (
    "select * from {schema}.turn_v2(%s::uuid, %s, %s::bigint[], %s::integer[], %s::float8[], %s::float8[], "
    "%s::text[], %s::json, %s::json, %s::json, %s, %s, %s, %s::timestamptz, limits => %s::json, "
    "_claim_nos => %s::bigint[])"
)


class _Extra(Struct, frozen=True, array_like=True):
    """What is not as by default, in the order of `json_build_array` in functions/turn/turn.sql."""

    attempts: int
    crashes: int
    suspect: bool
    rank: int
    priority: int
    enqueued_at: datetime
    payload_version: int
    timeout_s: float | None
    idempotency_key: str | None
    correlation_id: str | None
    parent_id: JobId | None
    created_by: str | None
    refs: dict[str, int | str] | None
    headers: dict[str, str] | None
    retry: Raw


_decode = msgspec.json.Decoder(TurnResult).decode
_decode_extra = msgspec.json.Decoder(_Extra).decode
_encode = msgspec.json.encode


def turn(op: Turn) -> Call[TurnResult]:
    completed: list[Completed] = []
    others: list[Outcome] = []
    for outcome in op.outcomes:
        if type(outcome) is Completed:
            completed.append(outcome)
        else:
            others.append(outcome)
    params = (
        str(op.worker),
        op.claim_no,
        *(_arrays(completed) if completed else (None,) * 5),
        _encode(others).decode() if others else None,
        _encode(op.starts).decode() if op.starts else None,
        _encode(op.wants).decode() if op.wants else None,
        op.waiting,
        op.promote_limit,
        op.reclaim_limit,
        instant(op.now),
        claim_limits(op.limits) if op.limits else None,
        _array([str(c.claim_no) for c in completed]) if completed else None,
    )
    return Call(SQL, params, partial(_read, op))


def _in_order_of(op: Turn, refused: tuple[Refusal, ...]) -> tuple[Refusal, ...]:
    """Completed outcomes travel apart from the others: what was refused, back in the order given."""
    places: dict[LeaseKey, list[int]] = {}
    for place, given in enumerate((*op.outcomes, *op.starts)):
        places.setdefault(given.key, []).append(place)
    placed = [(places[refusal.key].pop(0), refusal) for refusal in refused]
    return tuple(refusal for _, refusal in sorted(placed, key=itemgetter(0)))


def _arrays(completed: list[Completed]) -> tuple[str | list[str | None] | None, ...]:
    """Side by side; None where all are as by default."""
    results = [None if c.result is None else bytes(c.result).decode() for c in completed]
    return (
        _array([str(c.seq) for c in completed]),
        _array([str(c.attempt) for c in completed]),
        _array(["NULL" if c.ran_s is None else f"{c.ran_s:.6f}" for c in completed]),
        _array([repr(c.ended_ago_s) for c in completed]) if any(c.ended_ago_s for c in completed) else None,
        results if any(r is not None for r in results) else None,
    )


def _array(elements: list[str]) -> str:
    return "{" + ",".join(elements) + "}"


def _read(op: Turn, rows: Rows) -> TurnResult:
    result = _decode(rows[0][0])
    if result.refused:
        result = replace(result, refused=_in_order_of(op, result.refused))
    if len(rows) == 1:
        return result
    leases, leased_at = rows[1:], rows[0][1]
    if leased_at.tzinfo is not UTC:
        # Behind a pooler that refuses our settings the session has a time zone of its own.
        leased_at = leased_at.astimezone(UTC)
        leases = [tuple([v.astimezone(UTC) if isinstance(v, datetime) else v for v in row]) for row in leases]
    return replace(result, leases=_leases(leases, op.claim_no, leased_at, rows))


def _leases(rows: Rows, claim_no: int, leased_at: datetime, whole: Rows) -> tuple[Lease, ...]:
    """One row that cannot be read costs nobody the others."""
    try:
        leases = [_lease(row, claim_no, leased_at) for row in rows]
    except (msgspec.MsgspecError, ValueError, TypeError):
        leases = [_lease_or_reason(row, claim_no, leased_at) for row in rows]
    for place in whole.garbled if isinstance(whole, GarbledRows) else ():
        if place:  # the first row is the answer
            leases[place - 1] = replace(leases[place - 1], unreadable="its text is not valid UTF-8")
    return tuple(leases)


def _lease_or_reason(row: tuple[Any, ...], claim_no: int, leased_at: datetime) -> Lease:
    try:
        return _lease(row, claim_no, leased_at)
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        return replace(_lease((*row[:-1], None), claim_no, leased_at), unreadable=f"its row cannot be read: {error}")


def _lease(row: tuple[Any, ...], claim_no: int, leased_at: datetime) -> Lease:
    """By position, from the columns of functions/turn/turn.sql straight into the fields of a lease."""
    # fmt: off
    (
        _, _, seq, job_id, attempt, started, lane, task, tenant, queue, band, due_at, deadline_at,
        payload, most, category, text,
    ) = row
    if text is None:
        return Lease(
            seq, job_id, attempt, claim_no, 0, 0, False, started, lane, task, tenant, queue, band, 0, due_at,
            leased_at, deadline_at, due_at, most, 1, band, None, category, None, None, None, None, {}, {}, None,
            payload,
        )
    # fmt: on
    extra = _decode_extra(text)
    return Lease(
        seq=seq,
        id=job_id,
        attempt=attempt,
        claim_no=claim_no,
        attempts=extra.attempts,
        crashes=extra.crashes,
        suspect=extra.suspect,
        started=started,
        lane=lane,
        type=task,
        tenant=tenant,
        queue=queue,
        band=band,
        rank=extra.rank,
        due_at=due_at,
        leased_at=leased_at,
        deadline_at=deadline_at,
        enqueued_at=extra.enqueued_at,
        max_attempts=most,
        payload_version=extra.payload_version,
        priority=extra.priority,
        timeout_s=extra.timeout_s,
        category=category,
        idempotency_key=extra.idempotency_key,
        correlation_id=extra.correlation_id,
        parent_id=extra.parent_id,
        created_by=extra.created_by,
        refs=extra.refs or {},
        headers=extra.headers or {},
        retry=extra.retry.copy() if bytes(extra.retry) != b"null" else None,
        payload=payload,
    )


@lru_cache(maxsize=64)
def claim_limits(limits: tuple[Limit, ...]) -> str | None:
    """What concerns claims; None: nothing does."""
    return limits_text(
        [
            Limit(
                kind=given.kind,
                name=given.name,
                queue=given.queue,
                running=given.running,
                rate=given.rate,
                types=given.types,
            )
            for given in limits
            if given.is_for_claims
        ]
    )
