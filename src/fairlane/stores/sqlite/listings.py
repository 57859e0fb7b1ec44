"""Listings, newest first, page by page on the key. Each starts from the fact table of the asked status."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from fairlane.core.ids import Seq
from fairlane.core.job import Status
from fairlane.core.ops import (
    COUNT_CAP,
    MAX_PAGE,
    AuditPage,
    DeadLetterFilter,
    DeadLetterPage,
    JobFilter,
    JobPage,
    PageAudit,
    PageDeadLetters,
    PageJobs,
    Scope,
)
from fairlane.stores.sqlite.audit import COLUMNS, audit_record
from fairlane.stores.sqlite.instants import to_us
from fairlane.stores.sqlite.jobs import read_dead_letters, read_jobs
from fairlane.stores.sqlite.transaction import Transaction

_IN_STATUS: dict[Status, tuple[str, ...]] = {
    "pending": (
        "fairlane_ready f",
        "(select seq from fairlane_scheduled where not failed) f",
        "(select seq from fairlane_lease where started_at is null) f",
        "fairlane_held f",
    ),
    "processing": ("(select seq from fairlane_lease where started_at is not null) f",),
    "failed": ("(select seq from fairlane_scheduled where failed) f",),
    "completed": ("(select seq from fairlane_done where status = 'completed') f",),
    # Said twice, because SQLite uses a partial index only where its own condition stands in the query.
    "dead": ("(select seq from fairlane_done where status = 'dead' and status <> 'completed') f",),
    "cancelled": ("(select seq from fairlane_done where status = 'cancelled' and status <> 'completed') f",),
}


class Condition(NamedTuple):
    sql: str
    params: tuple[object, ...]


def page_jobs(tx: Transaction, op: PageJobs) -> JobPage:
    limit = _bounded(op.limit)
    conditions = [*_in_scope(op.scope), *_job_conditions(op.where)]
    statuses = dict.fromkeys(op.where.statuses)
    sources = [source for status in statuses for source in _IN_STATUS[status]]
    number = "f.seq" if sources else "j.seq"
    if op.before is not None:
        conditions.append(Condition(f"{number} < ?", (op.before,)))
    where, params = _joined(conditions)
    # `cross join`: from the facts to their jobs, never from all jobs to their facts.
    tables = [f"{source} cross join fairlane_job j on j.seq = f.seq" for source in sources] or ["fairlane_job j"]
    found: list[int] = []
    for table in tables:
        sql = f"select {number} from {table} where {where} order by {number} desc limit ?"  # noqa: S608
        found += [seq for (seq,) in tx.db.execute(sql, (*params, limit + 1))]
    found.sort(reverse=True)
    jobs = read_jobs(tx, found[:limit])
    return JobPage(jobs=tuple(jobs), next=Seq(found[limit - 1]) if len(found) > limit else None)


def _job_conditions(where: JobFilter) -> list[Condition]:
    conditions = [
        Condition(f"j.{column} = ?", (value,))
        for column, value in (
            ("queue", where.queue),
            ("type", where.type),
            ("category", where.category),
            ("parent_id", None if where.parent_id is None else where.parent_id.bytes),
            ("created_by", where.created_by),
        )
        if value is not None
    ]
    if where.correlation_id is not None:
        conditions.append(_given_or_own_id("correlation_id", where.correlation_id))
    if where.idempotency_key is not None:
        conditions.append(_given_or_own_id("idempotency_key", where.idempotency_key))
    if where.enqueued_from is not None:
        conditions.append(Condition("j.enqueued_at >= ?", (to_us(where.enqueued_from),)))
    if where.enqueued_before is not None:
        conditions.append(Condition("j.enqueued_at < ?", (to_us(where.enqueued_before),)))
    return conditions


def _given_or_own_id(column: str, value: str) -> Condition:
    """A job without the value shows its own id there."""
    try:
        own_id = UUID(value)
    except ValueError:
        own_id = None
    if own_id is None or str(own_id) != value:
        return Condition(f"j.{column} = ?", (value,))
    return Condition(f"(j.{column} = ? or (j.{column} is null and j.id = ?))", (value, own_id.bytes))


def page_dead_letters(tx: Transaction, op: PageDeadLetters) -> DeadLetterPage:
    limit = _bounded(op.limit)
    where, params = dead_letters_where(op.scope, op.where)
    matching = f"from fairlane_dead_letter d cross join fairlane_job j on j.seq = d.seq where {where}"
    [(total,)] = tx.db.execute(f"select count(*) from (select 1 {matching} limit ?)", (*params, COUNT_CAP))  # noqa: S608
    if op.before is not None:
        matching, params = f"{matching} and d.seq < ?", (*params, op.before)
    rows = tx.db.execute(f"select d.seq {matching} order by d.seq desc limit ?", (*params, limit + 1))
    found = [seq for (seq,) in rows]
    letters = read_dead_letters(tx, found[:limit])
    following = Seq(found[limit - 1]) if len(found) > limit else None
    return DeadLetterPage(dead_letters=tuple(letters), next=following, total=total)


def dead_letters_where(scope: Scope, where: DeadLetterFilter) -> tuple[str, tuple[object, ...]]:
    """The condition on a dead letter `d` and its job `j`, with its parameters."""
    conditions = _in_scope(scope)
    conditions += [
        Condition(f"{column} = ?", (value,))
        for column, value in (
            ("d.status", where.status),
            ("d.error_class", where.error_class),
            ("d.error_type", where.error_type),
            ("d.fingerprint", where.fingerprint),
            ("j.queue", where.queue),
            ("j.type", where.type),
        )
        if value is not None
    ]
    if where.acknowledged is not None:
        conditions.append(Condition(f"d.acknowledged_by is {'not ' if where.acknowledged else ''}null", ()))
    if where.correlation_id is not None:
        conditions.append(_given_or_own_id("correlation_id", where.correlation_id))
    return _joined(conditions)


def page_audit(tx: Transaction, op: PageAudit) -> AuditPage:
    limit = _bounded(op.limit)
    conditions = [
        Condition(sql, (value,))
        for sql, value in (
            ("tenant = ?", op.scope.tenant),
            ("action = ?", op.action),
            ("target = ?", op.target),
            ("id < ?", op.before),
        )
        if value is not None
    ]
    where, params = _joined(conditions)
    sql = f"select {', '.join(COLUMNS)} from fairlane_audit where {where} order by id desc limit ?"  # noqa: S608
    rows = tx.db.execute(sql, (*params, limit + 1))
    records = tuple(map(audit_record, rows[:limit]))
    return AuditPage(records=records, next=records[-1].id if len(rows) > limit else None)


def _bounded(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE))


def _in_scope(scope: Scope) -> list[Condition]:
    return [] if scope.tenant is None else [Condition("j.tenant = ?", (scope.tenant,))]


def _joined(conditions: list[Condition]) -> tuple[str, tuple[object, ...]]:
    where = " and ".join(condition.sql for condition in conditions) or "true"
    return where, tuple(value for condition in conditions for value in condition.params)
