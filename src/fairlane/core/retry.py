"""Decides how an attempt ends, and when a failed job runs again: the one place where an exception becomes an outcome.

Snooze, Cancel, a requested cancel   as they say, uncharged
needs newer code, has no principal   put off, uncharged, until a worker can run it
an unreadable payload                died, uncharged
non_retryable, or the last attempt   died
otherwise                            retried after the first of these delays that is given: the missing data's own
                                     time, the other side's retry-after, the slow list if rate-limited, the
                                     policy of the enqueue call, the task, the queue, the error class, the application
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from fairlane.core.error_classes import Classifier, retry_after
from fairlane.core.job import DEFAULT_MAX_ATTEMPTS, ErrorClass, Lease
from fairlane.core.names import NamedFields
from fairlane.core.outcome import (
    Cancelled,
    Completed,
    Died,
    Failure,
    Outcome,
    Released,
    Retried,
    Snoozed,
    Suspension,
)
from fairlane.core.payload.json_scan import LIMITS, ScanLimits
from fairlane.core.payload.storable import UnstorableResult, described_failure, encode_result, failure, safe_str
from fairlane.errors import (
    AttemptCancelled,
    Cancel,
    InvalidOption,
    LeaseLost,
    MissingData,
    NeedsNewerCode,
    PutOff,
    Snooze,
    Suspended,
    UnreadablePayload,
)

MAX_ATTEMPTS = 32_767
LONGEST_DELAY_S = 10 * 365 * 86_400.0
"""Ten years: past this an instant may not fit a store's timestamps."""


class Retry(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, metaclass=NamedFields):
    """How often to try and how long to wait between.

    Either `delays`, an exact list whose last entry repeats, or `base_s` growing by `factor` up to `cap_s`, spread by
    `jitter` (0.2: ±20 %). `max_attempts` None leaves the number to the next policy in line.
    """

    max_attempts: int | None = None
    """Failed runs after which a job is dead."""
    delays: tuple[float, ...] | None = None
    """Exactly these, without jitter; the last one repeats."""
    base_s: float = 2.0
    """The delay after the first failure."""
    factor: float = 2.0
    """By how much each delay is longer than the one before."""
    cap_s: float = 300.0
    """The longest delay."""
    jitter: float = 0.2
    """How far a delay may be from its figure, as a share of it."""

    def __post_init__(self) -> None:
        if self.max_attempts is not None:
            _require_whole("max_attempts", self.max_attempts, 1, MAX_ATTEMPTS)
        if self.delays is not None:
            msgspec.structs.force_setattr(self, "delays", _require_delays(self.delays))
        _require_number("base_s", self.base_s, 0.0, LONGEST_DELAY_S)
        _require_number("factor", self.factor, 1.0, 1e6)
        _require_number("cap_s", self.cap_s, 0.0, LONGEST_DELAY_S)
        _require_number("jitter", self.jitter, 0.0, 1.0)

    @classmethod
    def doubling(cls, max_attempts: int | None = None) -> Retry:
        """A preset: 1, 2, 4 … 300 s, ±10 %."""
        return cls(max_attempts=max_attempts, base_s=1.0, jitter=0.1)

    def delay_s(self, failed: int, fraction: float) -> float:
        """Seconds to wait after the `failed`-th failure (from 1); `fraction` in [0, 1) picks the place in the spread.

        Never above the cap, and never shorter after a later failure.
        """
        if self.delays is not None:
            return self.delays[min(max(failed, 1), len(self.delays)) - 1]
        full = self._full_delay_s(max(failed, 1))
        # At the cap the spread shrinks to what lies below it. Cutting off instead would send half of
        # all long-failing jobs back in the same instant. (tests/unit/test_retry.py)
        low, high = full * (1.0 - self.jitter), min(full * (1.0 + self.jitter), self.cap_s)
        return min(low * (1.0 - fraction) + high * fraction, high)

    def _full_delay_s(self, failed: int) -> float:
        if self.base_s == 0.0:
            return 0.0
        try:
            return min(self.base_s * self.factor ** (failed - 1), self.cap_s)
        except OverflowError:
            return self.cap_s

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def parse(cls, raw: bytes | str | msgspec.Raw) -> Retry:
        """Read what `to_json` wrote."""
        try:
            return msgspec.json.decode(raw, type=cls)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise InvalidOption("retry", bytes(raw) if isinstance(raw, msgspec.Raw) else raw, str(error)) from None


