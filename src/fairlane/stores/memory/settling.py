"""Settling: what each outcome does to its job. Everything is read before the first is applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from math import isfinite
from typing import Any

from fairlane.core.ids import WorkerId
from fairlane.core.job import AttemptOutcome
from fairlane.core.ops import Refusal
from fairlane.core.outcome import (
    Cancelled,
    Completed,
    Crashed,
    Died,
    Outcome,
    Released,
    Retried,
    Snoozed,
    leaves_no_record,
)
from fairlane.errors import StoreRefused
from fairlane.stores.memory.facts import Facts, Row, Try, Worker
from fairlane.stores.memory.moving import (
    drop_lease,
    earlier,
    end_try,
    finish,
    give_back_tokens,
    later,
    make_ready,
    schedule,
)
from fairlane.stores.memory.reclaiming import take_back

RECORDED_AS: dict[type[Any], AttemptOutcome] = {
    Completed: "completed",
    Retried: "failed",
    Died: "dead",
    Cancelled: "cancelled",
    Snoozed: "snoozed",
    Released: "released",
    Crashed: "lost",
}


Read = tuple[Outcome, datetime, datetime | None, str | None]
"""An outcome whose spans and texts are known to be good: itself, when it ended, when it is due again, its result."""


def read_outcomes(outcomes: Sequence[Outcome], now: datetime) -> list[Read]:
    return [_read(outcome, now) for outcome in outcomes]


def _read(outcome: Outcome, now: datetime) -> Read:
    ran_s, ended_ago_s, due_at, result = outcome.ran_s, outcome.ended_ago_s, None, None
    if ran_s is not None and not isfinite(ran_s):
        raise StoreRefused("memory", f"ran_s = {ran_s} of job {outcome.seq}: no span of time; nothing was changed")
    if isinstance(outcome, Completed):
        if outcome.result is not None:
            result = _text_of(outcome)
    elif isinstance(outcome, (Retried, Snoozed)):
        due_at = later(now, outcome.delay_s)
    return outcome, now if ended_ago_s == 0.0 else earlier(now, ended_ago_s), due_at, result


def _text_of(outcome: Completed) -> str:
    try:
        return str(outcome.result, "utf-8")  # type: ignore[arg-type]  # a Raw is a buffer
    except UnicodeDecodeError as error:
        why = f"the result of job {outcome.seq} is not UTF-8: {error}; nothing was changed"
        raise StoreRefused("memory", why) from error


def settle(facts: Facts, worker: WorkerId, holder: Worker | None, outcomes: Sequence[Read]) -> list[Refusal]:
    rows, refused = facts.rows, []
    for read in outcomes:
        outcome, ended_at, _, _ = read
        row = rows.get(outcome.seq)
        lease = None if row is None else row.lease
        if (
            row is None
            or lease is None
            or holder is None
            or lease.attempt != outcome.attempt
            or lease.worker is not holder.id
        ):
            if not (row is not None and _is_recorded(row, outcome, worker)) and not leaves_no_record(outcome):
                refused.append(Refusal(seq=outcome.seq, attempt=outcome.attempt))
            continue
        if lease.started_at is None and outcome.ran_s is not None:
            lease.started_at = earlier(ended_at, outcome.ran_s)
        _APPLY[type(outcome)](facts, holder, row, lease, read)
    return refused


def _is_recorded(row: Row, outcome: Outcome, worker: WorkerId) -> bool:
    recorded = RECORDED_AS[type(outcome)]
    return any(t.attempt == outcome.attempt and t.outcome == recorded and t.worker == worker for t in row.tries)


def _complete(facts: Facts, holder: Worker, row: Row, lease: Try, read: Read) -> None:
    _, ended_at, _, row.result = read
    row.suspect = False
    end_try(facts, holder, row, lease, "completed", ended_at)
    finish(facts, row, "completed", ended_at)


def _retry(facts: Facts, holder: Worker, row: Row, lease: Try, read: Read) -> None:
    outcome, ended_at, due_at, _ = read
    assert isinstance(outcome, Retried)
    row.suspect = False
    row.attempts += 1
    end_try(facts, holder, row, lease, "failed", ended_at, outcome.failure)
    _schedule_unless_cancelled(facts, row, lease, ended_at, due_at, awaits_retry=True)


def _snooze(facts: Facts, holder: Worker, row: Row, lease: Try, read: Read) -> None:
    outcome, ended_at, due_at, _ = read
    assert isinstance(outcome, Snoozed)
    if outcome.recorded:
        row.suspect = False
    else:
        give_back_tokens(facts, row, lease)
    if outcome.recorded or lease.cancel_requested:
        end_try(facts, holder, row, lease, "snoozed", ended_at)
    else:
        drop_lease(facts, holder, row, lease)
    _schedule_unless_cancelled(facts, row, lease, ended_at, due_at, awaits_retry=False)


def _schedule_unless_cancelled(
    facts: Facts, row: Row, lease: Try, ended_at: datetime, due_at: datetime | None, *, awaits_retry: bool
) -> None:
    if lease.cancel_requested:
        finish(facts, row, "cancelled", ended_at)
    else:
        assert due_at is not None
        schedule(facts, row, due_at, awaits_retry=awaits_retry)


def _die(facts: Facts, holder: Worker, row: Row, lease: Try, read: Read) -> None:
    outcome, ended_at, _, _ = read
    assert isinstance(outcome, Died)
    row.suspect = False
    row.attempts += outcome.charged
    end_try(facts, holder, row, lease, "dead", ended_at, outcome.failure)
    finish(facts, row, "dead", ended_at)


def _stop(facts: Facts, holder: Worker, row: Row, lease: Try, read: Read) -> None:
    outcome, ended_at, _, _ = read
    assert isinstance(outcome, Cancelled)
    lease.reason = outcome.reason
    end_try(facts, holder, row, lease, "cancelled", ended_at)
    finish(facts, row, "cancelled", ended_at)


def _release(facts: Facts, holder: Worker, row: Row, lease: Try, read: Read) -> None:
    release(facts, holder, row, lease, read[1])


def _crash(facts: Facts, holder: Worker, row: Row, lease: Try, read: Read) -> None:
    lease.alone = True
    take_back(facts, holder, row, "worker_gone", read[1], started=True)


def release(facts: Facts, holder: Worker, row: Row, lease: Try, at: datetime) -> None:
    """Give a lease back uncharged; a job that was asked to cancel does not run again."""
    if lease.started_at is None:
        give_back_tokens(facts, row, lease)
    end_try(facts, holder, row, lease, "released", at)
    if lease.cancel_requested:
        finish(facts, row, "cancelled", at)
    else:
        make_ready(facts, row)
        facts.wakes = True


_APPLY: dict[type[Any], Callable[[Facts, Worker, Row, Try, Read], None]] = {
    Completed: _complete,
    Retried: _retry,
    Died: _die,
    Cancelled: _stop,
    Snoozed: _snooze,
    Released: _release,
    Crashed: _crash,
}
