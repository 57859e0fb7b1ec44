"""Jobs put together from their bodies, states and facts: one with its attempts and log, or several."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from fairlane.core.ids import JobId, Seq
from fairlane.core.job import Attempt, Job, SignalWait, StepRecord
from fairlane.core.ops import GetJob, GetStatus, JobDetail, JobStatus, LogLine, Note, ReadSteps, status_of
from fairlane.stores.instants import from_us, maybe_from_us
from fairlane.stores.redis.states import (
    JobState,
    KeptAttempt,
    KeptBody,
    read_attempt,
    read_body,
    read_error,
    read_step,
    read_wait,
    state_of,
    worker_id,
)
from fairlane.stores.redis.steps import Script, Steps, Work, handles

_read_log = msgspec.json.Decoder(tuple[LogLine, ...]).decode


_OF_STATUS = ("error", "result")
"""What a status needs of the facts, which hold the whole history."""


class KeptJob(NamedTuple):
    """All that is kept of one job."""

    seq: Seq
    body: KeptBody
    state: JobState
    facts: dict[bytes, bytes]

    def is_leased_to(self, op: Note | ReadSteps) -> bool:
        """Whether the attempt that an operation names holds its lease."""
        state, named = self.state, (op.worker.hex, op.attempt, op.claim_no)
        return state.place == "leased" and (state.worker, state.attempt, state.claim) == named


@handles
def get_job(work: Work, op: GetJob) -> Steps[JobDetail | None]:
    found = yield from find_job(work, op.id, op.scope.tenant)
    if found is None:
        return None
    progress = found.facts.get(b"progress")
    return JobDetail(
        job=job_of(found),
        attempts=attempts_of(found),
        progress=None if progress is None else float(progress),
        log=read_log(found),
        steps=steps_of(found),
        waits_for=wait_of(found),
    )


@handles
def get_status(work: Work, op: GetStatus) -> Steps[JobStatus | None]:
    [found] = yield from work.read(("HGET", "id", op.id.hex))
    if found is None:
        return None
    seq = Seq(int(found))
    (body, state), said = yield from work.read(
        ("MGET", f"job:{seq}", f"state:{seq}"), ("HMGET", f"facts:{seq}", *_OF_STATUS)
    )
    facts = {name.encode(): fact for name, fact in zip(_OF_STATUS, said, strict=True) if fact is not None}
    kept = _kept_job(seq, body, state, facts)
    return None if kept is None or op.scope.tenant not in (None, kept.body.tenant) else status_of(job_of(kept))


def read_log(kept: KeptJob) -> tuple[LogLine, ...]:
    return _read_log(kept.facts.get(b"log", b"[]"))


def find_job(work: Work, job_id: JobId, tenant: str | None) -> Generator[Script, Any, KeptJob | None]:
    """A job, if it is there and the tenant (None: any) may see it."""
    [seq] = yield from work.read(("HGET", "id", job_id.hex))
    if seq is None:
        return None
    [found] = yield from read_jobs(work, [Seq(int(seq))])
    return found if found is not None and tenant in (None, found.body.tenant) else None


def read_jobs(work: Work, seqs: Sequence[int], *, watch: bool = True) -> Generator[Script, Any, list[KeptJob | None]]:
    """The jobs with these numbers, in the order given; None: it has been removed, or nobody can read what is there."""
    if not seqs:
        return []
    bodies, states, *facts = yield from work.read(
        ("MGET", *(f"job:{seq}" for seq in seqs)),
        ("MGET", *(f"state:{seq}" for seq in seqs)),
        *(("HGETALL", f"facts:{seq}") for seq in seqs),
        watch=watch,
    )
    found: list[KeptJob | None] = []
    for seq, body, state, fields in zip(seqs, bodies, states, facts, strict=True):
        found.append(_kept_job(Seq(seq), body, state, dict(zip(fields[::2], fields[1::2], strict=True))))
    return found


def _kept_job(seq: Seq, body: bytes | None, state: bytes | None, facts: dict[bytes, bytes]) -> KeptJob | None:
    try:
        kept = None if body is None else read_body(body)
    except msgspec.MsgspecError:
        return None
    return None if kept is None else KeptJob(seq, kept, state_of(kept, state), facts)


def job_of(kept: KeptJob) -> Job:
    body, state = kept.body, kept.state
    error = read_error(kept.facts[b"error"]) if b"error" in kept.facts else None
    result = kept.facts.get(b"result")
    own_id = body.id
    return Job(
        seq=kept.seq,
        id=JobId(own_id),
        type=body.type,
        status=state.status,
        tenant=body.tenant,
        queue=body.queue,
        priority=body.priority,
        category=body.category,
        payload=body.payload,
        payload_version=body.payload_version,
        idempotency_key=str(own_id) if body.idempotency_key is None else body.idempotency_key,
        dedup_key=body.dedup_key,
        correlation_id=str(own_id) if body.correlation_id is None else body.correlation_id,
        parent_id=None if body.parent_id is None else JobId(UUID(hex=body.parent_id)),
        created_by=body.created_by,
        refs=body.refs or {},
        headers=body.headers or {},
        attempt=state.attempt,
        attempts=state.attempts,
        crashes=state.crashes,
        max_attempts=body.max_attempts,
        timeout_s=body.timeout_s,
        enqueued_at=from_us(body.enqueued),
        scheduled_at=from_us(body.due),
        run_at=from_us(state.due),
        started_at=maybe_from_us(state.started),
        finished_at=maybe_from_us(state.finished),
        worker=None if state.worker is None else worker_id(state.worker),
        cancel_requested=state.place == "leased" and bool(state.cancel),
        result=None if result is None else result.decode(),
        error_class=None if error is None else error.error_class,
        error_type=None if error is None else error.error_type,
        last_error=None if error is None else error.error_message,
        last_error_at=None if error is None else from_us(error.at),
        key=None if body.key is None else body.key.value,
    )


def attempts_of(kept: KeptJob) -> tuple[Attempt, ...]:
    """How its attempts ended, by number. A completed one stands in the state alone."""
    ended = [read_attempt(value) for name, value in kept.facts.items() if name.startswith(b"attempt:")]
    state = kept.state
    if state.place == "completed" and state.leased is not None and state.finished is not None:
        last = KeptAttempt(
            attempt=state.attempt,
            outcome="completed",
            worker=state.worker,
            leased=state.leased,
            expires=state.deadline,
            started=state.started,
            ended=state.finished,
        )
        ended.append(last)
    return tuple(_attempt(one) for one in sorted(ended, key=lambda one: one.attempt))


def _attempt(kept: KeptAttempt) -> Attempt:
    return Attempt(
        attempt=kept.attempt,
        outcome=kept.outcome,
        worker=None if kept.worker is None else worker_id(kept.worker),
        leased_at=from_us(kept.leased),
        expires_at=maybe_from_us(kept.expires),
        started_at=maybe_from_us(kept.started),
        ended_at=from_us(kept.ended),
        error_class=kept.error_class,
        error_type=kept.error_type,
        error_message=kept.error_message,
        traceback=kept.traceback,
    )


def steps_of(kept: KeptJob) -> tuple[StepRecord, ...]:
    found = [step_of(value) for name, value in kept.facts.items() if name.startswith(b"step:")]
    return tuple(sorted(found, key=lambda step: step.n))


def step_of(value: bytes) -> StepRecord:
    kept = read_step(value)
    return StepRecord(
        n=kept.n,
        kind=kept.kind,
        name=kept.name,
        key=kept.key,
        attempt=kept.attempt,
        at=from_us(kept.at),
        ran_s=kept.ran_s,
        result=kept.result,
        until=maybe_from_us(kept.until),
        signal=None if kept.signal is None else UUID(hex=kept.signal),
    )


def wait_of(kept: KeptJob) -> SignalWait | None:
    """The signal that a job waits for now."""
    if kept.state.waits is None:
        return None
    wait = read_wait(kept.facts[b"wait"])
    return SignalWait(n=wait.n, name=wait.name, key=wait.key, until=from_us(wait.until))
