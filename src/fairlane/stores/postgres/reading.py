"""The questions of `core.ops.read` as calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from fairlane.core.job import DeadLetter, Job
from fairlane.core.ops import (
    COUNT_CAP,
    MAX_PAGE,
    AuditPage,
    AuditRecord,
    DeadLetterDetail,
    DeadLetterPage,
    GetDeadLetter,
    GetJob,
    GetStats,
    JobDetail,
    JobPage,
    PageAudit,
    PageDeadLetters,
    PageJobs,
    Stats,
)
from fairlane.stores.postgres.call import Call, Rows, instant

T = TypeVar("T")

HIGHEST = 2**63 - 1


def get_job(op: GetJob) -> Call[JobDetail | None]:
    return Call("select {schema}.get_job_v1(%s, %s::uuid)::text", (op.scope.tenant, str(op.id)), _one(JobDetail))


def page_jobs(op: PageJobs) -> Call[JobPage]:
    limit = _page_size(op.limit)

    def read(rows: Rows) -> JobPage:
        jobs = [msgspec.json.decode(row[0], type=Job) for row in rows]
        more = len(jobs) > limit
        return JobPage(jobs=tuple(jobs[:limit]), next=jobs[limit - 1].seq if more else None)

    return Call(
        "select {schema}.page_jobs_v1(%s, %s::bigint, %s, %s::json)",
        (op.scope.tenant, _number(op.before), limit + 1, msgspec.json.encode(op.where).decode()),
        read,
    )


def get_dead_letter(op: GetDeadLetter) -> Call[DeadLetterDetail | None]:
    return Call(
        "select {schema}.get_dead_letter_v1(%s, %s::bigint)::text",
        (op.scope.tenant, _number(op.id)),
        _one(DeadLetterDetail),
    )


def page_dead_letters(op: PageDeadLetters) -> Call[DeadLetterPage]:
    limit = _page_size(op.limit)

    def read(rows: Rows) -> DeadLetterPage:
        total, text = rows[0]
        letters = msgspec.json.decode(text or "[]", type=list[DeadLetter])
        more = len(letters) > limit
        return DeadLetterPage(
            dead_letters=tuple(letters[:limit]), next=letters[limit - 1].id if more else None, total=total
        )

    return Call(
        "select total, letters from {schema}.page_dead_letters_v1(%s, %s::bigint, %s, %s, %s::json)",
        (op.scope.tenant, _number(op.before), limit + 1, COUNT_CAP, msgspec.json.encode(op.where).decode()),
        read,
    )


def get_stats(op: GetStats) -> Call[Stats]:
    return Call(
        "select {schema}.stats_v1(%s, %s, %s::timestamptz, %s, %s::text[])::text",
        (op.scope.tenant, op.cap, instant(op.now), op.rough, list(op.parts)),
        _stats,
    )


def _stats(rows: Rows) -> Stats:
    return msgspec.json.decode(rows[0][0], type=Stats)


def page_audit(op: PageAudit) -> Call[AuditPage]:
    limit = _page_size(op.limit)

    def read(rows: Rows) -> AuditPage:
        records = [msgspec.json.decode(row[0], type=AuditRecord) for row in rows]
        more = len(records) > limit
        return AuditPage(records=tuple(records[:limit]), next=records[limit - 1].id if more else None)

    return Call(
        "select {schema}.page_audit_v1(%s, %s::bigint, %s, %s, %s)",
        (op.scope.tenant, _number(op.before), limit + 1, op.action, op.target),
        read,
    )


def _one(kind: type[T]) -> Callable[[Rows], T | None]:
    def read(rows: Rows) -> T | None:
        return None if rows[0][0] is None else msgspec.json.decode(rows[0][0], type=kind)

    return read


def _page_size(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE))


def _number(given: int | None) -> int | None:
    """No row has a number beyond these: asked for one, the answer is none, not an error."""
    return None if given is None else max(-HIGHEST, min(given, HIGHEST))
