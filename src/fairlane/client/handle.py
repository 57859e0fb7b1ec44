"""A handle on one enqueued job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from fairlane.client.store_access import StoreAccess
from fairlane.client.waiting import Pause, growing_pauses
from fairlane.core.clock import Clock
from fairlane.core.ids import JobId
from fairlane.core.job import FINAL, Job, Status
from fairlane.core.names import check_key
from fairlane.core.ops import Cancel, GetJob, JobAct, JobDetail, Scope
from fairlane.errors import JobFailed, JobNotFound, NotAllowed, ResultTimeout

R = TypeVar("R")

BY_DEFAULT = "application"
"""Who acted, in the audit record, when the caller did not say."""


class Surroundings(msgspec.Struct, frozen=True):
    """What every handle of an application shares."""

    access: StoreAccess
    clock: Clock
    pause: Pause


class Handle(Generic[R]):
    """Ask after a job, wait for its result, cancel it. Every method has a twin for async code, named `a…`."""

    __slots__ = ("_around", "_read_result", "_scope", "_type", "duplicate", "id")

    def __init__(
        self,
        id: JobId,
        around: Surroundings,
        scope: Scope,
        *,
        type: str | None = None,
        read_result: Callable[[str], R],
        duplicate: bool = False,
    ) -> None:
        self.id = id
        self.duplicate = duplicate
        """True: the key was taken. `id` is the job that was there already; nothing new was enqueued."""
        self._around, self._scope, self._type, self._read_result = around, scope, type, read_result

    def job(self) -> Job:
        return self._required(self._around.access.run(self._question()))

    async def ajob(self) -> Job:
        return self._required(await self._around.access.arun(self._question()))

    def status(self) -> Status:
        return self.job().status

    async def astatus(self) -> Status:
        return (await self.ajob()).status

    def result(self, timeout: float | None = None) -> R:
        """Wait until the job has ended and return what its task returned.

        Raises `JobFailed` for one that ended dead or cancelled, `ResultTimeout` after `timeout` seconds; None waits
        as long as it takes. Polls: an ended job is noticed within half a second.
        """
        began_s = self._around.clock.monotonic()
        for pause_s in growing_pauses():
            job = self.job()
            if job.status in FINAL:
                return self._result_of(job)
            self._around.pause.sleep(self._next_pause_s(job, pause_s, began_s, timeout))
        raise AssertionError

    async def aresult(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - the twin of result(timeout=…)
        began_s = self._around.clock.monotonic()
        for pause_s in growing_pauses():
            job = await self.ajob()
            if job.status in FINAL:
                return self._result_of(job)
            await self._around.pause.asleep(self._next_pause_s(job, pause_s, began_s, timeout))
        raise AssertionError

    def cancel(self, *, by: str = BY_DEFAULT, notes: str | None = None) -> Job:
        """End a waiting job as cancelled; ask a running one to stop. Returns the job as it then is."""
        return self._cancelled(self._around.access.run(self._cancellation(by, notes)))

    async def acancel(self, *, by: str = BY_DEFAULT, notes: str | None = None) -> Job:
        return self._cancelled(await self._around.access.arun(self._cancellation(by, notes)))

    def __repr__(self) -> str:
        return f"<Handle {self._type or 'job'} {self.id}{' (duplicate)' if self.duplicate else ''}>"

    def _question(self) -> GetJob:
        return GetJob(scope=self._scope, id=self.id)

    def _cancellation(self, by: str, notes: str | None) -> Cancel:
        return Cancel(scope=self._scope, id=self.id, by=check_key("by", by), notes=notes)

    def _required(self, detail: JobDetail | None) -> Job:
        if detail is None:
            raise JobNotFound(self.id)
        return detail.job

    def _cancelled(self, act: JobAct) -> Job:
        if act.job is None:
            raise JobNotFound(self.id)
        if act.refused is not None:
            raise NotAllowed("cancel", f"job {self.id}", act.job.status)
        return act.job

    def _next_pause_s(self, job: Job, pause_s: float, began_s: float, timeout: float | None) -> float:
        if timeout is None:
            return pause_s
        left_s = began_s + timeout - self._around.clock.monotonic()
        if left_s <= 0:
            raise ResultTimeout(self.id, job.status, timeout)
        return min(pause_s, left_s)

    def _result_of(self, job: Job) -> R:
        if job.status != "completed":
            raise JobFailed(self.id, job.status, job.error_type, job.last_error)
        try:
            return self._read_result("null" if job.result is None else job.result)
        except msgspec.DecodeError as error:
            # Another version of the task wrote it, or the key belongs to a job of another type.
            raise JobFailed(self.id, job.status, "UnreadableResult", f'result of "{job.type}": {error}') from None
