"""Runs attempts behind their task's breaker: while it is open the job is snoozed, uncharged, instead of run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from fairlane.client.admin.breakers import Verdict, permits_in_force
from fairlane.core.breaker import BreakerRecord
from fairlane.core.job import Lease
from fairlane.core.ops import Report
from fairlane.core.outcome import Completed, Died, Outcome, Released, Retried, Snoozed
from fairlane.errors import BreakerOpen, MissingData
from fairlane.worker.state import WorkerState


class BreakerGuard:
    """Asks the breaker before an attempt and reports after it. Shares its knowledge with guards in the task's code."""

    def __init__(self, state: WorkerState) -> None:
        self._state, self._circuits = state, state.app.runtime.circuits
        self._circuits.policy = state.config.breaker

    async def run(self, breaker: str, lease: Lease, attempt: Callable[[], Awaitable[Outcome | None]]) -> Outcome | None:
        try:
            permit = await self._circuits.arun(self._circuits.entering(breaker, self._add_event))
        except BreakerOpen as refused:
            return Snoozed(seq=lease.seq, attempt=lease.attempt, delay_s=refused.seconds, recorded=False)
        if self._state.stopping:
            return Released(seq=lease.seq, attempt=lease.attempt)
        token = permits_in_force.set(((breaker, permit),))
        try:
            outcome = await attempt()
        finally:
            permits_in_force.reset(token)
        add_event = partial(self._add_event, is_probe=permit.is_probe)
        await self._circuits.arun(self._circuits.leaving(permit, verdict_on(outcome), add_event))
        return outcome

    def _add_event(self, report: Report, after: BreakerRecord, *, is_probe: bool = False) -> None:
        """Add an event if our report opened or closed the breaker."""
        if report.failures and after.state == "open" and after.opened_at == after.updated_at:
            retry_at = None if after.retry_at is None else after.retry_at.isoformat()
            self._state.events.add("breaker_opened", breaker=after.name, failures=after.failures, retry_at=retry_at)
        elif report.successes and is_probe and after.state == "closed":
            self._state.events.add("breaker_closed", breaker=after.name)


def verdict_on(outcome: Outcome | None) -> Verdict:
    """Whether an outcome counts for or against the service behind the breaker."""
    if isinstance(outcome, Completed):
        return "success"
    if isinstance(outcome, Retried) and outcome.failure.error_type != MissingData.__name__:
        return "failure"
    if isinstance(outcome, Died) and outcome.failure.error_class != "non_retryable":
        return "failure"
    return "neither"
