"""Prepares tasks for attempts, and turns what an attempt returned or raised into an outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from fairlane.client.admin.breakers import around_by_caller
from fairlane.client.app import Fairlane
from fairlane.client.context import NoteTaker, running
from fairlane.client.resources import scoped
from fairlane.client.runtime import CaughtException
from fairlane.client.task import Task
from fairlane.core.job import DEFAULT_TIMEOUT_S, Lease
from fairlane.core.outcome import Died, Outcome, Retried
from fairlane.core.payload.storable import failure
from fairlane.core.retry import Policy, completed, decide
from fairlane.errors import AttemptInterrupted, UnreadablePayload

log = logging.getLogger("fairlane.jobs")

FAILED = (Retried, Died)


class PreparedTask:
    """What does not change from one job of a task to the next, computed once."""

    def __init__(self, app: Fairlane, task: Task[..., Any]) -> None:
        self._app, self._task = app, task
        definition = task.definition
        self.name = definition.name
        self.function: Callable[..., Any] = definition.function
        if app.runtime.has_resources:
            self.function = scoped(definition.function, is_async=definition.is_async)
        self.breaker = None if definition.breaker is None else definition.breaker.name
        self.decode = definition.decode
        self.is_async = definition.is_async
        self.isolated = definition.isolated
        self._classifier = definition.classifier
        self._own_timeout_s = definition.timeout_s
        self._by_queue: dict[str, tuple[Policy, float]] = {}

    def timeout_s(self, lease: Lease) -> float:
        """The job's own timeout, else the task's, the queue's or the default: every attempt has one."""
        return lease.timeout_s or self._for_queue(lease.queue)[1]

    def returned(self, lease: Lease, result: object, ran_s: float) -> Outcome:
        return completed(lease, result, ran_s)

    def raised(self, lease: Lease, error: BaseException, ran_s: float) -> Outcome:
        if isinstance(error, UnreadablePayload):
            # Written by newer code or directly by SQL: dead-lettered with the reason.
            return Died(
                seq=lease.seq, attempt=lease.attempt, failure=failure(error, "non_retryable", lease.type), charged=False
            )
        return decide(
            lease,
            error,
            self._for_queue(lease.queue)[0],
            self._classifier,
            now=self._app.runtime.clock.now(),
            fraction=self._app.runtime.chance.fraction(),
            ran_s=ran_s,
        )

    def _for_queue(self, queue: str) -> tuple[Policy, float]:
        found = self._by_queue.get(queue)
        if found is None:
            grants = self._app.runtime.settings.queues.get(queue)
            of_queue = grants.timeout_s if grants is not None else None
            found = (
                self._app.runtime.preparer.policy(self._task.definition, queue),
                self._own_timeout_s or of_queue or DEFAULT_TIMEOUT_S,
            )
            self._by_queue[queue] = found
        return found


def run_directly(app: Fairlane, lease: Lease, notes: NoteTaker | None = None) -> Outcome:
    """Run one leased attempt in this thread, an `async def` on a loop of its own, and return its outcome unsettled."""
    task = PreparedTask(app, app.tasks.require(lease.type))
    began_s = app.runtime.clock.monotonic()
    try:
        with running(lease, notes, app.runtime.clock, began_s + task.timeout_s(lease)), around_by_caller(task.breaker):
            arguments = task.decode(lease)
            result = asyncio.run(task.function(**arguments)) if task.is_async else task.function(**arguments)
    except (Exception, AttemptInterrupted) as error:  # noqa: BLE001 - a runner: every error becomes an outcome
        return task.raised(lease, error, app.runtime.clock.monotonic() - began_s)
    return task.returned(lease, result, app.runtime.clock.monotonic() - began_s)


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


def log_failure(lease: Lease, outcome: Retried | Died) -> None:
    failure = outcome.failure
    next_step = "dead" if isinstance(outcome, Died) else f"runs again in {outcome.delay_s:.1f} s"
    log.log(
        logging.ERROR if isinstance(outcome, Died) else logging.WARNING,
        "job %s (%s) failed: %s: %s; %s",
        lease.id,
        lease.type,
        failure.error_type,
        failure.message,
        next_step,
        extra={
            "job_id": str(lease.id),
            "task": lease.type,
            "tenant": lease.tenant,
            "attempt": lease.attempt,
            "correlation_id": lease.correlation_id,
            "error_type": failure.error_type,
            "error_class": failure.error_class,
            "fingerprint": failure.fingerprint,
        },
    )
