"""The moves of a row from place to place. Each leaves the facts whole."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from heapq import heappush

from fairlane.core.ids import Seq
from fairlane.core.job import AttemptOutcome, ErrorClass, JobSpec
from fairlane.core.outcome import Failure
from fairlane.errors import StoreRefused
from fairlane.stores.memory.facts import Facts, FinalPlace, Letter, Row, Try, Worker

_BEGINNING_OF_TIME, _END_OF_TIME = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def later(now: datetime, seconds: float) -> datetime:
    try:
        return now + timedelta(seconds=seconds)
    except OverflowError:
        return _END_OF_TIME if seconds > 0 else _BEGINNING_OF_TIME
    except (TypeError, ValueError) as error:
        raise StoreRefused("memory", f"{seconds!r} is no number of seconds; nothing was changed") from error


def earlier(now: datetime, seconds: float) -> datetime:
    return now if seconds == 0.0 else later(now, -seconds)


def as_utc(what: str, at: datetime) -> datetime:
    if at.tzinfo is None:
        raise StoreRefused("memory", f"{what} {at} has no time zone; nothing was changed")
    return at if at.tzinfo is UTC else at.astimezone(UTC)


def own_failure(row: Row, error_type: str, error_class: ErrorClass, message: str) -> Failure:
    """A failure that no task code raised: of the reclaimer, or a person."""
    fingerprint = sha256(f"{row.type}:{error_type}".encode()).hexdigest()[:16]
    return Failure(error_class=error_class, error_type=error_type, message=message, fingerprint=fingerprint)


def create(facts: Facts, spec: JobSpec, payload: str, due_at: datetime, now: datetime) -> Row:
    facts.last_seq += 1
    line = spec.queue, spec.band, spec.tenant
    row = Row(spec, Seq(facts.last_seq), spec.type, line, spec.rank, payload, now, due_at, due_at)
    facts.rows[row.seq] = facts.ids[spec.id] = row
    if spec.idempotency_key is not None:
        facts.idempotency[spec.tenant, spec.idempotency_key] = row
    if spec.dedup_key is not None:
        facts.dedup[spec.tenant, spec.type, spec.dedup_key] = row
    if due_at <= now:
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
    """Take a ready or scheduled row out of its line."""
    if row.place == "ready":
        facts.ready.remove(row)
    else:
        facts.scheduled.remove(row)


def end_try(
    holder: Worker | None, row: Row, lease: Try, outcome: AttemptOutcome, at: datetime, failure: Failure | None = None
) -> None:
    """End an attempt and keep it as a record. The row is nowhere then: the caller says where it goes."""
    lease.outcome, lease.ended_at = outcome, at
    row.tries = (*row.tries, lease)
    row.lease, row.last_try = None, lease
    if failure is not None:
        lease.failure = row.failure = failure
        row.failed_at = at
    if holder is not None:
        del holder.leases[row.seq]
        if lease.cancel_requested:
            holder.asked_to_cancel.discard(row.seq)


def finish(facts: Facts, row: Row, place: FinalPlace, at: datetime) -> None:
    row.place, row.finished_at = place, at
    spec = row.spec
    facts.ended[spec.tenant, place] += 1
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
    facts.letters.pop(row.seq, None)
    facts.notes.pop(row.seq, None)
    facts.ended[spec.tenant, row.place] -= 1  # type: ignore[index]  # finished: its place is a final one
    if spec.idempotency_key is not None:
        del facts.idempotency[spec.tenant, spec.idempotency_key]
