"""The context of a call: the running job, the current tenant, and the tenants whose jobs the call may see.

Inside a job, and inside `with tenant(…)`, a call sees only one tenant: a listing of all tenants returns that
tenant's jobs, and naming another tenant is refused. The reserved tenant `system` is the application itself and is
not restricted; `with all_tenants():` lifts the restriction explicitly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar
from uuid import UUID

import msgspec

from fairlane.core.clock import Clock
from fairlane.core.ids import SYSTEM_TENANT, JobId, SystemTenant, WorkerId
from fairlane.core.job import ErrorClass, Lease, StepRecord
from fairlane.core.names import check_own_tenant, check_tenant
from fairlane.core.ops import ALL_TENANTS, Op, Scope, only
from fairlane.core.payload.storable import safe_str
from fairlane.core.workflows import WORKFLOW_HEADER
from fairlane.errors import AttemptCancelled, InvalidOption, InvalidState, LeaseLost, NoCurrentJob, PermissionDenied

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime
    from fairlane.client.steps import Sleeper
    from fairlane.client.workflows import RunningWorkflow

T = TypeVar("T")

Stopping = Literal["timeout", "cancel", "shutdown", "lease_lost"]

NOBODY = ""
"""In force where no tenant may be assumed; no tenant is called so."""
tenant_in_force: ContextVar[str | None] = ContextVar("fairlane_tenant", default=None)
job_in_force: ContextVar[CurrentJob | None] = ContextVar("fairlane_job", default=None)


LINE_CHARS = 1_000
UNKNOWN_WORKER = WorkerId(UUID(int=0))
"""Stands in a process of its own, which runs a job for a worker, for that worker."""


class NoteTaker(Protocol):
    """Accepts progress and log lines of attempts from any thread, and writes them later."""

    def take(self, lease: Lease, *, progress: float | None = None, line: str | None = None) -> None: ...


class StepStore(Protocol):
    """Where a worker records the durable steps of its attempts, in both colours."""

    worker: WorkerId

    @property
    def sleeper(self) -> Sleeper: ...

    def run(self, op: Op[T], *, on: object | None = None) -> T: ...

    async def arun(self, op: Op[T], *, on: object | None = None) -> T: ...

    def monotonic(self) -> float: ...

    def fraction(self) -> float: ...

    def classify(self, error: Exception) -> ErrorClass: ...


class StepRecords(Protocol):
    @property
    def records(self) -> tuple[StepRecord, ...]: ...


class LeasedJob:
    """What the holder of a lease knows of its job."""

    __slots__ = ()

    lease: Lease

    @property
    def id(self) -> JobId:
        return self.lease.id

    @property
    def type(self) -> str:
        return self.lease.type

    @property
    def tenant(self) -> str:
        return self.lease.tenant

    @property
    def queue(self) -> str:
        return self.lease.queue

    @property
    def attempt(self) -> int:
        """Increases with every claim."""
        return self.lease.attempt

    @property
    def attempts(self) -> int:
        """Counted attempts that failed before this one."""
        return self.lease.attempts

    @property
    def max_attempts(self) -> int:
        return self.lease.max_attempts

    @property
    def fence(self) -> tuple[int, int]:
        """Increases with every attempt of this job: pass it to systems that can refuse an older one."""
        return self.lease.seq, self.lease.attempt

    @property
    def correlation_id(self) -> str:
        return self.lease.correlation_id or str(self.lease.id)

    @property
    def idempotency_key(self) -> str:
        return self.lease.idempotency_key or str(self.lease.id)

    @property
    def parent_id(self) -> JobId | None:
        return self.lease.parent_id

    @property
    def created_by(self) -> str | None:
        return self.lease.created_by

    @property
    def refs(self) -> dict[str, int | str]:
        return dict(self.lease.refs)

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.lease.headers)

    @property
    def arguments(self) -> dict[str, Any]:
        """The job's arguments as they are stored: plain JSON values, of the version they were enqueued in."""
        found: dict[str, Any] = msgspec.json.decode(self.lease.payload)
        return found


