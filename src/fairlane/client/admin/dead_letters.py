"""`app.dead_letters`: list and group dead jobs, reprocess them, or close them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, Unpack, get_args

from msgspec import Raw, Struct
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
from fairlane.client.admin.filters import DeadLetterFilters, dead_letter_filter, page_size, seq_before
from fairlane.client.admin.jobs import reprocessed
from fairlane.client.context import in_scope
from fairlane.client.enqueue.options import row_id, seconds
from fairlane.client.handle import ScopedActOptions, audited_in_scope
from fairlane.client.rights import Right
from fairlane.client.steps import Steps, Verbs, ask, both, compute
from fairlane.core.ids import Seq
from fairlane.core.job import DEAD_LETTER_STATUSES, DeadLetter, DeadLetterStatus, Job
from fairlane.core.names import BUILT_IN_TASKS
from fairlane.core.ops import (
    COUNT_CAP,
    ROUGH_CAP,
    Acknowledge,
    DeadLetterAct,
    DeadLetterDetail,
    DeadLetterFilter,
    DeadLetterGroup,
    DeadLetterPage,
    Discard,
    GetDeadLetter,
    GetStats,
    GroupDeadLetters,
    PageDeadLetters,
    Reprocess,
    Resolve,
    Scope,
)
from fairlane.errors import DeadLetterNotFound, InvalidOption, InvalidState, UnknownTask

DeadLetterLike = DeadLetter | int
DeadLetterVerb = Literal["reprocess", "discard", "resolve", "acknowledge"]

PER_SECOND = 10.0
MOST_BEHIND = 10**9


class Reprocessed(Struct, frozen=True, kw_only=True):
    job: Job
    """The job that replaces the dead one."""
    repeated: bool
    """The job existed already: nothing was created."""


class DeadLetterAdmin(Verbs):
    """Methods for dead letters.

    A refusal raises `DeadLetterNotFound` or `InvalidState`; `tenant=None` means all tenants.
    """

    __slots__ = ()

    def _list(
        self,
        *,
        where: DeadLetterFilter | None = None,
        tenant: str | int | None = None,
        before: int | None = None,
        limit: int = 50,
        rough: bool = False,
        **filters: Unpack[DeadLetterFilters],
    ) -> Steps[DeadLetterPage]:
        """One page of dead letters, newest first, and how many match. Filters are keywords, or one `where`.

        Those that match are counted up to 100,000; with `rough` up to 10,000.
        """
        asked = dead_letter_filter(filters) if where is None else where
        op = PageDeadLetters(
            scope=in_scope(tenant),
            where=asked,
            before=seq_before(before),
            limit=page_size(limit),
            cap=ROUGH_CAP if rough else COUNT_CAP,
        )
        return (yield from ask(op))

    def _get(self, id: int, *, tenant: str | int | None = None) -> Steps[DeadLetterDetail | None]:
        """A dead letter with all its attempts, or None."""
        return (yield from ask(GetDeadLetter(scope=in_scope(tenant), id=row_id("id", id))))

    def _groups(
        self,
        *,
        where: DeadLetterFilter | None = None,
        tenant: str | int | None = None,
        limit: int = 50,
        **filters: Unpack[DeadLetterFilters],
    ) -> Steps[tuple[DeadLetterGroup, ...]]:
        """Groups with the same fingerprint, largest first; those pending review unless `status` is given."""
        asked = dead_letter_filter(filters) if where is None else where
        if asked.status is None:
            asked = replace(asked, status="pending_review")
        return (yield from ask(GroupDeadLetters(scope=in_scope(tenant), where=asked, limit=page_size(limit)))).groups

    def _counts(self, *, tenant: str | int | None = None, rough: bool = False) -> Steps[dict[DeadLetterStatus, int]]:
        """The number of dead letters by status, each counted up to 100,000; with `rough` up to 10,000."""
        cap = ROUGH_CAP if rough else COUNT_CAP
        op = GetStats(scope=in_scope(tenant), cap=cap, rough=rough, parts=("dead_letters",))
        found = (yield from ask(op)).dead_letters
        return {status: found.get(status, 0) for status in DEAD_LETTER_STATUSES}

    def _reprocess(
        self,
        dead_letter: DeadLetterLike,
        *,
        payload: Mapping[str, Any] | None = None,
        delay: float | timedelta | None = None,
        **about: Unpack[ScopedActOptions],
    ) -> Steps[Reprocessed]:
        """Create a new job from a dead one. A repeated call returns that job unless it is dead, cancelled or removed.

        An edited `payload` is validated as in an enqueue; the dead letter keeps its own.
        """
        target, audit = _dead_letter_id(dead_letter), audited_in_scope(about)
        op = Reprocess(
            id=target,
            new_job_id=self._runtime.new_job_id(),
            payload=None if payload is None else (yield from self._edited(target, payload, about.get("tenant"))),
            delay_s=None if delay is None else seconds("delay", delay),
            **audit,
        )
        act = yield from ask(op)
        return Reprocessed(job=reprocessed(act, target), repeated=act.repeated)

    def _discard(self, dead_letter: DeadLetterLike, **about: Unpack[ScopedActOptions]) -> Steps[DeadLetter]:
        """Close a dead letter as discarded: no retry is worthwhile."""
        target = _dead_letter_id(dead_letter)
        return _letter_of((yield from ask(Discard(id=target, **audited_in_scope(about)))), "discard", target)

    def _resolve(self, dead_letter: DeadLetterLike, **about: Unpack[ScopedActOptions]) -> Steps[DeadLetter]:
        """Close a dead letter as resolved."""
        target = _dead_letter_id(dead_letter)
        return _letter_of((yield from ask(Resolve(id=target, **audited_in_scope(about)))), "resolve", target)

    def _acknowledge(self, dead_letter: DeadLetterLike, **about: Unpack[ScopedActOptions]) -> Steps[DeadLetter]:
        """Record who is responsible for a dead letter; later calls do not replace the first name."""
        target = _dead_letter_id(dead_letter)
        return _letter_of((yield from ask(Acknowledge(id=target, **audited_in_scope(about)))), "acknowledge", target)

    def _act_on_many(
        self,
        verb: DeadLetterVerb,
        dead_letters: Iterable[DeadLetterLike] | None = None,
        *,
        where: DeadLetterFilter | None = None,
        per_second: float = PER_SECOND,
        dry_run: bool = False,
        limit: int = MOST_ACTS,
        before: int | None = None,
        down_to: int | None = None,
        behind: int = 0,
        on_each: OnEach | None = None,
        all: bool = False,
        **about: Unpack[ScopedActOptions],
    ) -> Steps[ManyActs[DeadLetter | Job]]:
        """Apply one act to many dead letters, given by id or by filter, at most `limit` per call; to all if `all`.

        A refusal does not stop the others. New jobs become due at the rate `per_second`; a call that continues
        others passes the sum of what they `matched` as `behind`, so that its jobs become due after theirs. A dry run
        only counts, also what the act would leave as it is; its `next` as `down_to` keeps a call to the rows that it
        counted. `on_each` is called after each.
        """
        if not 0.01 <= per_second <= 1000:
            raise InvalidOption("per_second", per_second, "a number from 0.01 to 1000")
        if not 0 <= behind <= MOST_BEHIND:
            raise InvalidOption("behind", behind, f"a number from 0 to {MOST_BEHIND}")
        act = self._act_on_one(verb, per_second, behind, about)
        scope = in_scope(about.get("tenant"))
        where = filter_meant(dead_letters, where, DeadLetterFilter(), about.get("tenant"), all)
        seen: dict[Seq, DeadLetter] = {}

        def page(cursor: Seq | None, size: int) -> Steps[tuple[list[tuple[Seq, Seq]], Seq | None]]:
            asked = where or DeadLetterFilter()
            found = yield from ask(PageDeadLetters(scope=scope, where=asked, before=cursor, limit=size, cap=0))
            seen.update((letter.id, letter) for letter in found.dead_letters)
            return [(letter.id, letter.id) for letter in found.dead_letters], found.next

        given = None if dead_letters is None else [_dead_letter_id(letter) for letter in dead_letters]
        ids, following = yield from those_meant(given, where, page, limit, before, down_to)
        if dry_run:
            matched, left = yield from preview(ids, lambda one: _state_kept(verb, one, seen.get(one), scope))
            total = None
            if where is not None:
                total = (yield from ask(PageDeadLetters(scope=scope, where=where, limit=1))).total - len(ids) + matched
            return ManyActs(matched=matched, done=(), refused=(), next=following, total=total, left=left)
        done, refused = yield from act_on_each(ids, act, on_each)
        return ManyActs(matched=len(ids), done=done, refused=refused, next=following)

    def _act_on_one(
        self, verb: DeadLetterVerb, per_second: float, behind: int, about: ScopedActOptions
    ) -> Callable[[int, Seq], Steps[DeadLetter | Job]]:
        match verb:
            case "reprocess":

                def reprocess(index: int, id: Seq) -> Steps[DeadLetter | Job]:
                    delay_s = (behind + index) / per_second
                    return (yield from self._reprocess(id, delay=delay_s or None, **about)).job

                return reprocess
            case "discard":
                return lambda _, letter: self._discard(letter, **about)
            case "resolve":
                return lambda _, letter: self._resolve(letter, **about)
            case "acknowledge":
                return lambda _, letter: self._acknowledge(letter, **about)
        raise InvalidOption("act", verb, f"one of {', '.join(get_args(DeadLetterVerb))}")

    list, alist = both(_list, Right.MANAGE)
    get, aget = both(_get, Right.MANAGE)
    groups, agroups = both(_groups, Right.MANAGE)
    counts, acounts = both(_counts, Right.READ)
    reprocess, areprocess = both(_reprocess, Right.MANAGE)
    discard, adiscard = both(_discard, Right.MANAGE)
    resolve, aresolve = both(_resolve, Right.MANAGE)
    acknowledge, aacknowledge = both(_acknowledge, Right.MANAGE)
    act_on_many, aact_on_many = both(_act_on_many, Right.MANAGE)

    def _edited(self, id: Seq, payload: Mapping[str, Any], tenant: str | int | None) -> Steps[Raw]:
        """A new payload, checked against the task as currently registered."""
        detail = yield from self._get(id, tenant=tenant)
        if detail is None:
            raise DeadLetterNotFound(id)
        job = detail.dead_letter.job
        if job.type in BUILT_IN_TASKS:
            state = f"of {job.type}, whose messages only Fairlane writes: reprocess it unedited"
            raise InvalidState("edit the payload of", f"dead letter {id}", state)
        if job.type not in self._runtime.tasks:
            raise UnknownTask(job.type, self._runtime.tasks)
        task = self._runtime.tasks[job.type].definition
        if task.version != job.payload_version:
            state = f"of payload version {job.payload_version}, its task is at {task.version}: reprocess it unedited"
            raise InvalidState("edit the payload of", f"dead letter {id}", state)
        preparer = self._runtime.preparer
        return (yield from compute(lambda: preparer.payload(task, task.signature.bind((), dict(payload)))))


def _state_kept(verb: DeadLetterVerb, id: Seq, letter: DeadLetter | None, scope: Scope) -> Steps[str | None]:
    """The state in which the act would leave a dead letter as it is; None: it would change it."""
    if letter is None:
        found = yield from ask(GetDeadLetter(scope=scope, id=id))
        if found is None:
            return "not found"
        letter = found.dead_letter
    match verb:
        case "reprocess":
            return (yield from not_reprocessed(letter, scope))
        case "acknowledge":
            return None if letter.acknowledged_by is None else "acknowledged"
        case _:
            return None if letter.status in ("pending_review", "retried") else letter.status


def _dead_letter_id(dead_letter: DeadLetterLike) -> Seq:
    found = dead_letter.id if isinstance(dead_letter, DeadLetter) else dead_letter
    return row_id("dead_letter", found, "a dead letter or its id, a whole number")


def _letter_of(act: DeadLetterAct, verb: str, id: Seq) -> DeadLetter:
    if act.dead_letter is None:
        raise DeadLetterNotFound(id)
    if act.refused is not None:
        raise InvalidState(verb, f"dead letter {id}", act.dead_letter.status)
    return act.dead_letter
