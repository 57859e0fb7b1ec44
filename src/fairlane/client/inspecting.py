"""What an application can ask: jobs, dead letters, counts, health. Reading changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, get_args
from uuid import UUID

from fairlane.client.acting import JobLike
from fairlane.client.enqueue.options import job_id, row_id
from fairlane.client.paging import page_size
from fairlane.client.steps import Ask, both
from fairlane.client.tenant_scope import in_scope
from fairlane.core.ids import Seq
from fairlane.core.job import STATUSES, DeadLetterStatus, ErrorClass, Job, Status
from fairlane.core.names import check_words
from fairlane.core.ops import (
    AuditPage,
    Check,
    DeadLetterDetail,
    DeadLetterFilter,
    DeadLetterPage,
    GetDeadLetter,
    GetJob,
    GetStats,
    Health,
    JobDetail,
    JobFilter,
    JobPage,
    ListWorkers,
    PageAudit,
    PageDeadLetters,
    PageJobs,
    Stats,
    Workers,
)
from fairlane.errors import InvalidOption, nearest

if TYPE_CHECKING:
    from fairlane.client.store_access import StoreAccess


class JobFilters(TypedDict, total=False):
    status: Status | tuple[Status, ...]
    queue: str
    type: str
    category: str
    correlation_id: str | UUID
    parent: JobLike
    created_by: str
    idempotency_key: str
    enqueued_from: datetime
    enqueued_before: datetime


class DeadLetterFilters(TypedDict, total=False):
    status: DeadLetterStatus
    acknowledged: bool
    queue: str
    type: str
    error_class: ErrorClass
    error_type: str
    fingerprint: str
    correlation_id: str | UUID


_TEXTS = {"queue", "type", "category", "correlation_id", "created_by", "idempotency_key", "error_type", "fingerprint"}
"""Filters that any text may be given for."""


def _get(job: JobLike, *, tenant: str | int | None = None) -> Ask[JobDetail | None, Job | None]:
    """The job, or None where there is none (any more)."""
    op = GetJob(scope=in_scope(tenant), id=job_id("job", job))
    return Ask(op, lambda detail: None if detail is None else detail.job)


def _detail(job: JobLike, *, tenant: str | int | None = None) -> Ask[JobDetail | None, JobDetail | None]:
    """The job with every attempt so far."""
    return Ask(GetJob(scope=in_scope(tenant), id=job_id("job", job)), lambda detail: detail)


def _jobs(
    *,
    tenant: str | int | None = None,
    before: int | None = None,
    limit: int = 50,
    **filters: Unpack[JobFilters],
) -> Ask[JobPage, JobPage]:
    """One page of jobs, newest first; give a page's `next` as `before` to go on."""
    op = PageJobs(scope=in_scope(tenant), where=_job_filter(filters), before=_seq(before), limit=page_size(limit))
    return Ask(op, lambda page: page)


def _dead_letters(
    *,
    tenant: str | int | None = None,
    before: int | None = None,
    limit: int = 50,
    **filters: Unpack[DeadLetterFilters],
) -> Ask[DeadLetterPage, DeadLetterPage]:
    """One page of dead letters, newest first, and how many match."""
    where = _dead_letter_filter(filters)
    op = PageDeadLetters(scope=in_scope(tenant), where=where, before=_seq(before), limit=page_size(limit))
    return Ask(op, lambda page: page)


def _dead_letter(id: int, *, tenant: str | int | None = None) -> Ask[DeadLetterDetail | None, DeadLetterDetail | None]:
    """A dead letter with all its attempts, or None."""
    return Ask(GetDeadLetter(scope=in_scope(tenant), id=row_id("id", id)), lambda detail: detail)


def _stats(*, tenant: str | int | None = None) -> Ask[Stats, Stats]:
    """Counts by queue and status, with the oldest due time of each queue."""
    return Ask(GetStats(scope=in_scope(tenant)), lambda stats: stats)


def _audit(
    *,
    tenant: str | int | None = None,
    action: str | None = None,
    target: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> Ask[AuditPage, AuditPage]:
    """One page of what people did, newest first."""
    for name, words in (("action", action), ("target", target)):
        if words is not None:
            check_words(name, words)
    op = PageAudit(scope=in_scope(tenant), action=action, target=target, before=_seq(before), limit=page_size(limit))
    return Ask(op, lambda page: page)


def _workers() -> Ask[Workers, Workers]:
    """Every registered worker: what it serves, how many jobs it holds, and what it says of itself."""
    return Ask(ListWorkers(), lambda workers: workers)


def _check() -> Ask[Health, Health]:
    """Reach the store and read its own state."""
    return Ask(Check(), lambda health: health)


class Inspecting:
    """The questions of `Fairlane`. `tenant=None` looks at all tenants."""

    if TYPE_CHECKING:

        @property
        def access(self) -> StoreAccess: ...

    get, aget = both(_get)
    detail, adetail = both(_detail)
    jobs, ajobs = both(_jobs)
    dead_letters, adead_letters = both(_dead_letters)
    dead_letter, adead_letter = both(_dead_letter)
    stats, astats = both(_stats)
    audit, aaudit = both(_audit)
    workers, aworkers = both(_workers)
    check, acheck = both(_check)


def _job_filter(given: Mapping[str, Any]) -> JobFilter:
    fields = _known(given, JobFilters.__annotations__)
    if "status" in fields:
        statuses = fields.pop("status")
        fields["statuses"] = tuple(statuses) if isinstance(statuses, (tuple, list, set, frozenset)) else (statuses,)
        for status in fields["statuses"]:
            _one_of("status", status, STATUSES)
    if "parent" in fields:
        fields["parent_id"] = job_id("parent", fields.pop("parent"))
    for name in ("enqueued_from", "enqueued_before"):
        if name in fields and (not isinstance(fields[name], datetime) or fields[name].utcoffset() is None):
            raise InvalidOption(name, fields[name], "a datetime with a time zone")
    return JobFilter(**fields)


def _dead_letter_filter(given: Mapping[str, Any]) -> DeadLetterFilter:
    fields = _known(given, DeadLetterFilters.__annotations__)
    for name, kind in (("status", DeadLetterStatus), ("error_class", ErrorClass)):
        if name in fields:
            _one_of(name, fields[name], get_args(kind))
    if not isinstance(fields.get("acknowledged", True), bool):
        raise InvalidOption("acknowledged", fields["acknowledged"], "True or False")
    return DeadLetterFilter(**fields)


def _known(given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    for name in given:
        if name not in known:
            raise InvalidOption("filter", name, f"one of {', '.join(known)}.{nearest(name, known)}")
    fields = {name: value for name, value in given.items() if value is not None}
    if isinstance(fields.get("correlation_id"), UUID):
        fields["correlation_id"] = str(fields["correlation_id"])
    for name in _TEXTS & fields.keys():
        check_words(name, fields[name])
    return fields


def _one_of(option: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidOption(option, value, f"one of {', '.join(known)}.{nearest(value, known)}")


def _seq(before: int | None) -> Seq | None:
    return None if before is None else row_id("before", before)
