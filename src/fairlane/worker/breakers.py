"""Breakers around attempts: a job whose breaker is open is snoozed, uncharged, instead of run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fairlane.client.guarding import Verdict, permits_in_force
from fairlane.core.job import Lease
from fairlane.core.outcome import Completed, Died, Outcome, Released, Retried, Snoozed
from fairlane.errors import BreakerOpen, MissingData
from fairlane.worker.desk import Desk


class AttemptGuard:
    """Asks before an attempt, reports after it. What the process knows of a breaker is shared with guards in the task's code."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._circuits = desk, desk.app.circuits
        self._circuits.policy = desk.config.breaker

    async def run(self, breaker: str, lease: Lease, attempt: Callable[[], Awaitable[Outcome | None]]) -> Outcome | None:
        try:
            permit = await self._circuits.arun(self._circuits.entering(breaker))
        except BreakerOpen as refused:
            return Snoozed(seq=lease.seq, attempt=lease.attempt, delay_s=refused.seconds)
        if self._desk.stopping:
            return Released(seq=lease.seq, attempt=lease.attempt)
        token = permits_in_force.set(((breaker, permit),))
        try:
            outcome = await attempt()
        finally:
            permits_in_force.reset(token)
        await self._circuits.arun(self._circuits.leaving(permit, verdict_on(outcome)))
        return outcome


def verdict_on(outcome: Outcome | None) -> Verdict:
    """Does how an attempt ended speak for or against what its task calls?"""
    if isinstance(outcome, Completed):
        return "success"
    if isinstance(outcome, Retried) and outcome.failure.error_type != MissingData.__name__:
        return "failure"
    if isinstance(outcome, Died) and outcome.failure.error_class != "non_retryable":
        return "failure"
    return "neither"
