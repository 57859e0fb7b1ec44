"""Changes of jobs by hand: cancel, fail, bury, reset; and notes of running attempts."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Literal

import msgspec

from fairlane.core.job import ErrorClass, Status
from fairlane.core.ops import LOG_LINES, Bury, Cancel, Fail, FreePlace, JobAct, LogLine, Note, Noted, Reset
from fairlane.core.outcome import Failure
from fairlane.stores.instants import after, from_us
from fairlane.stores.redis.jobs.records import KeptJob, find_job, job_of, read_jobs, read_log
from fairlane.stores.redis.states import JobState, joined
from fairlane.stores.redis.steps import Steps, Work, handles
from fairlane.stores.redis.turn import failure_of

_FINISHED = ("completed", "dead", "cancelled")


@handles
def cancel(work: Work, op: Cancel) -> Steps[JobAct]:
    found = yield from find_job(work, op.id, op.scope.tenant)
    if found is None or found.state.place in _FINISHED:
        refused = _refused(found)
        is_done = refused.job is not None and refused.job.status == "cancelled"
        return JobAct(job=refused.job) if is_done else refused
    state = found.state
    if state.cancel:
        return JobAct(job=job_of(found))
    if state.place == "leased":
        work.act("move", found.seq, {**as_table(state), "cancel": True})
        return (yield from _done(work, op, "job_cancel", found, state.status, state.attempts))
    work.act("finish", found.seq, "cancelled", as_table(state))
    return (yield from _done(work, op, "job_cancel", found, "cancelled", state.attempts))


@handles
def fail(work: Work, op: Fail) -> Steps[JobAct]:
    found = yield from find_job(work, op.id, op.scope.tenant)
    if found is None or found.state.place in _FINISHED:
        return _refused(found)
    state = found.state
    retry_at = None
    has_attempts = state.attempts + 1 < found.body.max_attempts
    if op.retry_delay_s is not None and has_attempts and state.place != "waiting":
        retry_at = after(work.now, op.retry_delay_s)
    error_class: Literal["retryable", "non_retryable"] = "non_retryable" if retry_at is None else "retryable"
    failure = own_failure(found.body.type, "FailedByHand", error_class, op.reason)
    ended = _ended_by_hand(work, state, failure)
    counters = {
        "attempt": ended["attempt"],
        "attempts": state.attempts + 1,
        "crashes": state.crashes,
        "aged": state.aged,
    }
    status: Status = "failed"
    if retry_at is None:
        status = "dead"
        work.act("letter", found.seq, failure_of(failure))
        work.act("finish", found.seq, "dead", counters, ended)
    elif state.cancel:
        status = "cancelled"
        work.act("finish", found.seq, "cancelled", counters, ended)
    else:
        work.act("record", found.seq, ended)
        work.act("move", found.seq, {**counters, "place": "failed", "due": retry_at, "since": work.now})
    return (yield from _done(work, op, "job_fail", found, status, state.attempts + 1))


@handles
def bury(work: Work, op: Bury) -> Steps[JobAct]:
    found = yield from find_job(work, op.id, op.scope.tenant)
    if found is None or found.state.place in _FINISHED:
        return _refused(found)
    state = found.state
    failure = own_failure(found.body.type, "Buried", "non_retryable", op.reason)
    ended = _ended_by_hand(work, state, failure)
    work.act("letter", found.seq, failure_of(failure))
    work.act("finish", found.seq, "dead", {**as_table(state), "attempt": ended["attempt"]}, ended)
    return (yield from _done(work, op, "job_bury", found, "dead", state.attempts))


@handles
def reset(work: Work, op: Reset) -> Steps[JobAct]:
    found = yield from find_job(work, op.id, op.scope.tenant)
    if found is None or found.state.place != "leased":
        return _refused(found)
    state = found.state
    ended = _ended(work, state, "released")
    if state.started is None:
        work.act("give_back", found.seq)
    if state.cancel:
        work.act("finish", found.seq, "cancelled", as_table(state), ended)
        return (yield from _done(work, op, "job_reset", found, "cancelled", state.attempts))
    work.act("record", found.seq, ended)
    carried = {name: getattr(state, name) for name in ("due", "attempt", "attempts", "crashes", "suspect", "aged")}
    work.act("move", found.seq, {**carried, "place": "ready"})
    return (yield from _done(work, op, "job_reset", found, "pending", state.attempts))


@handles
def free_place(work: Work, op: FreePlace) -> Steps[JobAct]:
    found = yield from find_job(work, op.id, op.scope.tenant)
    if found is None or (key := found.body.key) is None:
        return _refused(found)
    [place] = yield from work.read(("ZSCORE", f"key_places:{joined(found.body.tenant, key.value)}", found.seq))
    if place is None:
        return _refused(found)
    work.act("free_place", found.seq)
    return (yield from _done(work, op, "job_place_free", found, found.state.status, found.state.attempts))


@handles
def note(work: Work, op: Note) -> Steps[Noted]:
    [found] = yield from read_jobs(work, [op.seq])
    if found is None or not found.is_leased_to(op):
        return Noted(accepted=False)
    new = [LogLine(at=from_us(work.now), attempt=op.attempt, message=message) for message in op.log]
    lines = [*read_log(found), *new][-LOG_LINES:]
    if op.progress is not None:
        work.do("HSET", f"facts:{op.seq}", "progress", repr(op.progress))
    work.do("HSET", f"facts:{op.seq}", "log", msgspec.json.encode(lines).decode())
    yield from work.commit()
    return Noted(accepted=True)


def as_table(state: JobState) -> dict[str, Any]:
    """A state as scripts take it."""
    return {name: value for name, value in msgspec.structs.asdict(state).items() if value is not None}


def own_failure(job_type: str, error_type: str, error_class: ErrorClass, message: str) -> Failure:
    """A failure no task code raised."""
    fingerprint = own_fingerprint(job_type, error_type)
    return Failure(error_class=error_class, error_type=error_type, message=message, fingerprint=fingerprint)


def own_fingerprint(job_type: str, error_type: str) -> str:
    """Alike for all jobs of one type. Scripts, which know no SHA-256, leave it to the reader."""
    return sha256(f"{job_type}:{error_type}".encode()).hexdigest()[:16]


def _refused(found: KeptJob | None) -> JobAct:
    return JobAct(refused="not_found") if found is None else JobAct(refused="not_allowed", job=job_of(found))


def _ended(work: Work, state: JobState, outcome: str) -> dict[str, Any]:
    return {
        "attempt": state.attempt,
        "outcome": outcome,
        "worker": state.worker,
        "leased": state.leased,
        "expires": state.deadline,
        "started": state.started,
        "ended": work.now,
    }


def _ended_by_hand(work: Work, state: JobState, failure: Failure) -> dict[str, Any]:
    """The end of its attempt; a job that only waited takes the next number for the record."""
    if state.place == "leased":
        ended = _ended(work, state, "failed_by_hand")
    else:
        number = state.attempt + 1
        ended = {"attempt": number, "outcome": "failed_by_hand", "leased": work.now, "ended": work.now}
    because = {"error_class": failure.error_class, "error_type": failure.error_type, "error_message": failure.message}
    return {**ended, **because}


def _done(
    work: Work, op: Cancel | Fail | Bury | Reset | FreePlace, action: str, found: KeptJob, status: Status, attempts: int
) -> Steps[JobAct]:
    """Write the act with its audit record; the answer is the job as it is then."""
    before = job_of(found)
    was, is_now = (before.status, before.attempts), (status, attempts)
    facts: list[dict[str, object]] = [dict(zip(("status", "attempts"), pair, strict=True)) for pair in (was, is_now)]
    work.audit(op, action, before.tenant, f"job:{before.id}", *facts)
    if found.state.place == "leased":
        work.act("wake_for_ready")
    yield from work.commit()
    [after_act] = yield from read_jobs(work, [found.seq], watch=False)
    return JobAct(job=before if after_act is None else job_of(after_act))
