"""A handle on one enqueued job: ask for its status, wait for its result, cancel it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack
from uuid import UUID

import msgspec

from fairlane.client.context import in_scope
from fairlane.client.steps import Sleep, Steps, Verbs, ask, both, growing_sleeps, is_on_event_loop
from fairlane.core.ids import JobId
from fairlane.core.job import FINAL, Job, Status
from fairlane.core.names import check_key
from fairlane.core.ops import Cancel, GetJob, GetStatus, JobAct, JobStatus, Scope
from fairlane.errors import BlocksEventLoop, InvalidState, JobFailed, JobNotFound, ResultTimeout

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime

R = TypeVar("R")

BY_DEFAULT = "application"
"""The actor in the audit record if the caller names none."""


class ActOptions(TypedDict, total=False):
    """Who acts and why, for the audit record."""

    by: str
    notes: str | None


class ScopedActOptions(ActOptions, total=False):
    tenant: str | int | None
    """Whose jobs the act may touch; None: all tenants'."""


def audited(about: ActOptions) -> dict[str, Any]:
    """The fields of an act that say who acts and why."""
    fields: dict[str, Any] = {"by": BY_DEFAULT, **about}
    check_key("by", fields["by"])
    return fields


def audited_in_scope(about: ScopedActOptions) -> dict[str, Any]:
    """The same, and the scope of the act."""
    fields = audited(about)
    fields["scope"] = in_scope(fields.pop("tenant", None))
    return fields


class Handle(Verbs, Generic[R]):
    """One job, by its id. Every method has an async version, named `a…`."""

    __slots__ = ("_read_result", "_result_expires_s", "_scope", "_type", "duplicate", "id")

    def __init__(
        self,
        id: JobId,
        runtime: Runtime,
        scope: Scope,
        *,
        type: str | None = None,
        read_result: Callable[[str], R],
        result_expires_s: float | None = None,
        duplicate: bool = False,
    ) -> None:
        self.id = id
        self.duplicate = duplicate
        """True if the key was taken: `id` is the existing job, nothing was enqueued."""
        self._runtime, self._scope, self._type, self._read_result = runtime, scope, type, read_result
        self._result_expires_s = result_expires_s

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and (self.id, self.duplicate) == (other.id, other.duplicate)

    def __hash__(self) -> int:
        return hash(self.id)

    def _job(self) -> Steps[Job]:
        """The job as it is now. Raises `JobNotFound` once it is past retention."""
        detail = yield from ask(GetJob(scope=self._scope, id=self.id))
        if detail is None:
            raise JobNotFound(self.id)
        return detail.job

    def _now(self) -> Steps[JobStatus]:
        now = yield from ask(GetStatus(scope=self._scope, id=self.id))
        if now is None:
            raise JobNotFound(self.id)
        return now

    def _status(self) -> Steps[Status]:
        return (yield from self._now()).status

    def _result(self, timeout: float | None = None) -> Steps[R]:
        """Wait until the job has ended and return what its task returned.

        Raises `JobFailed` for one that ended dead or cancelled, `ResultTimeout` after `timeout` seconds; None waits
        as long as it takes. Polls: notices the end within half a second.
        """
        monotonic = self._runtime.clock.monotonic
        began_s = monotonic()
        for sleep in growing_sleeps():
            job = yield from self._now()
            if job.status in FINAL:
                return self._result_of(job)
            left_s = sleep.seconds if timeout is None else began_s + timeout - monotonic()
            if left_s <= 0:
                raise self._timeout(job, timeout or 0.0)
            yield Sleep(min(sleep.seconds, left_s))
        raise AssertionError

    def _cancel(self, **about: Unpack[ActOptions]) -> Steps[Job]:
        """Cancel a waiting job; ask a running one to stop. Returns the updated job."""
        act = yield from ask(Cancel(scope=self._scope, id=self.id, **audited(about)))
        return job_of(act, "cancel", self.id)

    job, ajob = both(_job)
    status, astatus = both(_status)
    _wait, aresult = both(_result)
    cancel, acancel = both(_cancel)

    def result(self, timeout: float | None = None) -> R:
        """Wait until the job has ended and return what its task returned.

        Raises `JobFailed` for one that ended dead or cancelled, `ResultTimeout` after `timeout` seconds; None waits
        as long as it takes. On the thread of an event loop it would stop everything that runs there and is refused,
        unless `timeout` is 0: use `aresult`. Polls: notices the end within half a second.
        """
        if timeout != 0 and is_on_event_loop():
            raise BlocksEventLoop("handle.result()", "handle.aresult()")
        return self._wait(timeout)

    def __repr__(self) -> str:
        return f"<Handle {self._type or 'job'} {self.id}{' (duplicate)' if self.duplicate else ''}>"

    def _timeout(self, job: JobStatus, waited_s: float) -> ResultTimeout:
        if job.status not in ("pending", "failed") or job.run_at <= self._runtime.clock.now():
            return ResultTimeout(self.id, job.status, waited_s)
        error = None if job.error_type is None else f"{job.error_type}: {job.last_error}"
        return ResultTimeout(self.id, job.status, waited_s, next_at=job.run_at, error=error)

    def _result_of(self, job: JobStatus) -> R:
        if job.status != "completed":
            raise JobFailed(self.id, job.status, job.error_type, job.last_error)
        kept_s, ended_at = self._result_expires_s, job.finished_at
        if kept_s is not None and ended_at and (self._runtime.clock.now() - ended_at).total_seconds() > kept_s:
            raise JobFailed(self.id, job.status, "ResultExpired", why_expired(ended_at, kept_s))
        try:
            return self._read_result("null" if job.result is None else job.result)
        except msgspec.DecodeError as error:
            # Another version of the task wrote it, or the key belongs to a job of another type.
            raise JobFailed(self.id, job.status, "UnreadableResult", f'result of "{job.type}": {error}') from None


def why_expired(ended_at: datetime, kept_s: float) -> str:
    return f"it completed at {ended_at.isoformat(timespec='seconds')}, and its result was kept for {kept_s:g} s"


JobLike = Handle[Any] | Job | UUID | str


def job_of(act: JobAct, verb: str, id: JobId) -> Job:
    """The job after an act; raises if it does not exist or the act was refused."""
    if act.job is None:
        raise JobNotFound(id)
    if act.refused is not None:
        raise InvalidState(verb, f"job {id}", act.job.status)
    return act.job
