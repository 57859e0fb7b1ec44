"""What an application or a person does to jobs and dead letters. Each act is audited under `by`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from fairlane.client.enqueue.options import job_id, row_id, seconds
from fairlane.client.handle import BY_DEFAULT, Handle
from fairlane.client.steps import Ask, both
from fairlane.client.tenant_scope import in_scope
from fairlane.core.ids import JobId, Seq
from fairlane.core.job import DeadLetter, Job
from fairlane.core.names import check_key
from fairlane.core.ops import Acknowledge, Bury, Cancel, DeadLetterAct, Discard, Fail, JobAct, Reprocess, Reset, Resolve
from fairlane.core.payload.redaction import without_secrets
from fairlane.errors import DeadLetterNotFound, InvalidOption, JobNotFound, NotAllowed

if TYPE_CHECKING:
    from fairlane.client.store_access import StoreAccess

JobLike = Handle[Any] | Job | UUID | str
DeadLetterLike = DeadLetter | int


def _cancel(
    job: JobLike, *, by: str = BY_DEFAULT, notes: str | None = None, tenant: str | int | None = None
) -> Ask[JobAct, Job]:
    """End a waiting job as cancelled; ask a running one to stop."""
    target = job_id("job", job)
    return Ask(
        Cancel(scope=in_scope(tenant), id=target, by=_by(by), notes=notes), lambda act: _job("cancel", target, act)
    )


def _fail(
    job: JobLike,
    reason: str,
    *,
    retry_delay: float | timedelta | None = None,
    by: str = BY_DEFAULT,
    notes: str | None = None,
    tenant: str | int | None = None,
) -> Ask[JobAct, Job]:
    """Fail an unfinished job by hand, charging an attempt; without `retry_delay` it is dead."""
    target = job_id("job", job)
    delay_s = None if retry_delay is None else seconds("retry_delay", retry_delay)
    op = Fail(scope=in_scope(tenant), id=target, by=_by(by), notes=notes, reason=_reason(reason), retry_delay_s=delay_s)
    return Ask(op, lambda act: _job("fail", target, act))


def _bury(
    job: JobLike, reason: str, *, by: str = BY_DEFAULT, notes: str | None = None, tenant: str | int | None = None
) -> Ask[JobAct, Job]:
    """Send an unfinished job to the dead letters."""
    target = job_id("job", job)
    op = Bury(scope=in_scope(tenant), id=target, by=_by(by), notes=notes, reason=_reason(reason))
    return Ask(op, lambda act: _job("bury", target, act))


def _reset(
    job: JobLike, *, by: str = BY_DEFAULT, notes: str | None = None, tenant: str | int | None = None
) -> Ask[JobAct, Job]:
    """Take a running job from its worker, uncharged: it is ready again at once, and what the old attempt writes no longer counts."""
    target = job_id("job", job)
    return Ask(
        Reset(scope=in_scope(tenant), id=target, by=_by(by), notes=notes), lambda act: _job("reset", target, act)
    )


def _discard(
    dead_letter: DeadLetterLike, *, by: str = BY_DEFAULT, notes: str | None = None, tenant: str | int | None = None
) -> Ask[DeadLetterAct, DeadLetter]:
    """Close a dead letter as not worth another try."""
    target = _dead_letter_id(dead_letter)
    op = Discard(scope=in_scope(tenant), id=target, by=_by(by), notes=notes)
    return Ask(op, lambda act: _dead_letter("discard", target, act))


def _resolve(
    dead_letter: DeadLetterLike, *, by: str = BY_DEFAULT, notes: str | None = None, tenant: str | int | None = None
) -> Ask[DeadLetterAct, DeadLetter]:
    """Close a dead letter as dealt with."""
    target = _dead_letter_id(dead_letter)
    op = Resolve(scope=in_scope(tenant), id=target, by=_by(by), notes=notes)
    return Ask(op, lambda act: _dead_letter("resolve", target, act))


def _acknowledge(
    dead_letter: DeadLetterLike, *, by: str = BY_DEFAULT, notes: str | None = None, tenant: str | int | None = None
) -> Ask[DeadLetterAct, DeadLetter]:
    """Say who looks after a dead letter; the first name stays."""
    target = _dead_letter_id(dead_letter)
    op = Acknowledge(scope=in_scope(tenant), id=target, by=_by(by), notes=notes)
    return Ask(op, lambda act: _dead_letter("acknowledge", target, act))


class Acting:
    """The verbs of `Fairlane` that change jobs. A refusal raises `JobNotFound`, `DeadLetterNotFound` or `NotAllowed`."""

    if TYPE_CHECKING:

        @property
        def access(self) -> StoreAccess: ...

        def new_job_id(self) -> JobId: ...

    cancel, acancel = both(_cancel)
    fail, afail = both(_fail)
    bury, abury = both(_bury)
    reset, areset = both(_reset)
    discard, adiscard = both(_discard)
    resolve, aresolve = both(_resolve)
    acknowledge, aacknowledge = both(_acknowledge)

    def reprocess(
        self,
        dead_letter: DeadLetterLike,
        *,
        by: str = BY_DEFAULT,
        notes: str | None = None,
        tenant: str | int | None = None,
    ) -> Job:
        """Make a new job of a dead one. Called again while that job lives, it returns the same job."""
        op = self._reprocessing(dead_letter, by, notes, tenant)
        return _new_job(op.id, self.access.run(op))

    async def areprocess(
        self,
        dead_letter: DeadLetterLike,
        *,
        by: str = BY_DEFAULT,
        notes: str | None = None,
        tenant: str | int | None = None,
    ) -> Job:
        op = self._reprocessing(dead_letter, by, notes, tenant)
        return _new_job(op.id, await self.access.arun(op))

    def _reprocessing(
        self, dead_letter: DeadLetterLike, by: str, notes: str | None, tenant: str | int | None
    ) -> Reprocess:
        target = _dead_letter_id(dead_letter)
        return Reprocess(scope=in_scope(tenant), id=target, by=_by(by), notes=notes, new_job_id=self.new_job_id())


def _by(by: str) -> str:
    return check_key("by", by)


def _reason(reason: object) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidOption("reason", reason, "a few words for the people who will read it")
    return without_secrets(reason)


def _dead_letter_id(dead_letter: DeadLetterLike) -> Seq:
    found = dead_letter.id if isinstance(dead_letter, DeadLetter) else dead_letter
    return row_id("dead_letter", found, "a dead letter or its id, a whole number")


def _job(act: str, id: JobId, came_to: JobAct) -> Job:
    if came_to.job is None:
        raise JobNotFound(id)
    if came_to.refused is not None:
        raise NotAllowed(act, f"job {id}", came_to.job.status)
    return came_to.job


def _dead_letter(act: str, id: Seq, came_to: DeadLetterAct) -> DeadLetter:
    if came_to.dead_letter is None:
        raise DeadLetterNotFound(id)
    if came_to.refused is not None:
        raise NotAllowed(act, f"dead letter {id}", came_to.dead_letter.status)
    return came_to.dead_letter


def _new_job(id: Seq, came_to: DeadLetterAct) -> Job:
    _dead_letter("reprocess", id, came_to)
    assert came_to.new_job is not None
    return came_to.new_job
