"""Prepares tasks, runs attempts behind their breaker, and turns what an attempt returned or raised into an outcome.

While a breaker is open, its jobs are snoozed, uncharged, instead of run.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Raw
from msgspec.structs import replace

from fairlane.client.admin.breakers import Verdict, permits_in_force
from fairlane.client.app import Fairlane
from fairlane.client.enqueue.prepare import JobRules
from fairlane.client.hooks import FailedAttempt, Hook, Hooks
from fairlane.client.logs import GuardedLogger
from fairlane.client.resources import scoped
from fairlane.client.steps import Sleeper
from fairlane.client.task import Task
from fairlane.core.breaker import BreakerRecord
from fairlane.core.ids import WorkerId
from fairlane.core.job import ErrorClass, Lease
from fairlane.core.ops import Op, Report
from fairlane.core.ops.workers import CaughtException
from fairlane.core.outcome import Cancelled, Completed, Crashed, Died, Failure, Outcome, Released, Retried, Snoozed
from fairlane.core.payload.storable import format_traceback, type_name
from fairlane.core.profiles import LogJobs
from fairlane.core.retry import completed, decide, max_attempts_of
from fairlane.core.workflows import WORKFLOW_HEADER
from fairlane.errors import BreakerOpen, MissingData, NeedsNewerCode

if TYPE_CHECKING:
    from fairlane.worker.state import WorkerState

T = TypeVar("T")

log = GuardedLogger("fairlane.jobs")

FAILED = (Retried, Died)

LEFT_S = 30.0
"""A worker that met a job of newer code leaves jobs of that task alone that were put off, for as long. Then it claims
one lot of them again: they may need other code, or have waited for too long."""


class PreparedTask:
    """What does not change from one job of a task to the next, computed once."""

    def __init__(self, app: Fairlane, task: Task[..., Any]) -> None:
        self._app, self._task = app, task
        definition = task.definition
        self.name = definition.name
        self.function: Callable[..., Any] = definition.function
        self.outer: Hooks | None = None
        """Async hooks around a plain function: they run on the loop, it runs in a thread."""
        hooks = app.runtime.hooks.with_task(definition.hooks)
        if (inner := hooks if definition.is_async else hooks.only(is_async=False)).is_inside:
            self.function = inner.wrap(self.function, is_async=definition.is_async)
        if not definition.is_async and (outer := hooks.only(is_async=True)).is_inside:
            self.outer = outer
        if app.runtime.has_resources:
            self.function = scoped(self.function, is_async=definition.is_async)
            hooks = hooks.scoped()
        self.after, self.on_failure = hooks.after, hooks.failure
        self.breaker = None if definition.breaker is None else definition.breaker.name
        self.decode = definition.decode
        self.is_async, self.run_here = definition.is_async, definition.run_here
        self.isolated = definition.isolated
        self.batch = definition.batch
        self.argument = definition.signature.names[0] if definition.batch is not None else ""
        """The parameter of a batch task."""
        self._classifier = definition.classifier
        self._has_failed = definition.has_failed
        self._expires = definition.result_expires_s is not None
        self._by_queue: dict[str, JobRules] = {}

    def timeout_s(self, lease: Lease) -> float:
        """The job's own timeout, else the task's, the queue's, the fast or the slow one: every attempt has one."""
        return lease.timeout_s or self.rules(lease.queue).timeout_s

    def shown(self, lease: Lease) -> Lease:
        """The lease as its job's code sees it, with the attempts that the policy here gives a job enqueued by SQL."""
        if lease.retry is None:
            return lease
        return replace(lease, max_attempts=max_attempts_of(lease, self.rules(lease.queue).policy))

    def returned(self, lease: Lease, result: object, ran_s: float) -> Outcome:
        outcome = completed(lease, result, ran_s)
        if self._has_failed is not None and isinstance(outcome, Completed):
            return replace(outcome, counts_as_failed=self._has_failed(result))
        if result is None and self._expires and WORKFLOW_HEADER in lease.headers:
            # A node without a result, of a task whose results expire, is one whose result was removed.
            return replace(outcome, result=Raw(b"null"))
        return outcome

    def raised(self, lease: Lease, error: BaseException, ran_s: float) -> Outcome:
        """Its outcome, although the exception's own code may raise whatever it likes while it is examined."""
        try:
            return self._decided(lease, error, ran_s)
        except BaseException as hostile:  # noqa: BLE001 - a runner: every error becomes an outcome
            what = f"the task raised {type_name(error)}, which raised {type_name(hostile)} when it was examined"
            return self._decided(lease, RuntimeError(what), ran_s)

    def ended(
        self, outcome: Outcome | None, result: object, raised: BaseException | None
    ) -> tuple[tuple[Hook, ...], Any]:
        """The hooks that learn of this outcome, and what they get beside the job."""
        if self.after and isinstance(outcome, Completed):
            return self.after, result
        if self.on_failure and isinstance(outcome, FAILED):
            what, retry_in_s = outcome.failure, outcome.delay_s if isinstance(outcome, Retried) else None
            if raised is None:
                raised = ValueError(what.message)
            return self.on_failure, FailedAttempt(raised, what.error_class, retry_in_s)
        return (), None

    def _decided(self, lease: Lease, error: BaseException, ran_s: float) -> Outcome:
        return decide(
            lease,
            error,
            self.rules(lease.queue).policy,
            self._classifier,
            now=self._app.runtime.clock.now(),
            fraction=self._app.runtime.chance.fraction(),
            ran_s=ran_s,
        )

    def rules(self, queue: str) -> JobRules:
        found = self._by_queue.get(queue)
        if found is None:
            found = self._by_queue[queue] = self._app.runtime.preparer.rules(self._task.definition, queue)
        return found


