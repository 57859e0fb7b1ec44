"""A worker's Turn as one call of scripts/turn.lua; promotion, reclaiming and aging beside it by scripts/leases.lua."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from fairlane.core.ids import JobId, Seq
from fairlane.core.job import Lease
from fairlane.core.ops import (
    Age,
    Aged,
    Mark,
    Promote,
    Promoted,
    Reclaim,
    Reclaimed,
    ReclaimResult,
    Refusal,
    Start,
    Survey,
    Turn,
    TurnResult,
    Want,
)
from fairlane.core.outcome import Cancelled, Completed, Died, Failure, Outcome, Retried, Snoozed
from fairlane.errors import StoreRefused
from fairlane.stores.instants import LATEST_US, from_us, span_us, to_us
from fairlane.stores.redis.errors import STORE
from fairlane.stores.redis.states import (
    JobState,
    KeptBody,
    KeptKey,
    KeyedPlace,
    read_body,
    read_state,
    text_of,
    worker_id,
    write_body,
)
from fairlane.stores.redis.steps import Script, Steps, Work, handles, pack

AGED_LOOK = 2_000
"""Lines and ready jobs that one Age looks at; the next one goes on there."""

# The leases of one claim share most of their instants.
instant = lru_cache(maxsize=1024)(from_us)


def maybe_instant(text: bytes | None) -> Any:
    return None if text is None else instant(int(text))


@handles
def turn(work: Work, op: Turn) -> Steps[TurnResult]:
    results: list[bytes] = []
    call: dict[str, Any] = {
        "worker": op.worker.hex,
        "claim_no": op.claim_no,
        "waiting": op.waiting,
        "promote": op.promote_limit,
        "reclaim": op.reclaim_limit,
    }
    if op.outcomes:
        call["outcomes"] = _outcomes(op.outcomes, results)
    if op.starts:
        call["starts"] = [start_of(start) for start in op.starts]
    if op.wants:
        call["wants"] = [_want(want) for want in op.wants]
    if op.limits:
        call["gives_limits"] = True
    while True:
        call["version"] = work.limits.version
        call["limits"] = work.limits.for_claims(op.limits)
        call["keys"] = work.limits.for_keys()
        reply = yield Script("turn", (work.instant(), pack(call), *results))
        if reply[0] != b"limits":
            try:
                leases = [_lease(*found) for found in _read_leases(reply[2])]
            except _UNREADABLE:
                leases = yield from _leases_one_by_one(work, op)
            return _result(reply, leases)
        work.limits.keep(reply[1], reply[2])


def _outcomes(outcomes: Sequence[Outcome], results: list[bytes]) -> list[Any]:
    """As `settle` in scripts/attempts.lua takes them."""
    return [
        [outcome.seq for outcome in outcomes],
        [outcome.attempt for outcome in outcomes],
        [outcome.claim_no for outcome in outcomes],
        [None if outcome.ran_s is None else span_us(outcome.ran_s) for outcome in outcomes],
        [span_us(outcome.ended_ago_s) if outcome.ended_ago_s else 0 for outcome in outcomes],
        {
            place: _outcome(outcome, results)
            for place, outcome in enumerate(outcomes, 1)
            if type(outcome) is not Completed or outcome.result is not None
        },
    ]


def _outcome(outcome: Outcome, results: list[bytes]) -> dict[str, Any]:
    sent: dict[str, Any] = {"kind": outcome.__struct_config__.tag}
    if isinstance(outcome, Completed):
        if outcome.result is not None:
            results.append(text_of(outcome.result, "the result of job", outcome.seq).encode())
            sent["result"] = len(results)
    elif isinstance(outcome, Retried):
        sent |= {"failure": failure_of(outcome.failure), "delay": span_us(outcome.delay_s)}
    elif isinstance(outcome, Died):
        sent |= {"failure": failure_of(outcome.failure), "charged": outcome.charged}
    elif isinstance(outcome, Cancelled):
        sent["reason"] = outcome.reason
    elif isinstance(outcome, Snoozed):
        sent |= {"delay": span_us(outcome.delay_s), "recorded": outcome.recorded}
        if outcome.failure is not None:
            sent["failure"] = failure_of(outcome.failure)
        if outcome.give_up_s is not None:
            sent["give_up"] = span_us(outcome.give_up_s)
        if (given := outcome.suspension) is not None:
            sent["suspension"] = {"n": given.n, "name": given.name, "signal": given.signal, "key": given.key}
    return sent


def failure_of(failure: Failure) -> dict[str, Any]:
    """As the prelude takes it."""
    return {
        "error_class": failure.error_class,
        "error_type": failure.error_type,
        "message": failure.message,
        "fingerprint": failure.fingerprint,
        "traceback": failure.traceback,
    }


def start_of(start: Start) -> dict[str, Any]:
    return {
        "seq": start.seq,
        "attempt": start.attempt,
        "claim_no": start.claim_no,
        "lease": span_us(2 * start.timeout_s),
        "ran": span_us(start.ran_s),
        "alone": start.alone,
    }


def _want(want: Want) -> dict[str, Any]:
    sent: dict[str, Any] = {
        "lane": want.lane,
        "queues": want.queues,
        "limit": want.limit,
        "start": want.start,
        "discover": want.discover,
        "cursor": want.cursor,
        "look": want.look,
        "lease": int(min(round(want.timeout_s * 2_000_000.0), LATEST_US)),
        "start_by": span_us(want.start_by_s),
    }
    if want.types is not None:
        sent["types"] = want.types
    if want.slots is not None:
        sent["slots"] = want.slots
    if want.leaves:
        sent["leaves"] = want.leaves
    if want.survey:
        sent["survey"] = want.survey
    if want.takes:
        sent["takes"] = [
            {"queue": take.queue, "band": take.band, "tenant": take.tenant, "limit": take.limit}
            | ({} if take.after is None else {"after": _position(take.after)})
            for take in want.takes
        ]
    return sent


def _position(mark: Mark) -> dict[str, int]:
    return {"rank": mark.rank, "due": max(to_us(mark.due_at), 0), "seq": mark.seq}


def _result(reply: list[Any], leases: list[Lease]) -> TurnResult:
    (
        _, now, _, stale, unstarted, cancels, registered, marks, cursors, next_due, reclaimed, surveys, limited,
        held_back, limited_until,
    ) = reply  # fmt: skip
    return TurnResult(
        now=instant(int(now)),
        leases=tuple(leases),
        refused=tuple(Refusal(seq=seq, attempt=n, claim_no=claim_no) for seq, n, claim_no in (*stale, *unstarted)),
        cancels=tuple(cancels),
        registered=registered == 1,
        marks=tuple(sorted(map(_mark, marks), key=lambda mark: (mark.queue, mark.band, mark.tenant))),
        cursors={lane.decode(): tenant.decode() for lane, tenant in cursors},
        next_due_at=maybe_instant(next_due),
        reclaimed=reclaimed_of(reclaimed),
        surveys=tuple(
            Survey(lane=lane.decode(), queue=queue.decode(), band=band, tenants=tuple(one.decode() for one in tenants))
            for lane, queue, band, tenants in surveys
        ),
        limited=limited == 1,
        held_back=held_back == 1,
        limited_until=maybe_instant(limited_until),
    )


def _mark(mark: Sequence[Any]) -> Mark:
    queue, band, tenant, rank, due, seq = mark
    return Mark(
        queue=queue.decode(), band=band, tenant=tenant.decode(), rank=rank, due_at=instant(int(due)), seq=Seq(seq)
    )


_read_leases = msgspec.msgpack.Decoder(list[tuple[KeptBody, JobState]]).decode
_read_key = msgspec.msgpack.Decoder(KeptKey).decode
_UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError)


def _leases_one_by_one(work: Work, op: Turn) -> Steps[list[Lease]]:
    """The leases of this claim: one that cannot be read costs nobody the others, and gets a reason to die of."""
    call = {"worker": op.worker.hex, "claim_no": op.claim_no}
    rows = yield Script("leases", (work.instant(), "claimed", pack(call)))
    leases = []
    for seq, kept, state, *line in rows:
        try:
            body = read_body(kept or b"")
            if body.seq != seq:
                raise ValueError(f"it has the number {body.seq} at its end, not {seq}")
            lease, reason = _lease(body, read_state(state)), "its text is not valid UTF-8"
            is_readable = _is_text(kept)
        except _UNREADABLE as error:
            body = replaced_body(seq, kept or b"", read_state(state), *line)
            # Lists and dead letters are to show it, too.
            given = pack({"seq": seq, "id": body.id.hex})
            yield Script("leases", (work.instant(), "replace", given, write_body(body)))
            lease, reason = _lease(body, read_state(state)), f"its body cannot be read: {error}"
            is_readable = False
        leases.append(lease if is_readable else replace(lease, unreadable=reason))
    return leases


def _is_text(kept: bytes) -> bool:
    try:
        msgspec.msgpack.decode(kept)
    except UnicodeDecodeError:
        return False
    return True


def replaced_body(seq: int, kept: bytes, state: JobState, *line: Any) -> KeptBody:
    """What its line knows of a job. Its payload is a text, which no task takes: the beginning of what was found."""
    tenant, queue, task, band, rank, dedup, key = line
    return KeptBody(
        enqueued=state.due,
        due=state.due,
        placed="ready" if key is None else KeyedPlace("ready", _read_key(key)),
        lease_us=None,
        dedup=dedup.decode("utf-8", "replace") if isinstance(dedup, bytes) else None,
        tenant=tenant.decode("utf-8", "replace"),
        queue=queue.decode("utf-8", "replace"),
        type=task.decode("utf-8", "replace"),
        band=band,
        rank=rank,
        priority=band + rank,
        max_attempts=1,
        payload_version=1,
        timeout_s=None,
        category=None,
        idempotency_key=None,
        dedup_key=None,
        correlation_id=None,
        parent_id=None,
        created_by=None,
        refs=None,
        headers=None,
        retry=None,
        payload=f'"found in place of its body: {kept[:1000].hex()}"',
        id=UUID(hex=f"{seq:032d}"),
        seq=seq,
    )


def _lease(body: KeptBody, state: JobState) -> Lease:
    assert state.leased is not None
    assert state.deadline is not None
    assert state.claim is not None
    band, rank = body.band, body.rank
    if state.aged is not None:
        band, rank = (band, state.aged) if rank else (state.aged, rank)
    return Lease(
        Seq(body.seq),
        JobId(body.id),
        state.attempt,
        state.claim,
        state.attempts,
        state.crashes,
        bool(state.suspect),
        state.started is not None,
        state.lane or "",
        body.type,
        body.tenant,
        body.queue,
        band,
        rank,
        instant(state.due),
        instant(state.leased),
        instant(state.deadline),
        instant(body.enqueued),
        body.max_attempts,
        body.payload_version,
        body.priority,
        body.timeout_s,
        body.category,
        body.idempotency_key,
        body.correlation_id,
        None if body.parent_id is None else JobId(UUID(hex=body.parent_id)),
        body.created_by,
        body.refs or {},
        body.headers or {},
        None if body.retry is None else Raw(body.retry.encode()),
        body.payload,
    )


def reclaimed_of(rows: list[list[Any]]) -> tuple[Reclaimed, ...]:
    return tuple(
        Reclaimed(
            seq=Seq(seq),
            id=JobId(UUID(hex=job_id.decode())),
            attempt=attempt,
            worker=worker_id(worker.decode()),
            cause=cause.decode(),
            became=became.decode(),
            type=task.decode(),
            tenant=tenant.decode(),
        )
        for seq, job_id, attempt, worker, cause, became, task, tenant in rows
    )


@handles
def promote(work: Work, op: Promote) -> Steps[Promoted]:
    count, next_due = yield Script("leases", (work.instant(), "promote", pack({"limit": op.limit})))
    return Promoted(count=count, next_due_at=maybe_instant(next_due))


@handles
def reclaim(work: Work, op: Reclaim) -> Steps[ReclaimResult]:
    rows = yield Script("leases", (work.instant(), "reclaim", pack({"limit": op.limit})))
    return ReclaimResult(reclaimed=reclaimed_of(rows))


@handles
def age(work: Work, op: Age) -> Steps[Aged]:
    step = span_us(op.every_s)
    if step <= 0:
        raise StoreRefused(STORE, f"every_s = {op.every_s!r} is no span to age by; nothing was changed")
    call = {"queue": op.queue, "step": step, "limit": op.limit, "look": AGED_LOOK}
    count = yield Script("leases", (work.instant(), "age", pack(call)))
    return Aged(count=count)
