"""Failures seen: logged with structure, and kept in the application's bounded store of last exceptions."""

from __future__ import annotations

import logging

from fairlane.client.app import Fairlane
from fairlane.client.exceptions import CaughtException
from fairlane.core.job import Lease
from fairlane.core.outcome import Died, Outcome, Retried

log = logging.getLogger("fairlane.jobs")


def remember_failure(app: Fairlane, lease: Lease, outcome: Outcome | None) -> None:
    """Note an attempt that failed; anything else passes by."""
    if not isinstance(outcome, (Retried, Died)):
        return
    failure, is_final = outcome.failure, isinstance(outcome, Died)
    caught = CaughtException(
        id=lease.id,
        task=lease.type,
        tenant=lease.tenant,
        attempt=lease.attempt,
        type=failure.error_type,
        error=failure.message,
        error_class=failure.error_class,
        is_final=is_final,
        at=app.clock.now(),
    )
    app.last_exceptions.add(caught)
    next_step = "dead" if isinstance(outcome, Died) else f"runs again in {outcome.delay_s:.1f} s"
    log.log(
        logging.ERROR if is_final else logging.WARNING,
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