class AttemptStore:
    """Records the durable steps of a worker's attempts in the store of its application."""

    def __init__(self, app: Fairlane, worker: WorkerId) -> None:
        self.worker, self._runtime = worker, app.runtime

    @property
    def sleeper(self) -> Sleeper:
        return self._runtime.access.sleeper

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        return self._runtime.access.run(op)

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        return await self._runtime.access.arun(op)

    def monotonic(self) -> float:
        return self._runtime.clock.monotonic()

    def fraction(self) -> float:
        return self._runtime.chance.fraction()

    def classify(self, error: Exception) -> ErrorClass:
        return self._runtime.classifier.classify(error)


def record_failure(app: Fairlane, lease: Lease, outcome: Outcome | None) -> None:
    """Keep the exception of a failed attempt among the application's last exceptions; ignores other outcomes."""
    if not isinstance(outcome, FAILED):
        return
    failure = outcome.failure
    caught = CaughtException(
        id=lease.id,
        task=lease.type,
        tenant=lease.tenant,
        attempt=lease.attempt,
        type=failure.error_type,
        error=failure.message,
        error_class=failure.error_class,
        is_final=isinstance(outcome, Died),
        at=app.runtime.clock.now(),
    )
    app.runtime.last_exceptions.add(caught)


def log_failure(lease: Lease, outcome: Retried | Died, error: BaseException | None = None) -> None:
    """Log a failed attempt with its traceback; `error` is what it raised, if that was in this process."""
    failure = outcome.failure
    next_step = "dead" if isinstance(outcome, Died) else f"runs again in {outcome.delay_s:.1f} s"
    log.failure(
        logging.ERROR if isinstance(outcome, Died) else logging.WARNING,
        "job %s (%s) of %s failed at attempt %d after %.3f s: %s: %s; %s",
        lease.id,
        lease.type,
        lease.tenant,
        lease.attempt,
        outcome.ran_s or 0.0,
        failure.error_type,
        failure.message,
        next_step,
        error=error,
        traceback=failure.traceback,
        extra={
            **_described(lease),
            "ran_s": outcome.ran_s,
            "error_type": failure.error_type,
            "error_class": failure.error_class,
            "fingerprint": failure.fingerprint,
        },
    )


def log_hook(lease: Lease, hook: Hook, error: BaseException) -> None:
    log.failure(
        logging.ERROR,
        "hook %s of job %s (%s) failed; the outcome of the job stands",
        hook.name,
        lease.id,
        lease.type,
        error=error,
        traceback=format_traceback(error),
        extra=_described(lease),
    )


class JobLog:
    """Logs the start and the end of each job that does not fail; failures are always logged."""

    def __init__(self, level: int) -> None:
        self._level = level

    @classmethod
    def of(cls, setting: LogJobs) -> JobLog | None:
        """None: nothing would be logged. Decided once for a worker, so that its jobs pay nothing for it."""
        level = {"off": logging.NOTSET, "debug": logging.DEBUG, "info": logging.INFO}[setting]
        return cls(level) if level and log.isEnabledFor(level) else None

    def started(self, lease: Lease) -> None:
        said = "job %s (%s) of %s starts, attempt %d, in queue %s"
        about = (lease.id, lease.type, lease.tenant, lease.attempt, lease.queue)
        log.log(self._level, said, *about, extra=_described(lease))

    def ended(self, lease: Lease, outcome: Outcome | None, ran_s: float) -> None:
        """None: this worker lost its lease."""
        about = (lease.id, lease.type, lease.tenant, lease.attempt)
        how = "lost its lease" if outcome is None else _ENDS[type(outcome)]
        extra = {**_described(lease), "ran_s": round(ran_s, 6)}
        log.log(self._level, "job %s (%s) of %s, attempt %d, %s after %.3f s", *about, how, ran_s, extra=extra)


