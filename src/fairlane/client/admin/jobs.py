"""`app.jobs`: find jobs, see why they wait, act on one or on many. Each act is audited under `by`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, Unpack
from uuid import UUID

import msgspec
from msgspec import Struct

from fairlane.client.admin.explanation import Explanation, explain
from fairlane.client.context import in_scope, require_all_tenants
from fairlane.client.enqueue.options import job_id, row_id, seconds
from fairlane.client.enqueue.prepare import EnqueueHook
from fairlane.client.handle import BY_DEFAULT, Handle, JobLike, job_of
from fairlane.client.steps import Steps, Verbs, ask, both
from fairlane.core.ids import JobId, Seq
from fairlane.core.job import STATUSES, Job, Status
from fairlane.core.names import check_key, check_words
from fairlane.core.ops import (
    MAX_PAGE,
    Bury,
    Cancel,
    DeadLetterAct,
    Fail,
    GetJob,
    JobDetail,
    JobFilter,
    JobPage,
    PageJobs,
    Purge,
    Reprocess,
    Reset,
)
from fairlane.core.payload.redaction import without_secrets
from fairlane.errors import DeadLetterNotFound, FairlaneError, InvalidOption, InvalidState, JobNotFound, nearest

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime

T = TypeVar("T")
Hook = TypeVar("Hook", bound=EnqueueHook)

MOST_ACTS = 1_000
"""Acts of one call on many."""

JobVerb = Literal["cancel", "retry", "fail", "bury", "reset"]


class JobFilters(TypedDict, total=False):
    """The fields of `JobFilter` as keywords: one status or several, and the parent as a handle, a job or an id."""

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


class RefusedAct(Struct, frozen=True, kw_only=True):
    """One of many that was not there, or not in a state the act starts from."""

    id: str
    code: str
    message: str


class ManyActs(Struct, Generic[T], frozen=True, kw_only=True):
    """What an act on many did."""

    matched: int
    """How many were meant by this call."""
    done: tuple[T, ...]
    refused: tuple[RefusedAct, ...]
    next: Seq | None = None
    """By filter: there are more; pass it as `before`."""
    total: int | None = None
    """Dry run by filter: how many match in all, where that is counted."""


class JobAdmin(Verbs):
    """The verbs about jobs. A refusal raises `JobNotFound` or `InvalidState`; `tenant=None` means all tenants."""

    __slots__ = ()

    def _get(self, job: JobLike, *, tenant: str | int | None = None) -> Steps[Job | None]:
        """The job, or None where there is none (any more)."""
        detail = yield from self._detail(job, tenant=tenant)
        return None if detail is None else detail.job

    def _detail(self, job: JobLike, *, tenant: str | int | None = None) -> Steps[JobDetail | None]:
        """The job with every attempt so far."""
        return (yield from ask(GetJob(scope=in_scope(tenant), id=job_id("job", job))))

    def _list(
        self,
        *,
        where: JobFilter | None = None,
        tenant: str | int | None = None,
        before: int | None = None,
        limit: int = 50,
        **filters: Unpack[JobFilters],
    ) -> Steps[JobPage]:
        """One page of jobs, newest first; give a page's `next` as `before` for the next one.

        Filters are keywords, or one `where`.
        """
        asked = job_filter(filters) if where is None else where
        op = PageJobs(scope=in_scope(tenant), where=asked, before=seq_before(before), limit=page_size(limit))
        return (yield from ask(op))

    def _why(
        self, job: JobLike, *, tenant: str | int | None = None, rules: Runtime | None = None
    ) -> Steps[Explanation]:
        """Why a job waits.

        It may be paused, held, at a limit, behind others, scheduled, unknown to every worker or put off by a breaker.
        `rules`: of another application, whose limits and tasks are to count instead of this one's.
        """
        known = rules or self._runtime
        return (yield from explain(job, tenant, known.limits.gathered(), known.tasks))

    def _cancel(
        self, job: JobLike, *, by: str = BY_DEFAULT, notes: str | None = None, tenant: str | int | None = None
    ) -> Steps[Job]:
        """End a waiting job as cancelled; ask a running one to stop."""
        target = job_id("job", job)
        op = Cancel(scope=in_scope(tenant), id=target, by=check_key("by", by), notes=notes)
        return job_of((yield from ask(op)), "cancel", target)

    def _fail(
        self,
        job: JobLike,
        reason: str,
        *,
        retry_delay: float | timedelta | None = None,
        by: str = BY_DEFAULT,
        notes: str | None = None,
        tenant: str | int | None = None,
    ) -> Steps[Job]:
        """Fail an unfinished job by hand, charging an attempt; without `retry_delay` it is dead."""
        target = job_id("job", job)
        op = Fail(
            scope=in_scope(tenant),
            id=target,
            by=check_key("by", by),
            notes=notes,
            reason=_reason(reason),
            retry_delay_s=None if retry_delay is None else seconds("retry_delay", retry_delay),
        )
        return job_of((yield from ask(op)), "fail", target)

    def _bury(
        self,
        job: JobLike,
        reason: str,
        *,
        by: str = BY_DEFAULT,
        notes: str | None = None,
        tenant: str | int | None = None,
    ) -> Steps[Job]:
        """Send an unfinished job to the dead letters."""
        target = job_id("job", job)
        op = Bury(scope=in_scope(tenant), id=target, by=check_key("by", by), notes=notes, reason=_reason(reason))
        return job_of((yield from ask(op)), "bury", target)

    def _reset(
        self, job: JobLike, *, by: str = BY_DEFAULT, notes: str | None = None, tenant: str | int | None = None
    ) -> Steps[Job]:
        """Take a running job from its worker, uncharged: it is ready again at once.

        What the old attempt still writes does not count.
        """
        target = job_id("job", job)
        op = Reset(scope=in_scope(tenant), id=target, by=check_key("by", by), notes=notes)
        return job_of((yield from ask(op)), "reset", target)

    def _retry(
        self, job: JobLike, *, by: str = BY_DEFAULT, notes: str | None = None, tenant: str | int | None = None
    ) -> Steps[Job]:
        """Run a dead job again, as a new one. Called again while that one lives, it returns the same job."""
        found = yield from self._get(job, tenant=tenant)
        if found is None:
            raise JobNotFound(job_id("job", job))
        if found.status != "dead":
            raise InvalidState("retry", f"job {found.id}", found.status)
        op = Reprocess(
            scope=in_scope(tenant),
            id=found.seq,
            by=check_key("by", by),
            notes=notes,
            new_job_id=self._runtime.new_job_id(),
        )
        return reprocessed((yield from ask(op)), found.seq)

    def _act_on_many(
        self,
        verb: JobVerb,
        jobs: Iterable[JobLike] | None = None,
        *,
        where: JobFilter | None = None,
        reason: str | None = None,
        retry_delay: float | timedelta | None = None,
        dry_run: bool = False,
        limit: int = MOST_ACTS,
        before: int | None = None,
        by: str = BY_DEFAULT,
        notes: str | None = None,
        tenant: str | int | None = None,
    ) -> Steps[ManyActs[Job]]:
        """Do the same to many jobs: to these, or to those that match, at most `limit` a call.

        One that is refused stops no other. `fail` and `bury` take a `reason`, `fail` a `retry_delay`. A dry run only
        counts.
        """
        act = self._act_on_one(verb, reason, retry_delay, {"by": by, "notes": notes, "tenant": tenant})
        scope = in_scope(tenant)

        def page(cursor: Seq | None, size: int) -> Steps[tuple[list[JobId], Seq | None]]:
            found = yield from ask(PageJobs(scope=scope, where=where or JobFilter(), before=cursor, limit=size))
            return [job.id for job in found.jobs], found.next

        given = None if jobs is None else [job_id("job", job) for job in jobs]
        ids, following = yield from those_meant(given, where, page, limit, before)
        if dry_run:
            return ManyActs(matched=len(ids), done=(), refused=(), next=following)
        done, refused = yield from act_on_each(ids, lambda _, job: act(job))
        return ManyActs(matched=len(ids), done=done, refused=refused, next=following)

    def _act_on_one(
        self, verb: JobVerb, reason: str | None, retry_delay: float | timedelta | None, about: dict[str, Any]
    ) -> Callable[[JobId], Steps[Job]]:
        match verb:
            case "cancel":
                return lambda job: self._cancel(job, **about)
            case "retry":
                return lambda job: self._retry(job, **about)
            case "fail":
                why = _reason(reason)
                return lambda job: self._fail(job, why, retry_delay=retry_delay, **about)
            case "bury":
                why = _reason(reason)
                return lambda job: self._bury(job, why, **about)
            case "reset":
                return lambda job: self._reset(job, **about)
        raise InvalidOption("act", verb, "one of cancel, retry, fail, bury, reset")

    def _purge(self) -> Steps[int]:
        """Remove every job there is, of all tenants; how many. For tests: refused in the production profile."""
        require_all_tenants("purge")
        if self._runtime.settings.profile != "development":
            raise InvalidState("purge", "the store", 'in the production profile; set profile = "development" for tests')
        return (yield from ask(Purge())).jobs

    get, aget = both(_get)
    detail, adetail = both(_detail)
    list, alist = both(_list)
    why, awhy = both(_why)
    cancel, acancel = both(_cancel)
    fail, afail = both(_fail)
    bury, abury = both(_bury)
    reset, areset = both(_reset)
    retry, aretry = both(_retry)
    act_on_many, aact_on_many = both(_act_on_many)
    purge, apurge = both(_purge)

    def handle(self, job: JobLike, *, tenant: str | int | None = None) -> Handle[Any]:
        """A handle on a job by its id; its result is plain JSON values."""
        return Handle(job_id("job", job), self._runtime, in_scope(tenant), read_result=msgspec.json.decode)

    def on_enqueue(self, hook: Hook) -> Hook:
        """Register a hook that sees each job before it is enqueued and may change its priority and delay."""
        self._runtime.preparer.hooks.append(hook)
        return hook


def job_filter(given: Mapping[str, Any]) -> JobFilter:
    """Filters by name, checked: what `app.jobs.list`, the API and the command line take."""
    fields = known_filters(given, JobFilters.__annotations__)
    if "status" in fields:
        statuses = fields.pop("status")
        several = tuple(statuses) if isinstance(statuses, (tuple, list, set, frozenset)) else (statuses,)
        for status in several:
            require_one_of("status", status, STATUSES)
        fields["statuses"] = tuple(dict.fromkeys(several))
    if "parent" in fields:
        fields["parent_id"] = job_id("parent", fields.pop("parent"))
    for name in ("enqueued_from", "enqueued_before"):
        if name in fields and (not isinstance(fields[name], datetime) or fields[name].utcoffset() is None):
            raise InvalidOption(name, fields[name], "a datetime with a time zone")
    return JobFilter(**fields)


def filter_words(words: Iterable[str], known: tuple[str, ...]) -> dict[str, Any]:
    """Filters written as words: `status:failed,dead type:mail.send correlation_id:"order 7"`.

    Several words must all match, several values of `status` match any. Refuses a name that is not `known`.
    """
    found: dict[str, Any] = {}
    for word in _split(words):
        name, colon, value = word.partition(":")
        name = name.replace("-", "_").lower()
        if not colon or not value:
            raise InvalidOption("filter", word, f"name:value, with one of {', '.join(known)}")
        if name not in known:
            raise InvalidOption("filter", word, f"one of {', '.join(known)} before the colon.{nearest(name, known)}")
        if name == "status":
            found["status"] = (*found.get("status", ()), *value.split(","))
        elif name in found:
            raise InvalidOption("filter", word, f"{name} once only; {name}:{found[name]} was given already")
        else:
            found[name] = value
    return found


def known_filters(given: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """The given filters without those that are None; refuses unknown names and what is no text."""
    texts = {
        "queue",
        "type",
        "category",
        "correlation_id",
        "created_by",
        "idempotency_key",
        "error_type",
        "fingerprint",
    }
    for name in given:
        if name not in known:
            raise InvalidOption("filter", name, f"one of {', '.join(known)}.{nearest(name, known)}")
    fields = {name: value for name, value in given.items() if value is not None}
    if isinstance(fields.get("correlation_id"), UUID):
        fields["correlation_id"] = str(fields["correlation_id"])
    for name in texts & fields.keys():
        check_words(name, fields[name])
    return fields


def require_one_of(option: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidOption(option, value, f"one of {', '.join(known)}.{nearest(value, known)}")


def seq_before(before: int | None) -> Seq | None:
    return None if before is None else row_id("before", before)


def page_size(limit: object) -> int:
    return whole_number("limit", limit, MAX_PAGE)


def whole_number(option: str, value: object, highest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= highest:
        raise InvalidOption(option, value, f"a whole number from 1 to {highest}")
    return value


I = TypeVar("I")  # noqa: E741 - an id


def those_meant(
    given: Iterable[I] | None,
    where: object,
    page: Callable[[Seq | None, int], Steps[tuple[list[I], Seq | None]]],
    limit: int,
    before: int | None,
) -> Steps[tuple[list[I], Seq | None]]:
    """The ids of an act on many: those given, each once, or the first `limit` that match and where the rest begins."""
    if (given is None) == (where is None):
        raise InvalidOption("ids, where", None, "exactly one of them")
    size = whole_number("limit", limit, MOST_ACTS)
    if given is not None:
        ids = list(dict.fromkeys(given))
        if len(ids) > size:
            raise InvalidOption("ids", len(ids), f"at most {size} in one call")
        return ids, None
    found: list[I] = []
    cursor = seq_before(before)
    while len(found) < size:
        some, cursor = yield from page(cursor, min(size - len(found), MAX_PAGE))
        found += some
        if cursor is None:
            break
    return found, cursor


def act_on_each(
    ids: Iterable[I], act: Callable[[int, I], Steps[T]]
) -> Steps[tuple[tuple[T, ...], tuple[RefusedAct, ...]]]:
    """Do it to each in turn; one that is refused does not keep the others from it."""
    done: list[T] = []
    refused: list[RefusedAct] = []
    for index, target in enumerate(ids):
        try:
            done.append((yield from act(index, target)))
        except (JobNotFound, DeadLetterNotFound, InvalidState) as error:
            refused.append(_refused(target, error))
    return tuple(done), tuple(refused)


def reprocessed(act: DeadLetterAct, id: Seq) -> Job:
    """The job made of a dead letter; raises where there is none, or where it is closed."""
    if act.dead_letter is None:
        raise DeadLetterNotFound(id)
    if act.refused is not None:
        raise InvalidState("reprocess", f"dead letter {id}", act.dead_letter.status)
    assert act.new_job is not None
    return act.new_job


def _refused(id: object, error: FairlaneError) -> RefusedAct:
    return RefusedAct(id=str(id), code=error.code, message=str(error))


def _reason(reason: object) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidOption("reason", reason, "a few words for the people who will read it")
    return without_secrets(reason)


def _split(words: Iterable[str]) -> list[str]:
    try:
        return [part for word in words for part in shlex.split(word)]
    except ValueError as error:
        raise InvalidOption("filter", " ".join(words), f"balanced quotes ({error})") from None
