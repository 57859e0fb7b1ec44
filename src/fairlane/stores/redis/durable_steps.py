"""Durable steps, kept among the facts of their jobs."""

from __future__ import annotations

from typing import Any

from fairlane.core.ops import ReadSteps, RecordedSteps, RecordStep, StepAnswer
from fairlane.stores.redis.jobs.records import read_jobs, step_of, steps_of
from fairlane.stores.redis.states import text_of
from fairlane.stores.redis.steps import Script, Steps, Work, handles, pack


@handles
def record(work: Work, op: RecordStep) -> Steps[StepAnswer]:
    call: dict[str, Any] = {**of_attempt(op), "n": op.n, "name": op.name}
    if op.ran_s is not None:
        call["ran_s"] = op.ran_s
    results = () if op.result is None else (text_of(op.result, "the result of a step of job", op.seq),)
    accepted, *step = yield Script("signals", (work.instant(), "record", pack(call), *results))
    return StepAnswer(accepted=accepted == 1, step=step_of(step[0]) if step else None)


@handles
def read(work: Work, op: ReadSteps) -> Steps[RecordedSteps]:
    [found] = yield from read_jobs(work, [op.seq], watch=False)
    if found is None or not found.is_leased_to(op):
        return RecordedSteps(accepted=False)
    return RecordedSteps(accepted=True, steps=steps_of(found))


def of_attempt(op: Any) -> dict[str, Any]:
    return {"worker": op.worker.hex, "seq": op.seq, "attempt": op.attempt, "claim_no": op.claim_no}
