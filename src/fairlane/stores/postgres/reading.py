"""The questions of `core.ops.read` as queries. Listings start from the fact table of the asked status and page by seq."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from fairlane.core.ids import Seq
from fairlane.core.job import STATUSES, DeadLetter, Job, Status
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
    JobFilter,
    JobPage,
    PageAudit,
    PageDeadLetters,
    PageJobs,
    Stats,
)
from fairlane.stores.postgres.call import Call, Rows, instant

T = TypeVar("T")

# Where the jobs of a status are. Every dead job has a dead letter: `done` would be searched through all that completed.
_SOURCES: dict[Status, tuple[str, ...]] = {
    "pending": (
        "{schema}.ready f",
        "{schema}.held f",
        "{schema}.scheduled f where not f.failed",
        "{schema}.lease f where f.started_at is null",
    ),
    "processing": ("{schema}.lease f where f.started_at is not null",),
    "failed": ("{schema}.scheduled f where f.failed",),
    "completed": ("{schema}.done f where f.status = 'completed'",),
    "cancelled": ("{schema}.done f where f.status = 'cancelled'",),
    "dead": ("{schema}.dead_letter f",),
}

_ATTEMPTS = (
    "coalesce((select json_agg(row_to_json(a) order by a.attempt) from (select attempt, outcome, worker, leased_at, started_at, ended_at, "
    "error_class, error_type, error_message, traceback from {schema}.attempt_record where seq = r.seq) a), '[]')"
)


_NOTES = (
    "'progress', (select n.progress from {schema}.note n where n.seq = r.seq), 'log', coalesce((select json_agg(json_build_object("
    "'at', g.at, 'attempt', g.attempt, 'message', g.message) order by g.n) from {schema}.log_line g where g.seq = r.seq), '[]')"
)


def get_job(op: GetJob) -> Call[JobDetail | None]:
    sql = (
        f"select json_build_object('job', row_to_json(r), 'attempts', {_ATTEMPTS}, {_NOTES})::text "
        "from {schema}.job_record r where r.id = %s::uuid"
    )
    params: tuple[object, ...] = (str(op.id),)
    if op.scope.tenant is not None:
        sql, params = sql + " and r.tenant = %s", (*params, op.scope.tenant)

    def read(rows: Rows) -> JobDetail | None:
        return msgspec.json.decode(rows[0][0], type=JobDetail) if rows else None

    return Call(sql, params, read)


def page_jobs(op: PageJobs) -> Call[JobPage]:
    limit = max(1, min(op.limit, MAX_PAGE))
    conditions, params = _job_conditions(op.where, op.scope.tenant, op.before)
    statuses = tuple(s for s in STATUSES if s in op.where.statuses)
    sources = [source for status in statuses for source in _SOURCES[status]]
    if sources:
        picks = [
            f"(select j.seq from {_joined(source)}{' and '.join(['', *conditions])} order by j.seq desc limit {limit + 1})"
            for source in sources
        ]
    else:
        where = f" where {' and '.join(conditions)}" if conditions else ""
        picks = [f"(select j.seq from {{schema}}.job j{where} order by j.seq desc limit {limit + 1})"]
    sql = (
        f"with page as materialized (select seq from ({' union all '.join(picks)}) p order by seq desc limit {limit + 1}) "
        "select row_to_json(r)::text from page join {schema}.job_record r using (seq) order by seq desc"
    )

    def read(rows: Rows) -> JobPage:
        jobs = [msgspec.json.decode(row[0], type=Job) for row in rows]
        more = len(jobs) > limit
        return JobPage(jobs=tuple(jobs[:limit]), next=jobs[limit - 1].seq if more else None)

    return Call(sql, params * len(picks), read)


def _joined(source: str) -> str:
    table, _, condition = source.partition(" where ")
    return f"{table} join {{schema}}.job j on j.seq = f.seq where {condition or 'true'}"


def _job_conditions(where: JobFilter, tenant: str | None, before: Seq | None) -> tuple[list[str], tuple[object, ...]]:
    given: list[tuple[str, object]] = [
        ("j.tenant = %s", tenant),
        ("j.seq < %s", before),
        ("j.queue = %s", where.queue),
        ("j.type = %s", where.type),
        ("j.category = %s", where.category),
        ("j.created_by = %s", where.created_by),
        ("j.parent_id = %s::uuid", None if where.parent_id is None else str(where.parent_id)),
        ("j.enqueued_at >= %s::timestamptz", instant(where.enqueued_from)),
        ("j.enqueued_at < %s::timestamptz", instant(where.enqueued_before)),
    ]
    conditions = [condition for condition, value in given if value is not None]
    params = tuple(value for _, value in given if value is not None)
    # A job without a key or correlation of its own has its id for one.
    for column, text in (("correlation_id", where.correlation_id), ("idempotency_key", where.idempotency_key)):
        if text is not None:
            conditions.append(f"(j.{column} = %s or (j.{column} is null and j.id::text = %s))")
            params = (*params, text, text)
    return conditions, params


def get_dead_letter(op: GetDeadLetter) -> Call[DeadLetterDetail | None]:
    attempts = _ATTEMPTS.replace("r.seq", "d.id")
    sql = f"select json_build_object('dead_letter', row_to_json(d), 'attempts', {attempts})::text from {{schema}}.dead_letter_record d where d.id = %s"
    params: tuple[object, ...] = (op.id,)
    if op.scope.tenant is not None:
        sql, params = (
            sql + " and exists (select from {schema}.job j where j.seq = d.id and j.tenant = %s)",
            (*params, op.scope.tenant),
        )

    def read(rows: Rows) -> DeadLetterDetail | None:
        return msgspec.json.decode(rows[0][0], type=DeadLetterDetail) if rows else None

    return Call(sql, params, read)


def page_dead_letters(op: PageDeadLetters) -> Call[DeadLetterPage]:
    limit = max(1, min(op.limit, MAX_PAGE))
    w = op.where
    given: list[tuple[str, object]] = [
        ("j.tenant = %s", op.scope.tenant),
        ("d.status = %s", w.status),
        ("j.queue = %s", w.queue),
        ("j.type = %s", w.type),
        ("d.error_class = %s", w.error_class),
        ("d.error_type = %s", w.error_type),
        ("d.fingerprint = %s", w.fingerprint),
        ("coalesce(j.correlation_id, j.id::text) = %s", w.correlation_id),
    ]
    conditions = [condition for condition, value in given if value is not None]
    params = tuple(value for _, value in given if value is not None)
    if w.acknowledged is not None:
        conditions.append(f"d.acknowledged_at is {'not ' if w.acknowledged else ''}null")
    matching = (
        f"from {{schema}}.dead_letter d join {{schema}}.job j using (seq) where {' and '.join(conditions or ['true'])}"
    )
    below, seq = (" and d.seq < %s", (op.before,)) if op.before is not None else ("", ())
    sql = (
        f"with page as materialized (select d.seq {matching}{below} order by d.seq desc limit {limit + 1}) "
        f"select (select count(*) from (select 1 {matching} limit {COUNT_CAP}) m), "
        "(select json_agg(row_to_json(r) order by r.id desc)::text from page join {schema}.dead_letter_record r on r.id = page.seq)"
    )

    def read(rows: Rows) -> DeadLetterPage:
        total, text = rows[0]
        letters = msgspec.json.decode(text or "[]", type=list[DeadLetter])
        more = len(letters) > limit
        return DeadLetterPage(
            dead_letters=tuple(letters[:limit]), next=letters[limit - 1].id if more else None, total=total
        )

    return Call(sql, (*params, *seq, *params), read)


def get_stats(op: GetStats) -> Call[Stats]:
    return Call(
        "select {schema}.stats_v1(%s, %s, %s::timestamptz)::text", (op.scope.tenant, op.cap, instant(op.now)), _stats
    )


def _stats(rows: Rows) -> Stats:
    return msgspec.json.decode(rows[0][0], type=Stats)


def page_audit(op: PageAudit) -> Call[AuditPage]:
    limit = max(1, min(op.limit, MAX_PAGE))
    given: list[tuple[str, object]] = [
        ("tenant = %s", op.scope.tenant),
        ("action = %s", op.action),
        ("target = %s", op.target),
        ("id < %s", op.before),
    ]
    conditions = [condition for condition, value in given if value is not None]
    params = tuple(value for _, value in given if value is not None)
    sql = (
        f"select row_to_json(a)::text from (select id, at, by, action, tenant, target, notes, before, after from {{schema}}.audit "
        f"where {' and '.join(conditions or ['true'])} order by id desc limit {limit + 1}) a"
    )

    def read(rows: Rows) -> AuditPage:
        records = [msgspec.json.decode(row[0], type=AuditRecord) for row in rows]
        more = len(records) > limit
        return AuditPage(records=tuple(records[:limit]), next=records[limit - 1].id if more else None)

    return Call(sql, params, read)
