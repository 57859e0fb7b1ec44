"""Failures seen: logged with structure, and kept in the application's bounded store of last exceptions."""

from __future__ import annotations

import logging

from fairlane.client.app import Fairlane
from fairlane.client.runtime import CaughtException
from fairlane.core.job import Lease
from fairlane.core.outcome import Died, Outcome, Retried

log = logging.getLogger("fairlane.jobs")

FAILED = (Retried, Died)


def remember_failure(app: Fairlane, lease: Lease, outcome: Outcome | None) -> None:
    """Keep what a failed attempt raised; anything else passes by."""
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


def log_failure(lease: Lease, outcome: Outcome | None) -> None:
    if not isinstance(outcome, FAILED):
        return
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
