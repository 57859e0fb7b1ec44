"""What people and programs ask: one job, pages of jobs, dead letters and audit records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from datetime import datetime
from itertools import islice

from msgspec import structs

from fairlane.core.ids import Seq
from fairlane.core.ops import (
    COUNT_CAP,
    MAX_PAGE,
    AuditPage,
    AuditRecord,
    DeadLetterDetail,
    DeadLetterFilter,
    DeadLetterPage,
    GetDeadLetter,
    GetJob,
    JobDetail,
    JobFilter,
    JobPage,
    PageAudit,
    PageDeadLetters,
    PageJobs,
    Scope,
)
from fairlane.stores.memory.facts import Facts, Row, Said
from fairlane.stores.memory.showing import attempts_of, dead_letter_of, job_of, status_of

_NOTHING_SAID = Said()


def get_job(facts: Facts, op: GetJob, now: datetime) -> JobDetail | None:
    row = facts.ids.get(op.id)
    if row is None or not op.scope.admits(row.spec.tenant):
        return None
    said = facts.notes.get(row.seq, _NOTHING_SAID)
    return JobDetail(job=job_of(row), attempts=attempts_of(row), progress=said.progress, log=said.log)


def page_jobs(facts: Facts, op: PageJobs, now: datetime) -> JobPage:
    found = (row for row in _newest_first(facts, op.before) if _is_asked_for(row, op.scope, op.where))
    rows, following = _cut(found, op.limit)
    return JobPage(jobs=tuple(job_of(row) for row in rows), next=following)


def get_dead_letter(facts: Facts, op: GetDeadLetter, now: datetime) -> DeadLetterDetail | None:
    row = facts.letters.get(op.id)
    if row is None or not op.scope.admits(row.spec.tenant):
        return None
    return DeadLetterDetail(dead_letter=dead_letter_of(row), attempts=attempts_of(row))


def page_dead_letters(facts: Facts, op: PageDeadLetters, now: datetime) -> DeadLetterPage:
    found = [row for row in facts.letters.values() if is_letter_asked_for(row, op.scope, op.where)]
    found.sort(key=lambda row: row.seq, reverse=True)
    behind = (row for row in found if op.before is None or row.seq < op.before)
    rows, following = _cut(behind, op.limit)
    letters = tuple(dead_letter_of(row) for row in rows)
    return DeadLetterPage(dead_letters=letters, next=following, total=min(len(found), COUNT_CAP))


def page_audit(facts: Facts, op: PageAudit, now: datetime) -> AuditPage:
    limit = _within_bounds(op.limit)
    found = list(islice(_audit_asked_for(facts, op), limit + 1))
    following = found[limit - 1].id if len(found) > limit else None
    return AuditPage(records=tuple(map(copied, found[:limit])), next=following)


def copied(record: AuditRecord) -> AuditRecord:
    return structs.replace(record, before=deepcopy(record.before), after=deepcopy(record.after))


def _audit_asked_for(facts: Facts, op: PageAudit) -> Iterator[AuditRecord]:
    end = len(facts.audit)
    if op.before is not None and facts.audit:
        end = min(max(op.before - facts.audit[0].id, 0), end)
    for nth in range(end - 1, -1, -1):
        record = facts.audit[nth]
        if op.scope.tenant is not None and op.scope.tenant != record.tenant:
            continue
        if op.action in (None, record.action) and op.target in (None, record.target):
            yield record


def _newest_first(facts: Facts, before: int | None) -> Iterator[Row]:
    if before is None:
        yield from reversed(facts.rows.values())
        return
    oldest = next(iter(facts.rows), 0)
    for seq in range(min(before - 1, facts.last_seq), oldest - 1, -1):
        row = facts.rows.get(seq)
        if row is not None:
            yield row


def _is_asked_for(row: Row, scope: Scope, where: JobFilter) -> bool:
    spec = row.spec
    return (
        scope.admits(spec.tenant)
        and (not where.statuses or status_of(row) in where.statuses)
        and where.queue in (None, spec.queue)
        and where.type in (None, spec.type)
        and (where.category is None or where.category == spec.category)
        and (where.correlation_id is None or where.correlation_id == row.correlation_id)
        and (where.parent_id is None or where.parent_id == spec.parent_id)
        and (where.created_by is None or where.created_by == spec.created_by)
        and (where.idempotency_key is None or where.idempotency_key == row.idempotency_key)
        and (where.enqueued_from is None or row.enqueued_at >= where.enqueued_from)
        and (where.enqueued_before is None or row.enqueued_at < where.enqueued_before)
    )


def is_letter_asked_for(row: Row, scope: Scope, where: DeadLetterFilter) -> bool:
    letter, failure, spec = row.letter, row.failure, row.spec
    assert letter is not None
    assert failure is not None
    return (
        scope.admits(spec.tenant)
        and where.status in (None, letter.status)
        and where.acknowledged in (None, letter.acknowledged_by is not None)
        and where.queue in (None, spec.queue)
        and where.type in (None, spec.type)
        and where.error_class in (None, failure.error_class)
        and where.error_type in (None, failure.error_type)
        and where.fingerprint in (None, failure.fingerprint)
        and (where.correlation_id is None or where.correlation_id == row.correlation_id)
    )


def _within_bounds(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE))


def _cut(found: Iterable[Row], limit: int) -> tuple[list[Row], Seq | None]:
    """One page of what was found, and where the next begins."""
    limit = _within_bounds(limit)
    rows = list(islice(found, limit + 1))
    return rows[:limit], rows[limit - 1].seq if len(rows) > limit else None
