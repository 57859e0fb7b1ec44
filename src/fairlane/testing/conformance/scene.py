"""One store and a clock moved by hand: what clients, workers and people do, in words."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

import msgspec

from fairlane.core.ids import JobId, Seq, WorkerId
from fairlane.core.job import Attempt, DeadLetter, Job, JobSpec, Lease, Status
from fairlane.core.limits import Limit
from fairlane.core.ops import (
    ALL_TENANTS,
    Acknowledge,
    AuditRecord,
    Bury,
    Cancel,
    DeadLetterAct,
    Discard,
    Enqueue,
    EnqueueResult,
    Fail,
    GetDeadLetter,
    GetJob,
    GetStats,
    GetStatus,
    JobAct,
    JobDetail,
    JobFilter,
    Op,
    PageAudit,
    PageJobs,
    Promote,
    Promoted,
    QueueStats,
    Receipt,
    Reclaim,
    Reclaimed,
    Renew,
    Renewed,
    Reprocess,
    Resolve,
    Retain,
    Retire,
    Scope,
    Start,
    Stats,
    Turn,
    TurnResult,
    Want,
)
from fairlane.core.outcome import Outcome
from fairlane.testing.conformance.samples import NOON, Making, completed, died

T = TypeVar("T")


class Runs(Protocol):
    """A store in one colour, or the model: answers one operation."""

    def run(self, op: Op[T]) -> T: ...


class Scene:
    """Everything happens at `now`, which only `later` moves."""

    def __init__(self, store: Runs, seed: int = 0) -> None:
        self.store, self.now = store, NOON
        self.making = Making(seed)
        self._claim_nos: dict[WorkerId, int] = {}

    def run(self, op: Op[T]) -> T:
        return self.store.run(op if op.now is not None else msgspec.structs.replace(op, now=self.now))

    def at(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    def later(self, seconds: float) -> datetime:
        self.now = self.at(seconds)
        return self.now

    # What clients do.

    def job(self, type: str = "mail.send", **options: Any) -> JobSpec:
        return self.making.job(type, **options)

    def enqueue(
        self, *jobs: JobSpec, capacity: int | None = None, limits: tuple[Limit, ...] = (), warns: bool = True
    ) -> EnqueueResult:
        return self.run(Enqueue(jobs=jobs, capacity=capacity, limits=limits, warns=warns))

    def put(self, type: str = "mail.send", **options: Any) -> Receipt:
        """Enqueue one new job."""
        [receipt] = self.enqueue(self.job(type, **options)).receipts
        assert receipt.disposition == "created"
        return receipt

    def put_many(self, count: int, type: str = "mail.send", **options: Any) -> tuple[Receipt, ...]:
        return self.enqueue(*(self.job(type, **options) for _ in range(count))).receipts

    # What workers do.

    def hire(self, lease_s: float = 15.0) -> WorkerId:
        """A new worker, registered."""
        worker = self.making.worker_id()
        self.renew(worker, lease_s)
        return worker

    def renew(self, worker: WorkerId, lease_s: float = 15.0) -> Renewed:
        return self.run(Renew(worker=worker, lease_s=lease_s, name="test"))

    def turn(self, worker: WorkerId, *wants: Want, claim_no: int | None = None, **parts: Any) -> TurnResult:
        if claim_no is None:
            claim_no = self._claim_nos.get(worker, 0) + 1
        self._claim_nos[worker] = max(claim_no, self._claim_nos.get(worker, 0))
        return self.run(Turn(worker=worker, claim_no=claim_no, wants=wants, **parts))

    def claim(
        self,
        worker: WorkerId,
        limit: int = 1,
        *,
        start: int | None = None,
        limits: tuple[Limit, ...] = (),
        **want: Any,
    ) -> tuple[Lease, ...]:
        """Claim and start up to `limit` jobs; `start=0` only prefetches them."""
        return self.turn(worker, wanting(limit, start=start, **want), limits=limits).leases

    def prefetch(self, worker: WorkerId, limit: int = 1, **want: Any) -> tuple[Lease, ...]:
        return self.claim(worker, limit, start=0, **want)

    def start(self, worker: WorkerId, lease: Lease, *, timeout_s: float = 300.0, alone: bool = False) -> TurnResult:
        started = Start(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, timeout_s=timeout_s, alone=alone)
        return self.turn(worker, starts=(started,))

    def settle(self, worker: WorkerId, *outcomes: Outcome) -> TurnResult:
        return self.turn(worker, outcomes=outcomes)

    def retire(self, worker: WorkerId) -> int:
        return self.run(Retire(worker=worker)).released

    # What duties do.

    def promote(self, limit: int = 1000) -> Promoted:
        return self.run(Promote(limit=limit))

    def reclaim(self, limit: int = 100) -> tuple[Reclaimed, ...]:
        return self.run(Reclaim(limit=limit)).reclaimed

    def retain(self, **rule: Any) -> int:
        return self.run(Retain(**rule)).jobs

    # What people do.

    def cancel(self, job: JobId, scope: Scope = ALL_TENANTS, by: str = "ada", notes: str | None = None) -> JobAct:
        return self.run(Cancel(scope=scope, id=job, by=by, notes=notes))

    def fail(
        self,
        job: JobId,
        reason: str = "wrong address",
        *,
        retry_delay_s: float | None = None,
        scope: Scope = ALL_TENANTS,
        by: str = "ada",
        notes: str | None = None,
    ) -> JobAct:
        return self.run(Fail(scope=scope, id=job, by=by, notes=notes, reason=reason, retry_delay_s=retry_delay_s))

    def bury(
        self, job: JobId, reason: str = "never mind", *, scope: Scope = ALL_TENANTS, notes: str | None = None
    ) -> JobAct:
        return self.run(Bury(scope=scope, id=job, by="ada", notes=notes, reason=reason))

    def reprocess(
        self, letter: Seq, scope: Scope = ALL_TENANTS, by: str = "ada", notes: str | None = None
    ) -> DeadLetterAct:
        return self.run(Reprocess(scope=scope, id=letter, by=by, notes=notes, new_job_id=self.making.job_id()))

    def discard(self, letter: Seq, scope: Scope = ALL_TENANTS, notes: str | None = None) -> DeadLetterAct:
        return self.run(Discard(scope=scope, id=letter, by="ada", notes=notes))

    def resolve(self, letter: Seq, scope: Scope = ALL_TENANTS, notes: str | None = None) -> DeadLetterAct:
        return self.run(Resolve(scope=scope, id=letter, by="ada", notes=notes))

    def acknowledge(
        self, letter: Seq, scope: Scope = ALL_TENANTS, by: str = "ada", notes: str | None = None
    ) -> DeadLetterAct:
        return self.run(Acknowledge(scope=scope, id=letter, by=by, notes=notes))

    # What people ask.

    def find(self, job: JobId, scope: Scope = ALL_TENANTS) -> JobDetail | None:
        return self.run(GetJob(scope=scope, id=job))

    def see(self, job: JobId) -> Job:
        detail = self.find(job)
        assert detail is not None
        return detail.job

    def status(self, job: JobId) -> Status:
        found = self.run(GetStatus(scope=ALL_TENANTS, id=job))
        assert found is not None
        return found.status

    def attempts(self, job: JobId) -> tuple[Attempt, ...]:
        detail = self.find(job)
        assert detail is not None
        return detail.attempts

    def letter(self, seq: Seq) -> DeadLetter:
        detail = self.run(GetDeadLetter(scope=ALL_TENANTS, id=seq))
        assert detail is not None
        return detail.dead_letter

    def list_jobs(self, scope: Scope = ALL_TENANTS, limit: int = 50, **where: Any) -> list[JobId]:
        """The ids of all matching jobs, page after page."""
        ids: list[JobId] = []
        before: Seq | None = None
        while True:
            page = self.run(PageJobs(scope=scope, where=JobFilter(**where), before=before, limit=limit))
            ids += [job.id for job in page.jobs]
            if page.next is None:
                return ids
            before = page.next

    def stats(self, scope: Scope = ALL_TENANTS, **limits: Any) -> Stats:
        return self.run(GetStats(scope=scope, **limits))

    def queue(self, name: str = "default", scope: Scope = ALL_TENANTS) -> QueueStats:
        [found] = [queue for queue in self.stats(scope).queues if queue.queue == name]
        return found

    def audit(self, scope: Scope = ALL_TENANTS, **where: Any) -> tuple[AuditRecord, ...]:
        return self.run(PageAudit(scope=scope, **where)).records

    # Short stories.

    def leased(self, *, start: bool = True, **options: Any) -> tuple[WorkerId, Lease]:
        """A new worker holding a new job."""
        receipt = self.put(**options)
        worker = self.hire()
        job = self.see(receipt.id)
        [lease] = self.claim(worker, start=int(start), queues=(job.queue,), types=(job.type,))
        assert lease.id == receipt.id
        return worker, lease

    def finished(self, **options: Any) -> Lease:
        worker, lease = self.leased(**options)
        assert not self.settle(worker, completed(lease)).refused
        return lease

    def dead(self, **options: Any) -> Lease:
        """A job that died in its first attempt."""
        worker, lease = self.leased(**options)
        assert not self.settle(worker, died(lease)).refused
        return lease


def wanting(limit: int = 1, *, start: int | None = None, **want: Any) -> Want:
    """One lane's wish for jobs of the default queue."""
    want.setdefault("lane", "general")
    want.setdefault("queues", ("default",))
    return Want(limit=limit, start=limit if start is None else start, **want)
