"""The worker's turn, and its coming and going."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import structs

from fairlane.core.job import Lease
from fairlane.core.ops import (
    Lapse,
    ReclaimResult,
    Refusal,
    Renew,
    Renewed,
    Retire,
    Retired,
    Start,
    Survey,
    Turn,
    TurnResult,
)
from fairlane.stores.memory.claiming import Claim, Marks, lease_of, marks_of
from fairlane.stores.memory.claiming_limited import LimitedClaim
from fairlane.stores.memory.facts import Facts, Worker
from fairlane.stores.memory.moments import later
from fairlane.stores.memory.reclaiming import promote_due, reclaim_lapsed, take_back
from fairlane.stores.memory.room import Room, room_for
from fairlane.stores.memory.settling import read_outcomes, release, settle


def turn(facts: Facts, op: Turn, now: datetime) -> TurnResult:
    outcomes = read_outcomes(op.outcomes, now)
    starts = _read_starts(op.starts, now)
    holder = facts.workers.get(op.worker)
    unstarted = _mark_started(holder, starts, now)
    refused = settle(facts, op.worker, holder, outcomes)
    promote_due(facts, op.promote_limit, now)
    reclaimed = reclaim_lapsed(facts, op.reclaim_limit, now)
    registered = holder is not None and holder.expires_at > now
    got = _Got()
    room = room_for(facts, op.limits, now) if op.limits or facts.limits else None
    if holder is not None and registered:
        holder.waiting = op.waiting
        if op.wants:
            got.leases = _leases_of_claim(holder, op.claim_no)
            if not got.leases:
                _claim(facts, holder, op, now, room, got)
    if facts.freed and room is not None and room.is_taken_again(facts.freed, got.leases):
        facts.freed.clear()
    return TurnResult(
        now=now,
        leases=tuple(got.leases),
        refused=(*refused, *unstarted),
        cancels=tuple(sorted(holder.asked_to_cancel)) if holder is not None else (),
        registered=registered,
        marks=marks_of(got.looked),
        cursors=got.cursors,
        next_due_at=facts.scheduled.next_due_at(),
        reclaimed=tuple(reclaimed),
        surveys=tuple(got.surveys),
        limited=room is not None,
        limited_until=None if room is None else room.close(),
    )


class _Got:
    """What the claims of a Turn have come to."""

    def __init__(self) -> None:
        self.leases: list[Lease] = []
        self.looked: Marks = {}
        self.cursors: dict[str, str] = {}
        self.surveys: list[Survey] = []


def _read_starts(starts: Sequence[Start], now: datetime) -> list[tuple[Start, datetime]]:
    return [(start, later(now, 2 * start.timeout_s)) for start in starts]


def _mark_started(holder: Worker | None, starts: Sequence[tuple[Start, datetime]], now: datetime) -> list[Refusal]:
    unstarted = []
    for start, deadline_at in starts:
        row = None if holder is None else holder.leases.get(start.seq)
        if row is None or row.lease is None or row.lease.attempt != start.attempt:
            unstarted.append(Refusal(seq=start.seq, attempt=start.attempt))
            continue
        if row.lease.started_at is None:
            row.lease.started_at = now
        row.lease.deadline_at, row.lease.alone = deadline_at, start.alone
    return unstarted


def _leases_of_claim(holder: Worker, claim_no: int) -> list[Lease]:
    """What this claim got before, where its reply was lost and it is repeated."""
    held = ((row, row.lease) for row in holder.leases.values())
    return [lease_of(row, lease) for row, lease in held if lease is not None and lease.claim_no == claim_no]


def _claim(facts: Facts, holder: Worker, op: Turn, now: datetime, room: Room | None, got: _Got) -> None:
    for want in op.wants:
        if room is None:
            claim = Claim(facts, want, holder, op.claim_no, now)
        else:
            claim = LimitedClaim(facts, want, holder, op.claim_no, now, room)
        claim.fill()
        got.leases += claim.leases
        got.looked.update((key, walk.last) for key, walk in claim.walks.items() if walk.last is not None)
        if claim.served_last is not None:
            got.cursors[want.lane] = claim.served_last
        survey = claim.survey()
        if survey is not None:
            got.surveys.append(survey)


def renew(facts: Facts, op: Renew, now: datetime) -> Renewed:
    expires_at = later(now, op.lease_s)
    fresh = op.worker not in facts.workers
    holder = facts.workers.setdefault(op.worker, Worker(op.worker, now))
    holder.renew(structs.replace(op, figures=dict(op.figures)), now, expires_at)
    return Renewed(now=now, expires_at=expires_at, fresh=fresh)


def retire(facts: Facts, op: Retire, now: datetime) -> Retired:
    holder = facts.workers.get(op.worker)
    if holder is None:
        return Retired(released=0)
    held = list(holder.leases.values())
    for row in held:
        if row.lease is not None:
            release(facts, holder, row, row.lease, now)
    del facts.workers[op.worker]
    return Retired(released=len(held))


def lapse(facts: Facts, op: Lapse, now: datetime) -> ReclaimResult:
    starts = _read_starts(op.starts, now)
    holder = facts.workers.get(op.worker)
    if holder is None:
        return ReclaimResult()
    _mark_started(holder, starts, now)
    held = [holder.leases[seq] for seq in sorted(holder.leases)]
    del facts.workers[op.worker]
    return ReclaimResult(reclaimed=tuple(take_back(facts, holder, row, "worker_gone", now) for row in held))
