"""`app.jobs`: find jobs, explain why they wait, act on one or many. Each act is audited under `by`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fairlane.client.admin.bulk_acts import (
    MOST_ACTS,
    ManyActs,
    OnEach,
    act_on_each,
    filter_meant,
    not_reprocessed,
    preview,
    those_meant,
)
from fairlane.client.admin.claims import ClaimVerbs
from fairlane.client.admin.explanation import Explanation, explain
from fairlane.client.admin.filters import JobFilters, job_filter, matching_contents, page_size, seq_before
from fairlane.client.admin.short_ids import id_meant
from fairlane.client.context import in_scope, require_all_tenants
from fairlane.client.enqueue.options import job_id, seconds
from fairlane.client.enqueue.prepare import EnqueueHook
from fairlane.client.handle import Handle, JobLike, ScopedActOptions, audited_in_scope, job_of
from fairlane.client.rights import Right, require_right, right_of, visible
from fairlane.client.steps import Steps, ask, both, compute
from fairlane.core.ids import JobId, Seq
from fairlane.core.job import STATUSES, Job, Status
from fairlane.core.ops import (
    MAX_PAGE,
    Bury,
    Cancel,
    Check,
    DeadLetterAct,
    Fail,
    FreePlace,
    GetDeadLetter,
    GetJob,
    JobDetail,
    JobFilter,
    JobPage,
    PageJobs,
    Purge,
    Reprocess,
    Reset,
    Scope,
)
from fairlane.core.payload.redaction import without_secrets
from fairlane.errors import DeadLetterNotFound, InvalidOption, InvalidState, JobNotFound

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime

Hook = TypeVar("Hook", bound=EnqueueHook)

JobVerb = Literal["cancel", "retry", "fail", "bury", "reset"]
UNFINISHED: tuple[Status, ...] = ("pending", "processing", "failed")
ALLOWED: Mapping[JobVerb, tuple[Status, ...]] = {
    "cancel": UNFINISHED,
    "fail": UNFINISHED,
    "bury": UNFINISHED,
    "reset": ("processing",),
    "retry": ("dead",),
}
"""The states in which an act changes a job."""


SEARCHED_JOBS = 2_000
SEARCHED_BYTES = 20_000_000
"""How many jobs one search of contents reads at most, and how large they may be together."""


class JobSearch(Struct, frozen=True, kw_only=True):
    jobs: tuple[Job, ...]
    next: Seq | None
    """Pass as `before` to continue; None: there are no more jobs to look at."""
    looked_at: int
    """How many jobs were read."""


class JobAdmin(ClaimVerbs):
    """Methods for jobs. A refusal raises `JobNotFound` or `InvalidState`; `tenant=None` means all tenants."""

    __slots__ = ()

    def _get(self, job: JobLike, *, tenant: str | int | None = None) -> Steps[Job | None]:
        """The job, or None if it does not exist or was removed."""
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
        """One page of jobs, newest first; pass a page's `next` as `before` for the next one.

        Filters are keywords, or one `where`.
        """
        asked = job_filter(filters) if where is None else where
        op = PageJobs(scope=in_scope(tenant), where=asked, before=seq_before(before), limit=page_size(limit))
        return (yield from ask(op))

    def _id_of(self, text: str, *, tenant: str | int | None = None) -> Steps[JobId]:
        """The id of the job that a person means by its number, by a part of its id, or by the id itself.

        A number is found whatever its age, the last block of an id among the newest 1,000 jobs, any other part if
        there are no more than these. Raises `NotFound`, or `InvalidOption` with the candidates if a part fits several
        or may fit older ones. An id in full is not looked up.
        """
        scope = in_scope(tenant)

        def pages(before: Seq | None, limit: int) -> Steps[tuple[tuple[Job, ...], Seq | None]]:
            page = yield from ask(PageJobs(scope=scope, before=before, limit=limit))
            return page.jobs, page.next

        return JobId((yield from id_meant("job", text, pages)))

    def _search(
        self,
        *,
        args: Mapping[str, str] | None = None,
        error: str | None = None,
        where: JobFilter | None = None,
        tenant: str | int | None = None,
        before: int | None = None,
        limit: int = 50,
        **filters: Unpack[JobFilters],
    ) -> Steps[JobSearch]:
        """Jobs that match the filters of `list` and whose contents match, newest first.

        `args` are values by their path in the arguments, such as `{"user.id": "42"}`; `error` is a part of the error's
        type or text, whatever its case. No index helps here: one call looks at 2,000 jobs at most, or 20 MB of them,
        and says where to continue. Contents that the caller may not see match nothing.
        """
        asked = job_filter(filters) if where is None else where
        cursor, size, scope = seq_before(before), page_size(limit), in_scope(tenant)
        matches = matching_contents(dict(args or {}), error)
        jobs: list[Job] = []
        looked_at, left = 0, SEARCHED_BYTES
        while True:
            page = yield from ask(PageJobs(scope=scope, where=asked, before=cursor, limit=MAX_PAGE))
            found = visible(page.jobs)
            jobs += yield from compute(lambda found=found: [job for job in found if matches(job)])  # type: ignore[misc]
            looked_at += len(found)
            left -= sum(len(job.payload) for job in found)
            cursor = page.next
            if len(jobs) > size:
                return JobSearch(jobs=tuple(jobs[:size]), next=jobs[size - 1].seq, looked_at=looked_at)
            if cursor is None or len(jobs) == size or looked_at >= SEARCHED_JOBS or left <= 0:
                return JobSearch(jobs=tuple(jobs), next=cursor, looked_at=looked_at)

    def _why(
        self, job: JobLike, *, tenant: str | int | None = None, rules: Runtime | None = None
    ) -> Steps[Explanation]:
        """Explain why a job waits.

        It may be paused, held, at a limit, behind others, scheduled, unknown to every worker or postponed by a breaker.
        `rules` of another application replace the limits and tasks of this one.
        """
        known = rules or self._runtime
        return (yield from explain(job, tenant, known.limits.gathered(), known.tasks))

    def _cancel(self, job: JobLike, **about: Unpack[ScopedActOptions]) -> Steps[Job]:
        """Cancel a waiting job; ask a running one to stop."""
        target = job_id("job", job)
        return job_of((yield from ask(Cancel(id=target, **audited_in_scope(about)))), "cancel", target)

    def _fail(
        self,
        job: JobLike,
        reason: str,
        *,
        retry_delay: float | timedelta | None = None,
        **about: Unpack[ScopedActOptions],
    ) -> Steps[Job]:
        """Fail an unfinished job by hand, counting one attempt; without `retry_delay` it becomes dead."""
        target = job_id("job", job)
        op = Fail(
            id=target,
            reason=_reason(reason),
            retry_delay_s=None if retry_delay is None else seconds("retry_delay", retry_delay),
            **audited_in_scope(about),
        )
        return job_of((yield from ask(op)), "fail", target)

    def _bury(self, job: JobLike, reason: str, **about: Unpack[ScopedActOptions]) -> Steps[Job]:
        """Send an unfinished job to the dead letters."""
        target = job_id("job", job)
        op = Bury(id=target, reason=_reason(reason), **audited_in_scope(about))
        return job_of((yield from ask(op)), "bury", target)

    def _reset(self, job: JobLike, **about: Unpack[ScopedActOptions]) -> Steps[Job]:
        """Take a running job from its worker: it becomes ready at once and no attempt is counted.

        Later writes of the old attempt are ignored.
        """
        target = job_id("job", job)
        return job_of((yield from ask(Reset(id=target, **audited_in_scope(about)))), "reset", target)

    def _free_place(self, job: JobLike, **about: Unpack[ScopedActOptions]) -> Steps[Job]:
        """Give up the place that a job has at its key, for one that hangs: the next one is let in beside it."""
        target = job_id("job", job)
        act = yield from ask(FreePlace(id=target, **audited_in_scope(about)))
        if act.refused == "not_allowed":
            raise InvalidState("free the place of", f"job {target}", "without one")
        return job_of(act, "free the place of", target)

    def _reset_many(
        self,
        *,
        running_longer_than: float | timedelta,
        dry_run: bool = False,
        on_each: OnEach | None = None,
        **about: Unpack[ScopedActOptions],
    ) -> Steps[ManyActs[Job]]:
        """Reset every job that has run for longer than this by the store's clock; a dry run only counts them.

        A job that ends meanwhile is refused and stays as it is.
        """
        span_s = seconds("running_longer_than", running_longer_than)
        began_at = (yield from ask(Check())).now - timedelta(seconds=span_s)
        where = JobFilter(statuses=("processing",), started_before=began_at)
        acts = yield from self._act_on_many("reset", where=where, dry_run=dry_run, on_each=on_each, **about)
        while acts.next is not None:
            more = yield from self._act_on_many(
                "reset", where=where, dry_run=dry_run, before=acts.next, on_each=on_each, **about
            )
            acts = ManyActs(
                matched=acts.matched + more.matched,
                done=(*acts.done, *more.done),
                refused=(*acts.refused, *more.refused),
                next=more.next,
            )
        return acts

    def _retry(self, job: JobLike, **about: Unpack[ScopedActOptions]) -> Steps[Job]:
        """Run a dead job again, as a new job.

        A repeated call returns that job unless it is dead, cancelled or removed.
        """
        audit = audited_in_scope(about)
        found = yield from self._get(job, tenant=about.get("tenant"))
        if found is None:
            raise JobNotFound(job_id("job", job))
        if found.status != "dead":
            raise InvalidState("retry", f"job {found.id}", found.status)
        op = Reprocess(id=found.seq, new_job_id=self._runtime.new_job_id(), **audit)
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
        down_to: int | None = None,
        on_each: OnEach | None = None,
        all: bool = False,
        **about: Unpack[ScopedActOptions],
    ) -> Steps[ManyActs[Job]]:
        """Apply one act to many jobs, given by id or by filter, at most `limit` per call; to all there are if `all`.

        A filter selects those whose state the act changes. A refusal does not stop the others. `fail` and `bury` take a
        `reason`, `fail` a `retry_delay`. A dry run only counts, also what the act would leave as it is; its `next` as
        `down_to` keeps a call to the rows that it counted. `on_each` is called after each.
        """
        if verb == "retry":
            require_right(right_of(self.retry))
        act = self._act_on_one(verb, reason, retry_delay, about)
        scope = in_scope(about.get("tenant"))
        where = filter_meant(jobs, where, JobFilter(), about.get("tenant"), all)
        changed, unchanged = by_state(where or JobFilter(), verb)
        seen: dict[JobId, Job] = {}

        def page(cursor: Seq | None, size: int) -> Steps[tuple[list[tuple[Seq, JobId]], Seq | None]]:
            if changed is None:
                return [], None
            found = yield from ask(PageJobs(scope=scope, where=changed, before=cursor, limit=size))
            seen.update((job.id, job) for job in found.jobs)
            return [(job.seq, job.id) for job in found.jobs], found.next

        given = None if jobs is None else [job_id("job", job) for job in jobs]
        ids, following = yield from those_meant(given, where, page, limit, before, down_to)
        if dry_run:
            matched, left = yield from preview(ids, lambda one: _state_kept(verb, one, seen.get(one), scope))
            if where is not None and unchanged is not None and before is None:
                left = {**(yield from _count_states(unchanged, scope)), **left}
            return ManyActs(matched=matched, done=(), refused=(), next=following, left=left)
        done, refused = yield from act_on_each(ids, lambda _, job: act(job), on_each)
        return ManyActs(matched=len(ids), done=done, refused=refused, next=following)

    def _act_on_one(
        self, verb: JobVerb, reason: str | None, retry_delay: float | timedelta | None, about: ScopedActOptions
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
        """Remove all jobs of all tenants and return their number. For tests: development profile only."""
        require_all_tenants("purge")
        if self._runtime.settings.profile != "development":
            where = f'in the profile "{self._runtime.settings.profile}"; set profile = "development" for tests'
            raise InvalidState("purge", "the store", where)
        return (yield from ask(Purge())).jobs

    get, aget = both(_get, Right.READ)
    detail, adetail = both(_detail, Right.READ)
    list, alist = both(_list, Right.READ)
    id_of, aid_of = both(_id_of, Right.READ)
    search, asearch = both(_search, Right.CONTENTS)
    why, awhy = both(_why, Right.READ)
    cancel, acancel = both(_cancel, Right.ACT)
    fail, afail = both(_fail, Right.ACT)
    bury, abury = both(_bury, Right.ACT)
    reset, areset = both(_reset, Right.ACT)
    free_place, afree_place = both(_free_place, Right.ACT)
    reset_many, areset_many = both(_reset_many, Right.ACT)
    retry, aretry = both(_retry, Right.MANAGE)
    act_on_many, aact_on_many = both(_act_on_many, Right.ACT)
    purge, apurge = both(_purge, Right.NOBODY)

    def handle(self, job: JobLike, *, tenant: str | int | None = None) -> Handle[Any]:
        """A handle on a job by its id; its result is plain JSON values."""
        return Handle(job_id("job", job), self._runtime, in_scope(tenant), read_result=msgspec.json.decode)

    def on_enqueue(self, hook: Hook) -> Hook:
        """Register a hook that receives each job before it is enqueued; it may change priority, delay and headers."""
        self._runtime.preparer.hooks.append(hook)
        return hook


def by_state(where: JobFilter, verb: JobVerb) -> tuple[JobFilter | None, JobFilter | None]:
    """Of all that match, those whose state the act changes, and the others; None: there are none."""
    asked = where.statuses or STATUSES
    changed = tuple(status for status in asked if status in ALLOWED[verb])
    unchanged = tuple(status for status in asked if status not in ALLOWED[verb])
    return (
        replace(where, statuses=changed) if changed else None,
        replace(where, statuses=unchanged) if unchanged else None,
    )


def _state_kept(verb: JobVerb, id: JobId, job: Job | None, scope: Scope) -> Steps[str | None]:
    """The state in which the act would leave this job as it is; None: it would change it."""
    if job is None:
        found = yield from ask(GetJob(scope=scope, id=id))
        if found is None:
            return "not found"
        job = found.job
    if verb == "reset" and job.status == "pending" and job.worker is not None:
        return None  # Claimed, and not begun.
    if job.status not in ALLOWED[verb]:
        return job.status
    if verb == "retry":
        letter = yield from ask(GetDeadLetter(scope=scope, id=job.seq))
        return None if letter is None else (yield from not_reprocessed(letter.dead_letter, scope))
    return "asked to stop" if verb == "cancel" and job.cancel_requested else None


def _count_states(where: JobFilter, scope: Scope) -> Steps[dict[str, int]]:
    left: Counter[str] = Counter()
    before: Seq | None = None
    while left.total() < MOST_ACTS:
        page = yield from ask(PageJobs(scope=scope, where=where, before=before, limit=MAX_PAGE))
        left.update(job.status for job in page.jobs)
        before = page.next
        if before is None:
            break
    return dict(left)


def reprocessed(act: DeadLetterAct, id: Seq) -> Job:
    """The job created from a dead letter; raises if the letter does not exist or is closed."""
    if act.dead_letter is None:
        raise DeadLetterNotFound(id)
    if act.refused is not None:
        raise InvalidState("reprocess", f"dead letter {id}", act.dead_letter.status)
    assert act.new_job is not None
    return act.new_job


def _reason(reason: object) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidOption("reason", reason, "a few words for the people who will read it")
    return without_secrets(reason)