_ENDS: dict[type[Outcome], str] = {
    Completed: "completed",
    Cancelled: "was cancelled",
    Snoozed: "is put off",
    Released: "was released",
    Crashed: "crashed its process",
}


def _described(lease: Lease) -> dict[str, object]:
    return {
        "job_id": str(lease.id),
        "task": lease.type,
        "tenant": lease.tenant,
        "queue": lease.queue,
        "attempt": lease.attempt,
        "correlation_id": lease.correlation_id or str(lease.id),
    }


class PutOffs:
    """Remembers tasks whose newer jobs this worker cannot run, and logs the first job of each task that is put off."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._left_until_s: dict[str, float] = {}
        self._logged: set[tuple[str, str]] = set()

    def add(self, lease: Lease, reason: Failure) -> None:
        if reason.error_type == NeedsNewerCode.__name__:
            self._left_until_s[lease.type] = self._monotonic() + LEFT_S
        if (lease.type, reason.error_type) not in self._logged:
            self._logged.add((lease.type, reason.error_type))
            said = "job %s (%s) is put off, uncharged: %s; others of this task are not logged"
            log.warning(said, lease.id, lease.type, reason.message)

    def left(self) -> tuple[str, ...]:
        """Tasks whose jobs, once put off, are left to other workers for now."""
        if not self._left_until_s:
            return ()
        now_s = self._monotonic()
        self._left_until_s = {task: until_s for task, until_s in self._left_until_s.items() if until_s > now_s}
        return tuple(sorted(self._left_until_s))


class BreakerGuard:
    """Asks the breaker before an attempt and reports after it. Shares its knowledge with guards in the task's code."""

    def __init__(self, state: WorkerState) -> None:
        self._state, self._circuits = state, state.app.runtime.circuits

    async def run(self, breaker: str, lease: Lease, attempt: Callable[[], Awaitable[Outcome | None]]) -> Outcome | None:
        async def alone() -> Sequence[Outcome | None]:
            return (await attempt(),)

        return (await self.run_all(breaker, (lease,), alone))[0]

    async def run_all(
        self, breaker: str, leases: Sequence[Lease], call: Callable[[], Awaitable[Sequence[Outcome | None]]]
    ) -> Sequence[Outcome | None]:
        """The same for jobs that run in one call, which counts once."""
        try:
            permit = await self._circuits.arun(self._circuits.entering(breaker, self._add_event))
        except BreakerOpen as refused:
            delay_s = refused.seconds
            return [
                Snoozed(seq=one.seq, attempt=one.attempt, claim_no=one.claim_no, delay_s=delay_s, recorded=False)
                for one in leases
            ]
        if self._state.stopping:
            return [Released(seq=one.seq, attempt=one.attempt, claim_no=one.claim_no) for one in leases]
        token = permits_in_force.set(((breaker, permit),))
        try:
            outcomes = await call()
        finally:
            permits_in_force.reset(token)
        add_event = partial(self._add_event, is_probe=permit.is_probe)
        await self._circuits.arun(self._circuits.leaving(permit, verdict_on(*outcomes), add_event))
        return outcomes

    def _add_event(self, report: Report, after: BreakerRecord, *, is_probe: bool = False) -> None:
        """Add an event if our report opened or closed the breaker."""
        if report.failures and after.state == "open" and after.opened_at == after.updated_at:
            retry_at = None if after.retry_at is None else after.retry_at.isoformat()
            self._state.events.add("breaker_opened", breaker=after.name, failures=after.failures, retry_at=retry_at)
        elif report.successes and is_probe and after.state == "closed":
            self._state.events.add("breaker_closed", breaker=after.name)


def verdict_on(*outcomes: Outcome | None) -> Verdict:
    """Whether outcomes count for or against the service behind the breaker: for it, if one job of a call completed."""
    verdicts = {_verdict_on(outcome) for outcome in outcomes}
    return "success" if "success" in verdicts else "failure" if "failure" in verdicts else "neither"


def _verdict_on(outcome: Outcome | None) -> Verdict:
    if isinstance(outcome, Completed):
        return "success"
    if isinstance(outcome, Retried) and outcome.failure.error_type != MissingData.__name__:
        return "failure"
    if isinstance(outcome, Died) and outcome.failure.error_class != "non_retryable":
        return "failure"
    return "neither"
