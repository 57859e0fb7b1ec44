"""Jobs, workers and outcomes with sensible defaults, and ids that are the same in every run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec import Raw

from fairlane.core.chance import FixedChance
from fairlane.core.ids import JobId, Seq, WorkerId, uuid7
from fairlane.core.job import ErrorClass, JobSpec, Lease
from fairlane.core.outcome import Cancelled, Completed, Crashed, Died, Failure, Released, Retried, Snoozed

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
"""When every story begins."""


class Making:
    """Makes jobs and workers; two of them with the same seed make the same ids."""

    def __init__(self, seed: int = 0) -> None:
        self._chance = FixedChance(seed)
        self._unix_ms = int(NOON.timestamp() * 1000)

    def job_id(self) -> JobId:
        self._unix_ms += 1
        return JobId(uuid7(self._unix_ms, self._chance.entropy(10)))

    def worker_id(self) -> WorkerId:
        return WorkerId(self.job_id())

    def job(self, type: str = "mail.send", *, payload: str = '{"user_id":7}', **options: Any) -> JobSpec:
        options.setdefault("id", self.job_id())
        return JobSpec(type=type, payload=Raw(payload.encode()), **options)


def failure(
    message: str = "the mail server hung up",
    *,
    error_type: str = "ConnectionResetError",
    error_class: ErrorClass = "transient",
    fingerprint: str = "f00d",
    traceback: str | None = None,
) -> Failure:
    return Failure(
        error_class=error_class, error_type=error_type, message=message, fingerprint=fingerprint, traceback=traceback
    )


def completed(lease: Lease, result: str | None = None, **timing: Any) -> Completed:
    raw = None if result is None else Raw(result.encode())
    return Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, result=raw, **timing)


def retried(lease: Lease, delay_s: float = 2.0, because: Failure | None = None, **timing: Any) -> Retried:
    return Retried(
        seq=lease.seq,
        attempt=lease.attempt,
        claim_no=lease.claim_no,
        delay_s=delay_s,
        failure=because or failure(),
        **timing,
    )


def died(lease: Lease, because: Failure | None = None, *, charged: bool = True, **timing: Any) -> Died:
    return Died(
        seq=lease.seq,
        attempt=lease.attempt,
        claim_no=lease.claim_no,
        failure=because or failure(),
        charged=charged,
        **timing,
    )


def cancelled(lease: Lease, reason: str | None = None, **timing: Any) -> Cancelled:
    return Cancelled(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, reason=reason, **timing)


def snoozed(lease: Lease, delay_s: float = 30.0, **timing: Any) -> Snoozed:
    return Snoozed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, delay_s=delay_s, **timing)


def released(lease: Lease, **timing: Any) -> Released:
    return Released(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, **timing)


def crashed(lease: Lease, **timing: Any) -> Crashed:
    return Crashed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, **timing)


OUTCOMES = {
    "completed": completed,
    "retried": retried,
    "died": died,
    "cancelled": cancelled,
    "snoozed": snoozed,
    "released": released,
}
"""By the name a worker gives them; each is called with the lease."""

NO_SUCH_SEQ = Seq(2**40)
