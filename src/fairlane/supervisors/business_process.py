"""A process in Python, on any store: attempts of one function until one succeeds, driven by a supervisor.

    refund = Process(app, "refund", max_attempts=5)

    @refund.attempt
    async def pay_back(order_id: str) -> None: ...

    refund.kickoff("order-7")            # once for each subject
    refund.facts("order-7")              # Facts(attempts=2, failures=1, succeeded=True, …)
    refund.restart("order-7")            # one that has stopped, or whose supervisor was cancelled

The facts are the jobs themselves, which are never changed: every attempt is a job, and its result says how it ended.
The supervisor is a job, too: it reads the facts (input), decides (compute), enqueues the next attempt, and snoozes
until it looks again (output). A process is known as long as its jobs are kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from fairlane.client.app import Fairlane
from fairlane.client.context import current_job
from fairlane.client.enqueue.options import seconds
from fairlane.core.ids import SYSTEM, SYSTEM_TENANT
from fairlane.core.job import FINAL, Job
from fairlane.core.names import check_key
from fairlane.core.ops import JobFilter
from fairlane.core.payload.storable import safe_str
from fairlane.core.retry import Retry
from fairlane.errors import InvalidOption, NonRetryable, Snooze

F = TypeVar("F", bound=Callable[..., Any])

Decision = Literal["attempt", "wait", "succeeded", "max_attempts_reached", "validation_failed"]


class Facts(NamedTuple):
    """What is known of the process of one subject."""

    attempts: int = 0
    failures: int = 0
    succeeded: bool = False
    refusal: str | None = None
    """Why no further attempt can succeed."""
    errors: tuple[str, ...] = ()
    failures_before: int = 0
    """Of them, those before it was started again, which count no more."""

    def decide(self, max_attempts: int) -> Decision:
        if self.succeeded:
            return "succeeded"
        if self.refusal is not None:
            return "validation_failed"
        if self.failures - self.failures_before >= max_attempts:
            return "max_attempts_reached"
        return "attempt" if self.attempts == self.failures else "wait"


class Process:
    """One kind of process. An attempt that raises has failed; one that raises `NonRetryable` ends the process."""

    def __init__(
        self, app: Fairlane, name: str, *, max_attempts: int = 5, base_s: float = 10.0, cap_s: float = 3600.0
    ) -> None:
        if max_attempts < 1:
            raise InvalidOption("max_attempts", max_attempts, "a whole number from 1 on")
        self.name, self._app, self._max_attempts = name, app, max_attempts
        self._base_s, self._cap_s = seconds("base_s", base_s), seconds("cap_s", cap_s)
        supervise = app.task(name=f"{name}.supervisor", retry=Retry(max_attempts=1_000, base_s=1.0, cap_s=60.0))
        self._supervisor = supervise(self._supervise)
        self._attempt: Any = None

    def attempt(self, function: F) -> F:
        """Decorate the function that makes an attempt; it takes the subject."""
        if self._attempt is not None:
            raise InvalidOption(f"attempt of process {self.name}", function, "one function for each process")
        is_async = inspect.iscoroutinefunction(function)

        async def run_async(subject: str) -> dict[str, Any]:
            try:
                await function(subject)
            except Snooze:
                raise
            except Exception as error:  # noqa: BLE001 - how an attempt ends is a fact
                return _failed(error)
            return {}

        def run(subject: str) -> dict[str, Any]:
            try:
                function(subject)
            except Snooze:
                raise
            except Exception as error:  # noqa: BLE001 - as above
                return _failed(error)
            return {}

        self._attempt = self._app.task(name=f"{self.name}.attempt")(run_async if is_async else run)
        return function

    def kickoff(self, subject: str | int) -> None:
        """Start the process of a subject; one that was started before is left alone."""
        self._started(subject).enqueue(subject=str(subject))

    async def akickoff(self, subject: str | int) -> None:
        await self._started(subject).aenqueue(subject=str(subject))

    def restart(self, subject: str | int, *, tenant: str | int | None = None) -> bool:
        """Start a process again that has stopped: its failures count from now on. False: it runs, or has succeeded."""
        looks = self._jobs(subject, "supervisor", tenant)
        tenants = sorted({look.tenant for look in looks})
        if len(tenants) > 1:
            raise InvalidOption(
                "tenant", tenant, f"one of those that have a process of {subject}: {', '.join(tenants)}"
            )
        attempts = self._jobs(subject, "attempt", tenant)
        if not looks or looks[-1].status not in FINAL or _facts_of(attempts, 0).succeeded:
            return False
        key = f"{self._key(subject)}:again:{looks[-1].seq}"
        owner = SYSTEM if tenants == [SYSTEM_TENANT] else tenants[0]
        again = self._started(subject).using(tenant=owner, idempotency_key=key)
        again.enqueue(subject=str(subject), after=attempts[-1].seq if attempts else 0)
        return True

    def facts(self, subject: str | int, *, tenant: str | int | None = None) -> Facts:
        """What is known; of all tenants unless one is named, or in force."""
        looks = self._jobs(subject, "supervisor", tenant)
        after = msgspec.json.decode(looks[-1].payload, type=_Look).after if looks else 0
        return _facts_of(self._jobs(subject, "attempt", tenant), after)

    def _jobs(self, subject: str | int, part: str, tenant: str | int | None = None) -> list[Job]:
        """Of the process, in their order."""
        jobs, before = list[Job](), None
        where = JobFilter(correlation_id=self._key(subject), type=f"{self.name}.{part}")
        while True:
            page = self._app.jobs.list(where=where, tenant=tenant, before=before, limit=200)
            jobs += page.jobs
            if page.next is None:
                return sorted(jobs, key=lambda job: job.seq)
            before = page.next

    def _supervise(self, subject: str, after: int = 0) -> str:
        """`after`: the last attempt before the process was started again."""
        facts = _facts_of(self._jobs(subject, "attempt", current_job().tenant), after)
        decision = facts.decide(self._max_attempts)
        if decision == "attempt":
            self._work().using(
                correlation_id=self._key(subject), idempotency_key=f"{self._key(subject)}:{facts.attempts + 1}"
            ).enqueue(subject=subject)
        elif decision != "wait":
            return decision
        failures = facts.failures - facts.failures_before
        raise Snooze(min(self._cap_s, self._base_s * 2.0 ** min(failures, 30)))

    def _started(self, subject: str | int) -> Any:
        self._work()
        key = self._key(subject)
        return self._supervisor.using(correlation_id=key, idempotency_key=key)

    def _work(self) -> Any:
        if self._attempt is None:
            raise InvalidOption(f"process {self.name}", None, "an attempt: decorate a function with `@….attempt`")
        return self._attempt

    def _key(self, subject: str | int) -> str:
        return check_key("subject", f"{self.name}:{subject}")


def _facts_of(jobs: list[Job], after: int) -> Facts:
    ended = [
        (job.seq, msgspec.json.decode(job.result or "{}", type=_Ended)) for job in jobs if job.status == "completed"
    ]
    failed = [(seq, end.error) for seq, end in ended if end.error is not None]
    lost = [(job.seq, job.last_error or job.status) for job in jobs if job.status in ("dead", "cancelled")]
    return Facts(
        attempts=len(jobs),
        failures=len(failed) + len(lost),
        succeeded=any(end.error is None for _, end in ended),
        refusal=next((end.error for seq, end in ended if end.is_final and seq > after), None),
        errors=tuple(error for _, error in (*failed, *lost)),
        failures_before=sum(seq <= after for seq, _ in (*failed, *lost)),
    )


class _Look(Struct):
    """The payload of a supervisor's job."""

    after: int = 0


class _Ended(Struct):
    """The result of an attempt's job."""

    error: str | None = None
    is_final: bool = False


def _failed(error: Exception) -> dict[str, Any]:
    return {"error": safe_str(error) or type(error).__name__, "is_final": isinstance(error, NonRetryable)}
