"""Breakers around attempts: a job whose breaker is open is snoozed, uncharged, instead of run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from fairlane.client.admin.breakers import Verdict, permits_in_force
from fairlane.core.breaker import Breaker
from fairlane.core.job import Lease
from fairlane.core.ops import Report
from fairlane.core.outcome import Completed, Died, Outcome, Released, Retried, Snoozed
from fairlane.errors import BreakerOpen, MissingData
from fairlane.worker.state import Desk


class AttemptGuard:
    """Asks before an attempt, reports after it. What the process knows of a breaker is shared with guards in the task's code."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._circuits = desk, desk.app.runtime.circuits
        self._circuits.policy = desk.config.breaker

    async def run(self, breaker: str, lease: Lease, attempt: Callable[[], Awaitable[Outcome | None]]) -> Outcome | None:
        try:
            permit = await self._circuits.arun(self._circuits.entering(breaker, self._tell))
        except BreakerOpen as refused:
            return Snoozed(seq=lease.seq, attempt=lease.attempt, delay_s=refused.seconds, recorded=False)
        if self._desk.stopping:
            return Released(seq=lease.seq, attempt=lease.attempt)
        token = permits_in_force.set(((breaker, permit),))
        try:
            outcome = await attempt()
        finally:
            permits_in_force.reset(token)
        tell = partial(self._tell, is_probe=permit.is_probe)
        await self._circuits.arun(self._circuits.leaving(permit, verdict_on(outcome), tell))
        return outcome

    def _tell(self, report: Report, after: Breaker, *, is_probe: bool = False) -> None:
        if report.failures and after.state == "open" and after.opened_at == after.updated_at:
            retry_at = None if after.retry_at is None else after.retry_at.isoformat()
            self._desk.teller.tell("breaker_opened", breaker=after.name, failures=after.failures, retry_at=retry_at)
        elif report.successes and is_probe and after.state == "closed":
            self._desk.teller.tell("breaker_closed", breaker=after.name)


def verdict_on(outcome: Outcome | None) -> Verdict:
    """Does how an attempt ended speak for or against what its task calls?"""
    if isinstance(outcome, Completed):
        return "success"
    if isinstance(outcome, Retried) and outcome.failure.error_type != MissingData.__name__:
        return "failure"
    if isinstance(outcome, Died) and outcome.failure.error_class != "non_retryable":
        return "failure"
    return "neither"