def _require_number(option: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise InvalidOption(option, value, f"a number from {low:g} to {high:g}")


def _require_whole(option: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidOption(option, value, f"a whole number from {low} to {high}")


def _require_delays(delays: object) -> tuple[float, ...]:
    if not isinstance(delays, (tuple, list)) or not delays:
        raise InvalidOption("delays", delays, "a list of seconds with at least one entry")
    for delay in delays:
        _require_number("delays", delay, 0.0, LONGEST_DELAY_S)
    return tuple(float(delay) for delay in delays)


RATE_LIMITED_BASE_S = 60.0
BY_POLICY = re.compile(rb'\s*\{\s*"by_policy"\s*:\s*true\s*\}\s*')
"""In place of a job's own policy, written by `enqueue_v1` for a job without id, attempts and policy: one enqueued from
SQL, which does not know what the application's code and settings say. Older workers read it as no policy."""
UNSTORABLE_RESULT = "unstorable_result"
NEWER_CODE = Retry(base_s=1.0, cap_s=30.0)
"""How long a job waits that newer code has to run. A worker that has it finds the job within the cap."""


class Policy(Struct, frozen=True, kw_only=True):
    """The retry policies that stand behind the one an enqueue call may carry."""

    attempts: int | None = None
    """The task's number of attempts, where it is given beside its policy."""
    task: Retry | None = None
    queue: Retry | None = None
    by_class: Mapping[ErrorClass, Retry] = {}
    app: Retry = Retry()
    missing_data_s: float = 1_800.0
    """When a job that misses data runs again, unless it says when; the longest pause of one without a principal."""
    newer_code_s: float = 86_400.0
    """How long a job waits for newer code before it is dead."""
    retry_after_spread: float = 0.1
    """How much later than asked, at most: jobs that are given the same instant must not all return in it."""
    longest_retry_after_s: float = 86_400.0

    def max_attempts(self, call: Retry | None = None) -> int:
        """How many attempts a new job gets: the first policy that says so decides."""
        if call is not None and call.max_attempts is not None:
            return call.max_attempts
        if self.attempts is not None:
            return self.attempts
        for retry in (self.task, self.queue, self.app):
            if retry is not None and retry.max_attempts is not None:
                return retry.max_attempts
        return DEFAULT_MAX_ATTEMPTS

    def after(self, asked_s: float, fraction: float) -> float:
        """The delay where the other side said how long to wait."""
        return min(asked_s, self.longest_retry_after_s) * (1.0 + self.retry_after_spread * fraction)

    def retry_for(self, call: Retry | None, error_class: ErrorClass) -> Retry:
        """Whose delays a failure takes."""
        if error_class == "rate_limited":
            slow = self.by_class.get("rate_limited")
            return slow or Retry(base_s=RATE_LIMITED_BASE_S, cap_s=self.app.cap_s, jitter=self.app.jitter)
        return call or self.task or self.queue or self.by_class.get(error_class, self.app)


def decide(
    lease: Lease,
    exc: BaseException,
    policy: Policy,
    classifier: Classifier,
    *,
    now: datetime,
    fraction: float,
    ran_s: float | None,
) -> Outcome:
    """The outcome of an attempt that ended with `exc`."""
    exc = _alone(exc)
    if isinstance(exc, LeaseLost):
        return Released(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, ran_s=ran_s)
    if isinstance(exc, Suspended):
        return Snoozed(
            seq=lease.seq,
            attempt=lease.attempt,
            claim_no=lease.claim_no,
            ran_s=ran_s,
            delay_s=_storable_delay_s(exc.delay_s),
            suspension=Suspension(n=exc.n, name=exc.name, signal=exc.signal, key=exc.key),
        )
    if isinstance(exc, AttemptCancelled):
        return Cancelled(
            seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, ran_s=ran_s, reason=safe_str(exc) or None
        )
    if isinstance(exc, Cancel):
        return Cancelled(
            seq=lease.seq,
            attempt=lease.attempt,
            claim_no=lease.claim_no,
            ran_s=ran_s,
            reason=safe_str(exc.reason) or None,
        )
    if isinstance(exc, Snooze):
        if math.isfinite(exc.seconds):
            return Snoozed(
                seq=lease.seq,
                attempt=lease.attempt,
                claim_no=lease.claim_no,
                ran_s=ran_s,
                delay_s=_storable_delay_s(exc.seconds),
            )
        exc = InvalidOption("Snooze", exc.seconds, "a number of seconds")
    if isinstance(exc, NeedsNewerCode):
        return _put_off(lease, exc, NEWER_CODE.delay_s(lease.attempt, fraction), give_up_s=policy.newer_code_s)
    if isinstance(exc, PutOff):
        pause = Retry(base_s=1.0, cap_s=policy.missing_data_s)
        return _put_off(lease, exc, pause.delay_s(lease.attempt, fraction), ran_s=ran_s)
    if isinstance(exc, UnreadablePayload):
        unreadable = failure(exc, "non_retryable", lease.type)
        return Died(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, failure=unreadable, charged=False)
    error_class = classifier.classify(exc)
    what = failure(exc, error_class, lease.type)
    if not may_retry(lease, error_class, policy):
        return Died(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, ran_s=ran_s, failure=what)
    delay_s = asked_delay_s(exc, policy, now, fraction)
    return retried(lease, what, policy, asked_s=delay_s, fraction=fraction, ran_s=ran_s)


def may_retry(lease: Lease, error_class: ErrorClass, policy: Policy) -> bool:
    """Whether an attempt that failed now runs again: its failure can pass, and it has attempts left."""
    return error_class != "non_retryable" and lease.attempts + 1 < max_attempts_of(lease, policy)


def retried(
    lease: Lease, what: Failure, policy: Policy, *, asked_s: float | None, fraction: float, ran_s: float | None
) -> Retried:
    """A failed attempt that runs again: after `asked_s`, else by the policies."""
    delay_s = asked_s
    if delay_s is None:
        retry = policy.retry_for(_given_at_enqueue(lease), what.error_class)
        delay_s = retry.delay_s(lease.attempts + 1, fraction)
    return Retried(
        seq=lease.seq,
        attempt=lease.attempt,
        claim_no=lease.claim_no,
        ran_s=ran_s,
        failure=what,
        delay_s=_storable_delay_s(delay_s),
    )


def _put_off(
    lease: Lease, exc: BaseException, delay_s: float, *, give_up_s: float | None = None, ran_s: float | None = None
) -> Snoozed:
    """Nothing is wrong with the job: what it needs is not here. The pauses grow with the number of its claims."""
    return Snoozed(
        seq=lease.seq,
        attempt=lease.attempt,
        claim_no=lease.claim_no,
        ran_s=ran_s,
        delay_s=delay_s,
        recorded=False,
        failure=failure(exc, "retryable", lease.type),
        give_up_s=give_up_s,
    )


def completed(lease: Lease, result: object, ran_s: float | None, *, limits: ScanLimits = LIMITS) -> Outcome:
    """The outcome of an attempt that returned; one whose result cannot be stored died, for it would do so again."""
    if result is None:
        return Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, ran_s=ran_s)
    try:
        text = encode_result(result, limits=limits)
    except UnstorableResult as error:
        message = safe_str(error)
        what = described_failure(UNSTORABLE_RESULT, message, "non_retryable", lease.type)
        return Died(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, ran_s=ran_s, failure=what)
    return Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, ran_s=ran_s, result=text)


