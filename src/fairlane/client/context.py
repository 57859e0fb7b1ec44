"""What surrounds a call: the tenant in force and the job that runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Literal

from fairlane.client.progress import NoteTaker, check_progress, log_line
from fairlane.core.clock import Clock
from fairlane.core.ids import SYSTEM_TENANT, JobId
from fairlane.core.job import Lease
from fairlane.core.names import check_tenant
from fairlane.errors import AttemptCancelled, LeaseLost, NoCurrentJob, PermissionDenied

Stopping = Literal["timeout", "cancel", "shutdown", "lease_lost"]

tenant_in_force: ContextVar[str | None] = ContextVar("fairlane_tenant", default=None)
job_in_force: ContextVar[CurrentJob | None] = ContextVar("fairlane_job", default=None)


class CurrentJob:
    """The attempt that runs here, as its own code may see it."""

    __slots__ = ("_clock", "_lease", "_notes", "_principals", "_until_s", "stopping")

    def __init__(
        self, lease: Lease, notes: NoteTaker | None = None, clock: Clock | None = None, until_s: float = 0.0
    ) -> None:
        self._lease, self._notes, self._clock, self._until_s = lease, notes, clock, until_s
        self._principals: dict[str, Any] | None = None
        self.stopping: Stopping | None = None
        """Why this attempt is asked to stop, once it is."""

    @property
    def id(self) -> JobId:
        return self._lease.id

    @property
    def type(self) -> str:
        return self._lease.type

    @property
    def tenant(self) -> str:
        return self._lease.tenant

    @property
    def queue(self) -> str:
        return self._lease.queue

    @property
    def attempt(self) -> int:
        """Grows at every claim."""
        return self._lease.attempt

    @property
    def attempts(self) -> int:
        """Charged runs that failed before this one."""
        return self._lease.attempts

    @property
    def max_attempts(self) -> int:
        return self._lease.max_attempts

    @property
    def fence(self) -> tuple[int, int]:
        """Grows with every attempt of this job: give it to systems that can refuse an older one."""
        return self._lease.seq, self._lease.attempt

    @property
    def deadline_at(self) -> datetime:
        """When its timeout ends it."""
        if self._clock is None:
            return self._lease.deadline_at
        return self._clock.now() + timedelta(seconds=self._until_s - self._clock.monotonic())

    @property
    def principals(self) -> dict[str, Any]:
        """Who this attempt has been found to act as, by tenant."""
        if self._principals is None:
            self._principals = {}
        return self._principals

    def progress(self, done: float) -> None:
        """Say how far it is, from 0 to 1, for people who look at the job. Written about once a second; stops the attempt like `check`."""
        self._take(progress=check_progress(done))

    def log(self, message: object) -> None:
        """Add a line to the job's log, of which the newest 100 are kept. Written about once a second; stops the attempt like `check`."""
        self._take(line=log_line(message))

    def check(self) -> None:
        """Raise if this attempt should stop: `LeaseLost` if it belongs to this worker no more, else `AttemptCancelled`.

        For plain functions, which nobody can interrupt: call it, or `progress` or `log`, between steps.
        """
        if self.stopping is not None:
            raise LeaseLost if self.stopping == "lease_lost" else AttemptCancelled(self.stopping)

    def _take(self, *, progress: float | None = None, line: str | None = None) -> None:
        self.check()
        if self._notes is not None:
            self._notes.take(self._lease, progress=progress, line=line)

    @property
    def correlation_id(self) -> str:
        return self._lease.correlation_id or str(self._lease.id)

    @property
    def idempotency_key(self) -> str:
        return self._lease.idempotency_key or str(self._lease.id)

    @property
    def parent_id(self) -> JobId | None:
        return self._lease.parent_id

    @property
    def created_by(self) -> str | None:
        return self._lease.created_by

    @property
    def refs(self) -> dict[str, int | str]:
        return dict(self._lease.refs)

    @property
    def headers(self) -> dict[str, str]:
        return dict(self._lease.headers)

    def __repr__(self) -> str:
        return f"<job {self.id} {self.type} of {self.tenant}, attempt {self.attempt}>"


@contextmanager
def tenant(name: str | int) -> Iterator[str]:
    """Everything enqueued inside belongs to this tenant, unless its `using(tenant=…)` says otherwise.

    Works in sync and async code alike: a plain `with`, seen by the tasks started inside it. In a job it may name the job's own tenant alone
    (`PermissionDenied`), unless that is `system` or for all is said out loud.
    """
    checked, in_force = check_tenant(name), tenant_in_force.get()
    if job_in_force.get() is not None and in_force not in (None, SYSTEM_TENANT, checked):
        raise PermissionDenied(f'tenant "{checked}"', in_force)
    token = tenant_in_force.set(checked)
    try:
        yield checked
    finally:
        tenant_in_force.reset(token)


@contextmanager
def all_tenants() -> Iterator[None]:
    """Said out loud: what is done inside is done for all tenants, whatever tenant's context this runs in."""
    token = tenant_in_force.set(None)
    try:
        yield
    finally:
        tenant_in_force.reset(token)


def current_job() -> CurrentJob:
    """The job whose code is running here."""
    job = job_in_force.get()
    if job is None:
        raise NoCurrentJob
    return job


@contextmanager
def running(
    lease: Lease, notes: NoteTaker | None = None, clock: Clock | None = None, until_s: float = 0.0
) -> Iterator[CurrentJob]:
    """Make an attempt the current job, and its tenant the one in force, until the block ends."""
    job = CurrentJob(lease, notes, clock, until_s)
    job_token, tenant_token = job_in_force.set(job), tenant_in_force.set(lease.tenant)
    try:
        yield job
    finally:
        tenant_in_force.reset(tenant_token)
        job_in_force.reset(job_token)
