"""The moves of a row from place to place. Each leaves the facts whole."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from heapq import heappush

from fairlane.core.ids import Seq
from fairlane.core.job import AttemptOutcome, ErrorClass, JobSpec
from fairlane.core.limits import LimitKey
from fairlane.core.outcome import Failure
from fairlane.stores.memory.facts import Facts, FinalPlace, Letter, Row, Try, Worker
from fairlane.stores.memory.moments import as_utc as as_utc, earlier as earlier, later as later


def own_failure(row: Row, error_type: str, error_class: ErrorClass, message: str) -> Failure:
    """A failure that no task code raised: of the reclaimer, or a person."""
    fingerprint = sha256(f"{row.type}:{error_type}".encode()).hexdigest()[:16]
    return Failure(error_class=error_class, error_type=error_type, message=message, fingerprint=fingerprint)


def create(facts: Facts, spec: JobSpec, payload: str, due_at: datetime, now: datetime, *, held: bool = False) -> Row:
    facts.last_seq += 1
    line = spec.queue, spec.band, spec.tenant
    row = Row(spec, Seq(facts.last_seq), spec.type, line, spec.rank, payload, now, due_at, due_at)
    facts.rows[row.seq] = facts.ids[spec.id] = row
    if spec.idempotency_key is not None:
        facts.idempotency[spec.tenant, spec.idempotency_key] = row
    if spec.dedup_key is not None:
        facts.dedup[spec.tenant, spec.type, spec.dedup_key] = row
    if facts.census is not None:
        facts.census.add(row)
    if held:
        row.place = "held"
        facts.held.add(row)
    elif due_at <= now:
        facts.ready.add(row)
    else:
        row.place = "scheduled"
        facts.scheduled.add(row)
    return row


def make_ready(facts: Facts, row: Row) -> None:
    row.place = "ready"
    facts.ready.add(row)


def schedule(facts: Facts, row: Row, due_at: datetime, *, awaits_retry: bool) -> None:
    row.place, row.due_at, row.awaits_retry = "scheduled", due_at, awaits_retry
    facts.scheduled.add(row)


def stop_waiting(facts: Facts, row: Row) -> None:
    """Take a ready, scheduled or held row out of its line."""
    if row.place == "ready":
        facts.ready.remove(row)
    elif row.place == "scheduled":
        facts.scheduled.remove(row)
    else:
        facts.held.remove(row)


def give_back_tokens(facts: Facts, row: Row, lease: Try) -> None:
    """An attempt that never started was no claim after all, as far as rates are concerned."""
    if not facts.claims:
        return
    queue, _, tenant = row.line
    counted = lease.leased_at, row.seq, lease.attempt
    for key in (
        LimitKey("queue", queue),
        LimitKey("tenant", tenant),
        LimitKey("tenant", tenant, queue),
        LimitKey("type", row.type),
        *facts.claims.named(),
    ):
        facts.claims.give_back(key, counted)


def end_try(
    facts: Facts,
    holder: Worker | None,
    row: Row,
    lease: Try,
    outcome: AttemptOutcome,
    at: datetime,
    failure: Failure | None = None,
) -> None:
    """End an attempt and keep it as a record. The row is nowhere then: the caller says where it goes."""
    lease.outcome, lease.ended_at = outcome, at
    row.tries = (*row.tries, lease)
    row.last_try = lease
    if failure is not None:
        lease.failure = row.failure = failure
        row.failed_at = at
    drop_lease(facts, holder, row, lease)


def drop_lease(facts: Facts, holder: Worker | None, row: Row, lease: Try) -> None:
    """End an attempt of which no record is kept."""
    row.lease = None
    if holder is not None:
        del holder.leases[row.seq]
        if lease.cancel_requested:
            holder.asked_to_cancel.discard(row.seq)
        if facts.running is not None:
            facts.running.remove(row)
            if lease.limited:
                facts.freed.append(row)


def finish(facts: Facts, row: Row, place: FinalPlace, at: datetime) -> None:
    row.place, row.finished_at = place, at
    spec = row.spec
    facts.ended[spec.tenant, place] += 1
    if facts.census is not None:
        facts.census.finish(row)
    if place == "dead":
        row.letter = Letter()
        facts.letters[row.seq] = row
    else:
        heappush(facts.finished, (at, row.seq))
    if spec.dedup_key is not None:
        del facts.dedup[spec.tenant, spec.type, spec.dedup_key]


def remove(facts: Facts, row: Row) -> None:
    """Forget a finished row with all its facts."""
    spec = row.spec
    del facts.rows[row.seq], facts.ids[spec.id]
    if facts.census is not None:
        facts.census.remove(row)
    facts.letters.pop(row.seq, None)
    facts.notes.pop(row.seq, None)
    facts.ended[spec.tenant, row.place] -= 1  # type: ignore[index]  # finished: its place is a final one
    if spec.idempotency_key is not None:
        del facts.idempotency[spec.tenant, spec.idempotency_key]
