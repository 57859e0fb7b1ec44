"""A store and the model, asked the same, answering the same."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from fairlane.core.ids import JobId, Seq
from fairlane.core.ops import (
    ALL_TENANTS,
    AuditPage,
    DeadLetterAct,
    Enqueue,
    EnqueueResult,
    Fire,
    Fired,
    GetJob,
    Op,
    PageAudit,
    PageDeadLetters,
    PageJobs,
    Purge,
    Reprocess,
    RunSchedule,
    ScheduleAct,
    Scope,
    TurnResult,
)
from fairlane.testing.conformance.scene import Runs
from tests.model import Model

T = TypeVar("T")


class SideBySide:
    """Runs each operation on both and compares the answers, exactly.

    A store chooses the numbers of its jobs, so the model takes over whatever number a new job was given. Audit records have
    numbers too; only their order is compared.
    """

    def __init__(self, store: Runs) -> None:
        self.store, self.model = store, Model()
        store.run(Purge())

    def run(self, op: Op[T]) -> T:
        told = self.store.run(op)
        expected = self._adopt(op, self.model.run(op), told)
        assert _comparable(told) == _comparable(expected), f"{op}\n  store: {told}\n  model: {expected}"
        return told

    def _adopt(self, op: Op[Any], expected: Any, told: Any) -> Any:
        if isinstance(op, Enqueue) and isinstance(told, EnqueueResult):
            pairs = zip(expected.receipts, told.receipts, strict=False)
            created = [(ours, theirs) for ours, theirs in pairs if ours.disposition == "created"]
            # From the last on: a store's numbers may run ahead of the model's, and then meet the next one's old number.
            for ours, theirs in reversed(created):
                self._renumber(ours.id, theirs.seq)
            receipts = [msgspec.structs.replace(ours, seq=self._number(ours.id)) for ours in expected.receipts]
            return msgspec.structs.replace(expected, receipts=tuple(receipts))
        if isinstance(op, Reprocess) and isinstance(told, DeadLetterAct) and told.new_job and expected.new_job:
            self._renumber(expected.new_job.id, told.new_job.seq)
            new_job = msgspec.structs.replace(expected.new_job, seq=told.new_job.seq)
            return msgspec.structs.replace(expected, new_job=new_job)
        if isinstance(op, Fire) and isinstance(told, Fired):
            self._renumber_as_stored(told.job_ids)
        if isinstance(op, RunSchedule) and isinstance(told, ScheduleAct) and told.job_id:
            self._renumber_as_stored((told.job_id,))
        return expected

    def _renumber_as_stored(self, jobs: tuple[JobId, ...]) -> None:
        for job in reversed(jobs):
            detail = self.store.run(GetJob(scope=ALL_TENANTS, id=job))
            if detail is not None:
                self._renumber(job, detail.job.seq)

    def _renumber(self, job: JobId, seq: Seq) -> None:
        [record] = [record for record in self.model.jobs if record.spec.id == job]
        others = [other.seq for other in self.model.jobs if other is not record]
        assert seq not in others, "a store gave one number to two jobs"
        record.seq = seq
        self.model.last_seq = max(self.model.last_seq, seq)

    def _number(self, job: JobId) -> int:
        [seq] = [record.seq for record in self.model.jobs if record.spec.id == job]
        return int(seq)

    def compare_everything(self, scope: Scope = ALL_TENANTS) -> tuple[Any, ...]:
        """All jobs, dead letters and audit records, as everyone sees them; returns the jobs."""
        jobs = self.run(PageJobs(scope=scope, limit=200)).jobs
        self.run(PageDeadLetters(scope=scope, limit=200))
        self.run(PageAudit(scope=scope, limit=200))
        return jobs


def _comparable(answer: Any) -> Any:
    if isinstance(answer, AuditPage):
        numbers = [record.id for record in answer.records]
        assert numbers == sorted(set(numbers), reverse=True)
        return [msgspec.structs.replace(record, id=0) for record in answer.records], answer.next is None
    if isinstance(answer, TurnResult):
        return msgspec.structs.replace(answer, held_back=False, limited_until=None)
    return answer
