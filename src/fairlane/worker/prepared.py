"""A task made ready to run: everything about it that does not change from job to job, worked out once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlane.client.app import Fairlane
from fairlane.client.resources import scoped
from fairlane.client.task import Task
from fairlane.core.job import DEFAULT_TIMEOUT_S, Lease
from fairlane.core.outcome import Died, Outcome
from fairlane.core.payload.storable import failure
from fairlane.core.retry import Policy, completed, decide
from fairlane.errors import UnreadablePayload


class PreparedTask:
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
        """The job's own, then the task's, the queue's, the default: no attempt is without one."""
        return lease.timeout_s or self._for_queue(lease.queue)[1]

    def returned(self, lease: Lease, result: object, ran_s: float) -> Outcome:
        return completed(lease, result, ran_s)

    def raised(self, lease: Lease, error: BaseException, ran_s: float) -> Outcome:
        if isinstance(error, UnreadablePayload):
            # Written by newer code or straight by SQL: to the dead letters with the reason.
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
