"""What the oracle answers to those who read."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fairlane.core import job as values, ops
from tests.model_facts import Record
from tests.model_signals import steps_of, wait_of

SPELLED_THE_SAME = (
    "id",
    "type",
    "tenant",
    "queue",
    "priority",
    "category",
    "payload_version",
    "dedup_key",
    "parent_id",
)
SPELLED_THE_SAME += ("created_by", "refs", "headers", "max_attempts", "timeout_s")


def job_of(r: Record) -> values.Job:
    seen = r.lease or (r.last if r.is_finished else None)
    kept = ("seq", "status", "idempotency_key", "correlation_id", "attempt", "attempts", "crashes", "enqueued_at")
    return values.Job(
        **{name: getattr(r.spec, name) for name in SPELLED_THE_SAME},
        **{name: getattr(r, name) for name in kept},
        payload=bytes(r.spec.payload).decode(),
        scheduled_at=r.first_due,
        run_at=r.due,
        started_at=seen and seen.started_at,
        finished_at=r.finished_at,
        worker=seen and seen.worker,
        cancel_requested=bool(r.lease and r.lease.cancel),
        result=r.result,
        error_class=r.failure and r.failure.error_class,
        error_type=r.failure and r.failure.error_type,
        last_error=r.failure and r.failure.message,
        last_error_at=r.failed_at,
        key=r.spec.key and r.spec.key.value,
    )


def attempts_of(r: Record) -> tuple[values.Attempt, ...]:
    told = ("attempt", "outcome", "worker", "leased_at", "started_at", "ended_at")
    return tuple(
        values.Attempt(
            **{name: getattr(t, name) for name in told},
            expires_at=t.deadline_at,
            error_class=t.failure and t.failure.error_class,
            error_type=t.failure and t.failure.error_type,
            error_message=t.failure.message if t.failure else t.note,
            traceback=t.failure and t.failure.traceback,
        )
        for t in r.tries
    )


def letter_of(r: Record) -> values.DeadLetter:
    return values.DeadLetter(
        id=r.seq,
        job=job_of(r),
        reason=r.failure.message[:2000],
        error_class=r.failure.error_class,
        error_type=r.failure.error_type,
        fingerprint=r.failure.fingerprint,
        died_at=r.finished_at,
        **r.letter,
    )


def page(found: list[Any], number: str, before: int | None, limit: int) -> tuple[tuple[Any, ...], int | None]:
    limit = max(1, min(limit, ops.MAX_PAGE))
    newest_first = sorted(found, key=lambda x: -getattr(x, number))
    behind = [x for x in newest_first if before is None or getattr(x, number) < before]
    return tuple(behind[:limit]), getattr(behind[limit - 1], number) if len(behind) > limit else None


class Reads:
    jobs: list[Record]
    audit: list[ops.AuditRecord]

    def getjob(self, op, now):
        found = [r for r in self.jobs if r.spec.id == op.id and op.scope.admits(r.spec.tenant)]
        for r in found:
            said = {"progress": r.progress, "log": tuple(r.log), "steps": steps_of(r), "waits_for": wait_of(r)}
            return ops.JobDetail(job=job_of(r), attempts=attempts_of(r), **said)
        return None

    def getstatus(self, op, now):
        detail = self.getjob(op, now)
        return None if detail is None else ops.status_of(detail.job)

    def pagejobs(self, op, now):
        where, found = op.where, []
        for job in (job_of(r) for r in self.jobs if op.scope.admits(r.spec.tenant)):
            names = ("queue", "type", "category", "correlation_id", "parent_id", "created_by", "idempotency_key")
            alike = all(getattr(where, name) in (None, getattr(job, name)) for name in names)
            from_then = where.enqueued_from is None or job.enqueued_at >= where.enqueued_from
            before_then = where.enqueued_before is None or job.enqueued_at < where.enqueued_before
            runs = job.status == "processing" and job.started_at
            started = where.started_before is None or (runs and job.started_at < where.started_before)
            if alike and started and from_then and before_then and (not where.statuses or job.status in where.statuses):
                found.append(job)
        jobs, following = page(found, "seq", op.before, op.limit)
        return ops.JobPage(jobs=jobs, next=following)

    def getdeadletter(self, op, now):
        r = next((r for r in self.jobs if r.letter and r.seq == op.id and op.scope.admits(r.spec.tenant)), None)
        return ops.DeadLetterDetail(dead_letter=letter_of(r), attempts=attempts_of(r)) if r else None

    def pagedeadletters(self, op, now):
        where, found = op.where, []
        for letter in (letter_of(r) for r in self.jobs if r.letter and op.scope.admits(r.spec.tenant)):
            alike = all(
                getattr(where, name) in (None, getattr(letter, name))
                for name in ("status", "error_class", "error_type", "fingerprint")
            ) and all(
                getattr(where, name) in (None, getattr(letter.job, name))
                for name in ("queue", "type", "category", "correlation_id")
            )
            if alike and where.acknowledged in (None, letter.acknowledged_by is not None):
                found.append(letter)
        letters, following = page(found, "id", op.before, op.limit)
        return ops.DeadLetterPage(dead_letters=letters, next=following, total=min(len(found), op.cap))

    def pageaudit(self, op, now):
        found = [
            a
            for a in self.audit
            if op.scope.tenant in (None, a.tenant) and op.action in (None, a.action) and op.target in (None, a.target)
        ]
        records, following = page(found, "id", op.before, op.limit)
        return ops.AuditPage(records=records, next=following)

    def getstats(self, op, now):
        seen = [r for r in self.jobs if op.scope.admits(r.spec.tenant)]

        def count(true_of, among=seen, cap=op.cap):
            return min(sum(map(true_of, among)), cap)

        def in_queue(true_of):
            return count(true_of, here, len(here) if op.rough else op.cap)

        queues = []
        for queue in sorted({r.spec.queue for r in seen if not r.is_finished}):
            here = [r for r in seen if r.spec.queue == queue]
            queues.append(
                ops.QueueStats(
                    queue=queue,
                    pending=in_queue(lambda r: r.status == "pending"),
                    ready=in_queue(lambda r: r.place == "ready"),
                    scheduled=in_queue(lambda r: r.place == "scheduled"),
                    processing=in_queue(lambda r: r.status == "processing"),
                    failed=in_queue(lambda r: r.status == "failed"),
                    held=in_queue(lambda r: r.place == "held"),
                    oldest_due_at=min((r.due for r in here if r.place == "ready"), default=None),
                )
            )
        letters = {}
        for status in values.DEAD_LETTER_STATUSES:
            newest = [r for r in reversed(self.jobs) if r.letter and r.letter["status"] == status]
            looked_at = newest[: op.cap] if op.rough and op.scope.tenant is not None else newest
            letters[status] = count(lambda r: op.scope.admits(r.spec.tenant), looked_at)
        letters = {status: some for status, some in letters.items() if some and "dead_letters" in op.parts}
        ended = {
            place: count(lambda r, place=place: r.place == place and "ended" in op.parts)
            for place in ("completed", "dead", "cancelled")
        }
        queues = queues if "queues" in op.parts else []
        pending = Counter(r.spec.type for r in seen if r.status == "pending" and "types" in op.parts)
        return ops.Stats(now=now, queues=tuple(queues), dead_letters=letters, pending_types=dict(pending), **ended)
