"""Jobs claimed by hand: for code that is no registered task, under leases like a worker's.

    claim ──▶ ClaimedJob ── renew … ──▶ complete | fail | release
                  └── not renewed in time: the job runs again, and whatever comes later is refused

Each claim is a worker of its own that holds one job. Its id is the claim's token, which nothing else ever has: what
comes late changes nothing, whoever has the job by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec import Raw
from msgspec.structs import replace

from fairlane.client.admin.tasks import TaskByName
from fairlane.client.context import LeasedJob, require_all_tenants
from fairlane.client.enqueue.options import seconds
from fairlane.client.rights import Right
from fairlane.client.steps import Steps, Verbs, ask, both
from fairlane.core.attempt_sums import AttemptStatistics
from fairlane.core.error_classes import Classifier
from fairlane.core.ids import WorkerId
from fairlane.core.job import DEFAULT_QUEUE, ERROR_CLASSES, ErrorClass, Lease
from fairlane.core.limits import Limit
from fairlane.core.names import check_key, check_queue_name, check_task_name
from fairlane.core.ops import (
    ALL_TENANTS,
    MAX_PAGE,
    AddEvents,
    AddStats,
    ListWorkers,
    PageTenants,
    Renew,
    Retire,
    Start,
    Turn,
    TurnResult,
    Want,
)
from fairlane.core.ops.events import job_event, loss_events
from fairlane.core.outcome import Completed, Died, Failure, Outcome, Released, Retried
from fairlane.core.payload.storable import UnstorableResult, described_failure, encode_result, failure, safe_str
from fairlane.core.retry import asked_delay_s, may_retry, retried
from fairlane.core.workflows import WORKFLOW_HEADER
from fairlane.errors import ClaimLost, InvalidOption, StoreError, UnreadablePayload

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime

LEASE_S = 300.0
SHORTEST_LEASE_S, LONGEST_LEASE_S = 1.0, 7 * 86_400.0
LOOK = 10_000
"""Jobs of other types that a claim passes over in one tenant's line."""

BY_HAND = "by hand"
"""The lane of such claims, and what their workers serve: no queue and no task is called so."""
BY_HAND_ERROR = "FailedByHand"
SETTLING = 2
"""The number of Turns after the claim, which has 1."""


