"""Making new jobs of dead ones, with an edited payload or later than now where asked for."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from fairlane.api.request import Visit
from fairlane.core.ids import Seq
from fairlane.core.job import Job
from fairlane.core.ops import DeadLetterAct, GetDeadLetter, Reprocess
from fairlane.errors import DeadLetterNotFound, InvalidState


async def reprocess(
    here: Visit,
    id: Seq,
    *,
    notes: str | None,
    payload: dict[str, Any] | None = None,
    delay_s: float | None = None,
) -> tuple[Job, bool]:
    """The job that runs in its place, and whether it was there already."""
    edited = None if payload is None else await _edited(here, id, payload)
    op = Reprocess(
        scope=here.scope,
        id=id,
        by=here.by,
        notes=notes,
        new_job_id=here.app.runtime.new_job_id(),
        payload=edited,
        delay_s=delay_s,
    )
    act = await here.ask(op)
    require_done("reprocess", id, act)
    assert act.new_job is not None
    return act.new_job, act.repeated


def require_done(act: str, id: Seq, came_to: DeadLetterAct) -> None:
    if came_to.dead_letter is None:
        raise DeadLetterNotFound(id)
    if came_to.refused is not None:
        raise InvalidState(act, f"dead letter {id}", came_to.dead_letter.status)


async def _edited(here: Visit, id: Seq, payload: dict[str, Any]) -> Raw:
    """An edited payload goes through the rules of an enqueue, by the task as it is registered now."""
    found = await here.ask(GetDeadLetter(scope=here.scope, id=id))
    if found is None:
        raise DeadLetterNotFound(id)
    job = found.dead_letter.job
    task = here.app.tasks.require(job.type).definition
    if task.version != job.payload_version:
        state = f"of payload version {job.payload_version}, its task is at {task.version}: reprocess it unedited"
        raise InvalidState("edit the payload of", f"dead letter {id}", state)
    return here.app.runtime.preparer.payload(task, task.signature.bind((), payload))
