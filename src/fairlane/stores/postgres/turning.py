"""Turn as one call of `turn_v1`, and its leases read back by position."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from operator import itemgetter

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from fairlane.core.ids import JobId, Seq
from fairlane.core.job import Lease
from fairlane.core.ops import Mark, Reclaimed, Refusal, Survey, Turn, TurnResult
from fairlane.core.outcome import Completed, Outcome
from fairlane.stores.postgres.call import Call, Rows, instant
from fairlane.stores.postgres.limiting import claim_limits

SQL = (
    "select answer, payloads from {schema}.turn_v1(%s::uuid, %s, %s::bigint[], %s::integer[], %s::float8[], %s::float8[], "
    "%s::text[], %s::json, %s::json, %s::json, %s, %s, %s, %s::timestamptz, limits => %s::json)"
)


class _Extra(Struct, frozen=True):
    category: str | None = None
    idempotency_key: str | None = None
    correlation_id: str | None = None
    parent_id: JobId | None = None
    created_by: str | None = None
    refs: dict[str, int | str] | None = None
    headers: dict[str, str] | None = None
    retry: Raw = Raw(b"null")


_NO_EXTRA = _Extra()


class _LeaseRow(Struct, frozen=True, array_like=True):
    """In the order of `json_build_array` in sql/turn.sql."""

    seq: Seq
    id: JobId
    attempt: int
    attempts: int
    crashes: int
    suspect: bool
    started: bool
    lane: str
    type: str
    tenant: str
    queue: str
    band: int
    rank: int
    priority: int
    due_at: datetime
    deadline_at: datetime
    enqueued_at: datetime
    max_attempts: int
    payload_version: int
    timeout_s: float | None
    extra: _Extra | None


class _Answer(Struct, frozen=True):
    now: datetime
    registered: bool
    leased_at: datetime | None
    leases: tuple[_LeaseRow, ...]
    refused: tuple[Refusal, ...]
    cancels: tuple[Seq, ...]
    marks: tuple[Mark, ...]
    cursors: dict[str, str]
    next_due_at: datetime | None
    reclaimed: tuple[Reclaimed, ...]
    surveys: tuple[Survey, ...]
    limited: bool
    limited_until: datetime | None


_decode = msgspec.json.Decoder(_Answer).decode
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
    )
    return Call(SQL, params, _in_order_of(op) if completed and others else _read)


def _in_order_of(op: Turn) -> Callable[[Rows], TurnResult]:
    """Completed outcomes travel apart from the others: put what was refused back into the order given."""

    def read(rows: Rows) -> TurnResult:
        result = _read(rows)
        if not result.refused:
            return result
        places: dict[tuple[Seq, int], list[int]] = {}
        for place, given in enumerate((*op.outcomes, *op.starts)):
            places.setdefault((given.seq, given.attempt), []).append(place)
        placed = [(places[refusal.seq, refusal.attempt].pop(0), refusal) for refusal in result.refused]
        return replace(result, refused=tuple(refusal for _, refusal in sorted(placed, key=itemgetter(0))))

    return read


def _arrays(completed: list[Completed]) -> tuple[str | list[str | None] | None, ...]:
    results = [None if c.result is None else bytes(c.result).decode() for c in completed]
    return (
        _array(str(c.seq) for c in completed),
        _array(str(c.attempt) for c in completed),
        _array("NULL" if c.ran_s is None else repr(c.ran_s) for c in completed),
        _array(repr(c.ended_ago_s) for c in completed),
        results if any(r is not None for r in results) else _array("NULL" for _ in completed),
    )


def _array(elements: Iterable[str]) -> str:
    return "{" + ",".join(elements) + "}"


def _read(rows: Rows) -> TurnResult:
    text, payloads = rows[0]
    answer = _decode(text)
    leased_at = answer.leased_at or answer.now
    return TurnResult(
        now=answer.now,
        leases=tuple(
            [_lease(row, payload, leased_at) for row, payload in zip(answer.leases, payloads or (), strict=True)]
        ),
        refused=answer.refused,
        cancels=answer.cancels,
        registered=answer.registered,
        marks=answer.marks,
        cursors=answer.cursors,
        next_due_at=answer.next_due_at,
        reclaimed=answer.reclaimed,
        surveys=answer.surveys,
        limited=answer.limited,
        limited_until=answer.limited_until,
    )


def _lease(row: _LeaseRow, payload: str, leased_at: datetime) -> Lease:
    extra = row.extra or _NO_EXTRA
    return Lease(
        seq=row.seq,
        id=row.id,
        attempt=row.attempt,
        attempts=row.attempts,
        crashes=row.crashes,
        suspect=row.suspect,
        started=row.started,
        lane=row.lane,
        type=row.type,
        tenant=row.tenant,
        queue=row.queue,
        band=row.band,
        rank=row.rank,
        due_at=row.due_at,
        leased_at=leased_at,
        deadline_at=row.deadline_at,
        enqueued_at=row.enqueued_at,
        max_attempts=row.max_attempts,
        payload_version=row.payload_version,
        priority=row.priority,
        timeout_s=row.timeout_s,
        category=extra.category,
        idempotency_key=extra.idempotency_key,
        correlation_id=extra.correlation_id,
        parent_id=extra.parent_id,
        created_by=extra.created_by,
        refs=extra.refs or {},
        headers=extra.headers or {},
        retry=extra.retry.copy() if bytes(extra.retry) != b"null" else None,
        payload=payload,
    )