class ClaimedJob(LeasedJob, Verbs):
    """A job claimed by hand, until its lease ends. `ClaimLost` is raised once it does not belong to this claim."""

    __slots__ = ("_began_s", "_worker", "lease", "lease_until", "token")

    def __init__(self, runtime: Runtime, token: WorkerId, worker: str, lease: Lease, at: datetime, until: datetime):
        super().__init__(runtime)
        self.token = token
        """Names this claim where there is no object: `app.jobs.claimed(token)`, the HTTP API."""
        self.lease = lease
        self.lease_until = until
        """When the job runs again unless the lease is renewed, by the store's clock."""
        self._worker = worker
        self._began_s = runtime.clock.monotonic() - (at - lease.leased_at).total_seconds()

    def _complete(self, result: object = None) -> Steps[None]:
        """The job is done; its result is kept, as plain JSON values."""
        try:
            text = None if result is None else encode_result(result)
        except UnstorableResult as error:
            raise InvalidOption("result", result, f"JSON values: {'; '.join(error.problems)}") from None
        if text is None and WORKFLOW_HEADER in self.lease.headers:
            text = Raw(b"null")  # without one, nodes behind it could take its result for an expired one
        yield from self._settle(
            "complete",
            Completed(
                seq=self.lease.seq, attempt=self.attempt, claim_no=self.lease.claim_no, ran_s=self._ran_s(), result=text
            ),
        )

    def _fail(
        self,
        error: str | BaseException,
        *,
        error_class: ErrorClass | None = None,
        retry: bool = True,
        retry_after: float | timedelta | None = None,
        error_type: str | None = None,
    ) -> Steps[float | None]:
        """The attempt failed. Returns after how many seconds the job runs again; None: it is a dead letter.

        The rules are a worker's: `non_retryable`, `retry=False` and the last attempt end it; else it waits for
        `retry_after`, or by the retry policy of its enqueue call, task, queue, error class or application. Without an
        `error_class` an exception is classified as in a worker, and text is `retryable`.
        """
        outcome = self._failed(error, error_class, retry=retry, retry_after=retry_after, error_type=error_type)
        yield from self._settle("fail", outcome)
        return None if isinstance(outcome, Died) else outcome.delay_s

    def _release(self) -> Steps[None]:
        """Give the job back: it is ready again, and no attempt is counted."""
        yield from self._settle(
            "release",
            Released(seq=self.lease.seq, attempt=self.attempt, claim_no=self.lease.claim_no, ran_s=self._ran_s()),
        )

    def _renew(self, lease: float | timedelta = LEASE_S) -> Steps[datetime]:
        """Keep the job for this long from now. Returns when the lease ends then."""
        lease_s = lease_seconds(lease)
        yield from _hold(self.token, self.lease, lease_s)
        renewed = yield from ask(_registration(self.token, self._worker, lease_s))
        if renewed.fresh:  # taken back between the two
            yield from ask(Retire(worker=self.token))
            raise ClaimLost("renew", f"job {self.id}")
        self.lease_until = renewed.expires_at
        return self.lease_until

    complete, acomplete = both(_complete, Right.ACT)
    fail, afail = both(_fail, Right.ACT)
    release, arelease = both(_release, Right.ACT)
    renew, arenew = both(_renew, Right.ACT)

    def __repr__(self) -> str:
        return f"<claimed job {self.id} {self.type} of {self.tenant}, attempt {self.attempt}>"

    def _ran_s(self) -> float:
        return max(self._runtime.clock.monotonic() - self._began_s, 0.0)

    def _failed(
        self,
        error: str | BaseException,
        error_class: ErrorClass | None,
        *,
        retry: bool,
        retry_after: float | timedelta | None,
        error_type: str | None,
    ) -> Retried | Died:
        runtime, lease, ran_s = self._runtime, self.lease, self._ran_s()
        task = runtime.tasks.get(lease.type)
        definition = TaskByName(lease.type, runtime.preparer) if task is None else task.definition
        classifier = runtime.classifier if task is None else definition.classifier
        policy, fraction = runtime.preparer.rules(definition, lease.queue).policy, runtime.chance.fraction()
        what = _failure(error, error_class, error_type, lease, classifier)
        asked_s: float | None = None
        if retry_after is not None:
            asked_s = policy.after(seconds("retry_after", retry_after), fraction)
        elif isinstance(error, BaseException):
            asked_s = asked_delay_s(error, policy, runtime.clock.now(), fraction)
        if not retry or not may_retry(lease, what.error_class, policy):
            return Died(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, ran_s=ran_s, failure=what)
        return retried(lease, what, policy, asked_s=asked_s, fraction=fraction, ran_s=ran_s)

    def _settle(self, verb: str, outcome: Outcome) -> Steps[None]:
        ran_s, limits = self._ran_s(), code_limits(self._runtime)
        answer = yield from ask(Turn(worker=self.token, claim_no=SETTLING, outcomes=(outcome,), limits=limits))
        if answer.refused:
            raise ClaimLost(verb, f"job {self.id}")
        with suppress(StoreError):  # the outcome stands, and the row of this claim lapses
            yield from self._tell(answer, outcome, ran_s)

    def _tell(self, answer: TurnResult, outcome: Outcome, ran_s: float) -> Steps[None]:
        """What a worker tells of an attempt: figures and events. Then the claim's own row goes."""
        sums, event = AttemptStatistics(), job_event(self.lease, outcome, ran_s)
        sums.add(self.lease, outcome, ran_s)
        if rows := sums.take(answer.now.replace(second=0, microsecond=0)):
            yield from ask(AddStats(worker=self.token, batch=1, rows=tuple(rows)))
        if event is not None and (event.kind != "job_completed" or (yield from ask(AddEvents())).watched):
            yield from ask(AddEvents(events=(event,)))
        yield from tell_losses(answer)
        yield from ask(Retire(worker=self.token))


def _failure(
    error: object,
    error_class: ErrorClass | None,
    error_type: str | None,
    lease: Lease,
    classifier: Classifier,
) -> Failure:
    if error_class is not None and error_class not in ERROR_CLASSES:
        raise InvalidOption("error_class", error_class, f"one of {', '.join(ERROR_CLASSES)}")
    if error_type is not None:
        error_type = check_key("error_type", error_type)
    if isinstance(error, BaseException):
        found = failure(error, error_class or classifier.classify(error), lease.type)
        return found if error_type is None else replace(found, error_type=error_type)
    if not isinstance(error, str) or not error.strip():
        raise InvalidOption("error", error, "an exception, or a few words for the people who will read it")
    return described_failure(error_type or BY_HAND_ERROR, safe_str(error), error_class or "retryable", lease.type)