class CurrentJob(LeasedJob):
    """The running attempt, as its own code sees it."""

    __slots__ = (
        *("_clock", "_notes", "_principals", "_runtime", "_until_s", "_workflow"),
        *("batch", "lease", "step_log", "step_store", "stopping", "trace"),
    )

    def __init__(
        self,
        lease: Lease,
        notes: NoteTaker | None = None,
        clock: Clock | None = None,
        until_s: float = 0.0,
        step_store: StepStore | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.lease, self._notes, self._clock, self._until_s = lease, notes, clock, until_s
        self.step_store = step_store
        self.step_log: StepRecords | None = None
        """Its durable steps, from the first one of this attempt on."""
        self.batch: tuple[CurrentJob, ...] = ()
        """The jobs of the call that it runs in, in the order of their arguments: of a batch task, else none."""
        self._runtime = runtime
        self._workflow: RunningWorkflow | None = None
        self._principals: dict[str, Any] | None = None
        self.stopping: Stopping | None = None
        """Why this attempt must stop; None while it may run."""
        self.trace: dict[str, str] | None = None
        """Headers of its span, set by who traces: for jobs enqueued in SQL, where no enqueue hook is called."""

    @property
    def deadline_at(self) -> datetime:
        """When the timeout ends this attempt."""
        if self._clock is None:
            return self.lease.deadline_at
        return self._clock.now() + timedelta(seconds=self._until_s - self._clock.monotonic())

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """The durable steps behind it; an attempt that continues knows them from its first step on."""
        return () if self.step_log is None else self.step_log.records

    @property
    def principals(self) -> dict[str, Any]:
        """The principals found for this attempt, by tenant."""
        if self._principals is None:
            self._principals = {}
        return self._principals

    @property
    def workflow(self) -> RunningWorkflow:
        """The workflow whose node it is: `current_job().workflow.add(…)` adds a node behind it."""
        if self._workflow is None:
            from fairlane.client.workflows import RunningWorkflow  # it builds on what this module gives

            if WORKFLOW_HEADER not in self.lease.headers or self._runtime is None:
                raise InvalidState("add a node", f"job {self.id}", "no node of a workflow")
            store = self.step_store
            worker = None if store is None or store.worker == UNKNOWN_WORKER else store.worker
            self._workflow = RunningWorkflow(self._runtime, self.lease, worker)
        return self._workflow

    def progress(self, done: float) -> None:
        """Report progress from 0 to 1, shown with the job.

        Written about once a second; stops the attempt like `check`.
        """
        self._take(progress=_progress(done))

    def log(self, message: object) -> None:
        """Add a line to the job's log, of which the newest 100 are kept.

        Written about once a second; stops the attempt like `check`.
        """
        self._take(line=safe_str(message, LINE_CHARS))

    def check(self) -> None:
        """Raise if this attempt should stop: `LeaseLost` if this worker lost its lease, else `AttemptCancelled`.

        For plain functions, which cannot be interrupted: call it, or `progress` or `log`, between steps.
        """
        if self.stopping is not None:
            raise LeaseLost if self.stopping == "lease_lost" else AttemptCancelled(self.stopping)

    def _take(self, *, progress: float | None = None, line: str | None = None) -> None:
        self.check()
        if self._notes is not None:
            self._notes.take(self.lease, progress=progress, line=line)

    def __repr__(self) -> str:
        return f"<job {self.id} {self.type} of {self.tenant}, attempt {self.attempt}>"


@contextmanager
def tenant(name: str | int | SystemTenant) -> Iterator[str]:
    """Jobs enqueued inside belong to this tenant, unless `using(tenant=…)` names another.

    Works in sync and async code alike: a plain `with`, seen by the tasks started inside it. In a job it may name the
    job's own tenant alone (`PermissionDenied`), unless that is `system` or the block is inside `all_tenants()`. No text
    names the application itself: its code says `SYSTEM`.
    """
    checked, in_force = check_own_tenant(name), tenant_in_force.get()
    if job_in_force.get() is not None and in_force not in (None, SYSTEM_TENANT, checked):
        raise PermissionDenied(f'tenant "{checked}"', in_force)
    token = tenant_in_force.set(checked)
    try:
        yield checked
    finally:
        tenant_in_force.reset(token)


@contextmanager
def bound_to(name: str) -> Iterator[None]:
    """Code inside reads and changes only this tenant's data: for the HTTP API."""
    token = tenant_in_force.set(check_own_tenant(name))
    try:
        yield
    finally:
        tenant_in_force.reset(token)


@contextmanager
def all_tenants() -> Iterator[None]:
    """Code inside reads and changes data of all tenants, whatever the surrounding context."""
    token = tenant_in_force.set(None)
    try:
        yield
    finally:
        tenant_in_force.reset(token)


@contextmanager
def no_tenant() -> Iterator[None]:
    """Code inside is refused (`PermissionDenied`) until it names a tenant: for requests of nobody who is known.

    `tenant(…)`, `all_tenants()` and `using(tenant=…)` work inside it.
    """
    token = tenant_in_force.set(NOBODY)
    try:
        yield
    finally:
        tenant_in_force.reset(token)


def current_job() -> CurrentJob:
    """The job that runs in this context."""
    job = job_in_force.get()
    if job is None:
        raise NoCurrentJob
    return job


@contextmanager
def running(job: CurrentJob) -> Iterator[CurrentJob]:
    """Make an attempt the current job, and its tenant the current tenant, until the block ends."""
    job_token, tenant_token = job_in_force.set(job), tenant_in_force.set(job.tenant)
    try:
        yield job
    finally:
        tenant_in_force.reset(tenant_token)
        job_in_force.reset(job_token)


def in_scope(tenant: str | int | None) -> Scope:
    """The scope of a call that names this tenant, or none, in the current context."""
    named = None if tenant is None else check_tenant(tenant)
    in_force = tenant_in_force.get()
    if in_force is None or in_force == SYSTEM_TENANT:
        return ALL_TENANTS if named is None else only(named)
    if in_force == NOBODY or named not in (None, in_force):
        raise PermissionDenied("all tenants" if named is None else f'tenant "{named}"', in_force)
    return only(in_force)


def require_tenant(tenant: str | None, what: str) -> None:
    """Refuse access to another tenant's data, or (None) to shared data, inside a tenant's context."""
    if tenant is None:
        require_all_tenants(what)
    else:
        in_scope(tenant)


def require_all_tenants(what: str) -> None:
    """Refuse an act on all tenants inside one tenant's context."""
    if in_scope(None) != ALL_TENANTS:
        raise PermissionDenied(what, tenant_in_force.get() or "")


def _progress(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InvalidOption("progress", value, "a number from 0 to 1")
    return float(value)