def _alone(exc: BaseException) -> BaseException:
    """The one exception inside a group of one: a task group must not hide what its task said.

    Of several steps that wait side by side the first stands for all: the others wait when their turn comes.
    """
    while isinstance(exc, BaseExceptionGroup):
        waiting = [one for one in exc.exceptions if isinstance(one, Suspended)]
        if len(exc.exceptions) > 1 and len(waiting) < len(exc.exceptions):
            break
        exc = min(waiting, key=lambda one: one.n) if waiting else exc.exceptions[0]
    return exc


def asked_delay_s(exc: BaseException, policy: Policy, now: datetime, fraction: float) -> float | None:
    """The delay the failure itself asks for."""
    if isinstance(exc, MissingData):
        if exc.retry_at is None:
            return policy.missing_data_s
        at = exc.retry_at if exc.retry_at.tzinfo else exc.retry_at.replace(tzinfo=UTC)
        return (at - now).total_seconds()
    asked = retry_after(exc, now)
    return None if asked is None else policy.after(asked, fraction)


def max_attempts_of(lease: Lease, policy: Policy) -> int:
    """The job's own number; for one enqueued by SQL without a number, that of its task, queue or application here."""
    if lease.retry is not None and BY_POLICY.fullmatch(bytes(lease.retry)):
        return policy.max_attempts()
    return lease.max_attempts


def _given_at_enqueue(lease: Lease) -> Retry | None:
    if lease.retry is None:
        return None
    try:
        return Retry.parse(lease.retry)
    except InvalidOption:
        # Written by newer code or straight by SQL: the job still retries, by the next policy in line.
        return None


def _storable_delay_s(delay_s: float) -> float:
    return min(max(delay_s, 0.0), LONGEST_DELAY_S)