class ClaimVerbs(Verbs):
    """Methods of `app.jobs` for code that is no registered task."""

    __slots__ = ()

    def _claim(
        self,
        queues: str | Sequence[str] = DEFAULT_QUEUE,
        *,
        types: str | Sequence[str] | None = None,
        lease: float | timedelta = LEASE_S,
        worker: str = BY_HAND,
    ) -> Steps[ClaimedJob | None]:
        """Take the next ready job for code of your own; None: there is none now.

        It is yours until `complete`, `fail` or `release`, and at most for `lease`, which `renew` prolongs: then it runs
        again, and what you do later is refused. A claim that is not ended three times is a dead letter, `crashed`.
        Queues are tried in their order; limits and pauses hold as for workers, and tenants take turns. `worker` is a
        name for people. Without `types` any job of these queues is given: name those that your code knows, or use
        queues of your own.
        """
        require_all_tenants("claim")
        runtime, lease_s = self._runtime, lease_seconds(lease)
        names = tuple(check_queue_name(name) for name in _listed("queues", queues))
        wanted = None if types is None else tuple(check_task_name(name) for name in _listed("types", types))
        worker = check_key("worker", worker)
        while True:
            token = WorkerId(runtime.new_job_id())
            yield from ask(_registration(token, worker, lease_s))
            answer = yield from self._next(token, names, wanted)
            yield from tell_losses(answer)
            if not answer.leases:
                yield from ask(Retire(worker=token))
                return None
            [held] = answer.leases
            if held.unreadable is None:
                yield from _hold(token, held, lease_s)
                until = answer.now + timedelta(seconds=lease_s)
                return ClaimedJob(runtime, token, worker, held, answer.now, until)
            unreadable = failure(UnreadablePayload(held.type, (held.unreadable,)), "non_retryable", held.type)
            died = Died(seq=held.seq, attempt=held.attempt, claim_no=held.claim_no, failure=unreadable, charged=False)
            yield from ask(Turn(worker=token, claim_no=SETTLING, outcomes=(died,)))
            yield from ask(Retire(worker=token))

    def _next(self, token: WorkerId, queues: tuple[str, ...], types: tuple[str, ...] | None) -> Steps[TurnResult]:
        cursors = self._runtime.claim_cursors
        if queues not in cursors:  # anywhere: processes that claim once and end serve all tenants, too
            tenants = (yield from ask(PageTenants(scope=ALL_TENANTS, limit=MAX_PAGE))).tenants
            place = int(self._runtime.chance.fraction() * len(tenants))
            cursors[queues] = tenants[place].name if tenants else ""
        want = Want(lane=BY_HAND, queues=queues, limit=1, start=1, types=types, cursor=cursors[queues], look=LOOK)
        answer = yield from ask(Turn(worker=token, claim_no=1, wants=(want,), limits=code_limits(self._runtime)))
        cursors[queues] = answer.cursors.get(BY_HAND, cursors[queues])
        return answer

    def _claimed(self, token: UUID | str) -> Steps[ClaimedJob]:
        """A job that was claimed before, by the token of its claim. `ClaimLost` if it is not held any more."""
        try:
            worker = WorkerId(token if isinstance(token, UUID) else UUID(token))
        except (ValueError, AttributeError, TypeError):
            raise InvalidOption("token", token, "the token of a claim") from None
        require_all_tenants("claim")
        known = next((one for one in (yield from ask(ListWorkers())).workers if one.id == worker), None)
        # A repetition of the claim gives its lease again, and nothing new: it wants no type.
        again = Want(lane=BY_HAND, queues=(DEFAULT_QUEUE,), limit=1, types=())
        answer = yield from ask(Turn(worker=worker, claim_no=1, wants=(again,), promote_limit=0, reclaim_limit=0))
        if known is None or known.queues != (BY_HAND,) or not answer.leases:
            raise ClaimLost("continue", f"claim {worker}")
        [held] = answer.leases
        return ClaimedJob(self._runtime, worker, known.name, held, answer.now, known.expires_at)

    claim, aclaim = both(_claim, Right.ACT)
    claimed, aclaimed = both(_claimed, Right.ACT)


def lease_seconds(lease: float | timedelta) -> float:
    return seconds("lease", lease, at_least=SHORTEST_LEASE_S, at_most=LONGEST_LEASE_S)


def code_limits(runtime: Runtime) -> tuple[Limit, ...]:
    return tuple(limit for limit in runtime.limits.gathered() if limit.is_for_claims)


def tell_losses(answer: TurnResult) -> Steps[None]:
    if answer.reclaimed:
        yield from ask(AddEvents(events=loss_events(answer.reclaimed)))


def _registration(token: WorkerId, name: str, lease_s: float) -> Renew:
    return Renew(worker=token, lease_s=lease_s, name=name, queues=(BY_HAND,), types=(BY_HAND,))


def _hold(token: WorkerId, lease: Lease, lease_s: float) -> Steps[None]:
    """The lease lasts at least as long as the claim, and if that lapses, the job was alone in it."""
    start = Start(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, timeout_s=lease_s, alone=True)
    held = Turn(worker=token, claim_no=SETTLING, starts=(start,), promote_limit=0, reclaim_limit=0)
    if (yield from ask(held)).refused:
        raise ClaimLost("renew", f"job {lease.id}")


def _listed(option: str, names: str | Sequence[str]) -> Sequence[str]:
    listed = (names,) if isinstance(names, str) else tuple(names)
    if not listed:
        raise InvalidOption(option, names, "one name, or a list of at least one")
    return listed
