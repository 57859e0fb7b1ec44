"""Durable steps inside a job: what has run is remembered, and a later attempt of the job does not repeat it.

    @app.task
    def order(order_id: int) -> str:
        charge = step("charge", charge_card, order_id)           # runs once, remembered under the lease
        sleep(days=3)                                            # gives the slot back, charges no attempt
        paid = wait_for("paid", key=order_id, timeout=86_400)    # goes on when app.signals.emit("paid", …) is called
        return step("ship", ship, order_id, paid["method"])

In `async def` tasks: `await astep(…)`, `await asleep(…)`, `await await_for(…)`. A job that continues runs its function
from the top: recorded steps return what they returned, everything between them runs again.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

import msgspec

from fairlane.client.admin.signals import signal_key
from fairlane.client.context import CurrentJob, StepStore, current_job
from fairlane.client.enqueue.options import retry_policy, seconds as span_s
from fairlane.client.signature import result_reader, type_reader
from fairlane.client.steps import Steps, arun_steps, ask, run_steps
from fairlane.core.job import StepKind, StepRecord
from fairlane.core.names import check_key, check_signal_name
from fairlane.core.ops import ReadSteps, RecordStep, TakeSignal
from fairlane.core.payload.storable import UnstorableResult, encode_result
from fairlane.core.retry import Retry
from fairlane.errors import (
    InvalidOption,
    InvalidState,
    LeaseLost,
    NoCurrentJob,
    NonRetryable,
    SignalTimedOut,
    StepMismatch,
    Suspended,
    TaskVerdict,
)

if TYPE_CHECKING:
    import asyncio

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")

MAX_STEPS = 1_000
"""Of one job: each attempt that continues reads all of them."""
LONGEST_PAUSE_S = 1.0
"""Between two tries of a step a thread looks this often whether it should stop."""

_in_step: ContextVar[str | None] = ContextVar("fairlane_step", default=None)


class StepLog:
    """The durable steps of one attempt: those that are recorded, and the number of the next."""

    def __init__(self, job: CurrentJob, store: StepStore) -> None:
        self._job, self.store = job, store
        lease = job.lease
        self._attempt: dict[str, Any] = {"worker": store.worker, "seq": lease.seq, "attempt": lease.attempt}
        self._attempt["claim_no"] = lease.claim_no
        self._known: dict[int, StepRecord] | None = {} if lease.attempt == 1 else None
        """None: not read yet. A first attempt has none behind it."""
        self._last = 0
        self._lock = threading.Lock()
        self._suspended: Suspended | None = None
        self._calls: dict[asyncio.Future[None], asyncio.Task[Any] | None] = {}
        """Of steps that run now on the event loop: the coroutine that called one and runs it itself."""
        self._branches: set[asyncio.Task[Any]] = set()
        """Coroutines that have made steps side by side with others."""

    @property
    def records(self) -> tuple[StepRecord, ...]:
        return tuple(self._known[n] for n in sorted(self._known)) if self._known else ()

    def next(self) -> int:
        """The number of the step that begins: by the order of the calls."""
        if (outer := _in_step.get()) is not None:
            raise InvalidOption("step", outer, "no other step inside it: a recorded step is not entered again")
        self._check()
        if self._calls or self._branches:
            self._check_branch()
        with self._lock:
            self._last += 1
            if self._last > MAX_STEPS:
                raise NonRetryable(f"a job has at most {MAX_STEPS} durable steps: continue in another job")
            return self._last

    def _check(self) -> None:
        if self._suspended is not None:
            raise self._suspended  # its code has caught what it must not, or steps side by side with this one wait
        self._job.check()

    def _check_branch(self) -> None:
        """Refuse a second step of a coroutine while others make theirs: those that are recorded do not wait, so in the
        next attempt it would have the number, and the result, of another."""
        task = _current_task()
        if task in self._branches:
            raise NonRetryable(
                "a coroutine that runs side by side with others makes a second durable step: the steps would come in "
                "another order when the job continues. Gather calls of astep() in the task's own function instead, or "
                "make each branch a job of a workflow"
            )
        others = {other for other in self._calls.values() if other is not None and other is not task}
        if task is not None and others:
            self._branches |= {task, *others}

    @contextmanager
    def calling(self, caller: asyncio.Task[Any] | None) -> Iterator[None]:
        """A step runs meanwhile, unless one side by side with it has ended the attempt."""
        from asyncio import get_running_loop  # Imported here: it doubles the import time of fairlane.

        self._check()
        ended = get_running_loop().create_future()
        self._calls[ended] = caller if caller is _current_task() else None
        try:
            yield
        finally:
            del self._calls[ended]
            ended.set_result(None)

    async def arun(self, steps: Steps[T]) -> T:
        """Run a sleep or a wait. The attempt ends when the steps side by side with it have: none runs beside the next
        attempt, which would call it again."""
        try:
            return await arun_steps(self.store, steps)
        except Suspended:
            if self._calls:
                from asyncio import wait

                await wait(self._calls)
            raise

    def recorded(self, n: int, kind: StepKind, name: str, key: str = "") -> Steps[StepRecord | None]:
        """Step `n` if an attempt has recorded it; raises if that was another step."""
        if self._known is None:
            answer = yield from ask(ReadSteps(**self._attempt))
            if not answer.accepted:
                raise LeaseLost
            self._known = {step.n: step for step in answer.steps}
        found = self._known.get(n)
        if found is not None and (found.kind, found.name, found.key) != (kind, name, key):
            raise StepMismatch(n, _called(found.kind, found.name, found.key), _called(kind, name, key))
        return found

    def record(self, n: int, name: str, result: object, ran_s: float) -> Steps[StepRecord]:
        try:
            text = None if result is None else encode_result(result)
        except UnstorableResult as error:
            raise NonRetryable(f'step {n} "{name}" ran, but its result cannot be stored: {error}') from error
        answer = yield from ask(RecordStep(**self._attempt, n=n, name=name, result=text, ran_s=ran_s))
        return self._keep(answer.accepted, answer.step)

    def take_signal(self, n: int, name: str, key: str, timeout_s: float) -> Steps[StepRecord]:
        answer = yield from ask(TakeSignal(**self._attempt, n=n, name=name, key=key))
        if answer.accepted and answer.step is None:
            raise self._suspend(n, name, timeout_s if answer.left_s is None else answer.left_s, signal=True, key=key)
        return self._keep(answer.accepted, answer.step)

    def end_sleep(self, n: int, found: StepRecord | None, delay_s: float) -> None:
        """Sleep, or the rest of it where the job was brought back early."""
        if found is not None:
            assert found.until is not None
            delay_s = (found.until - self._job.lease.leased_at).total_seconds()
        if found is None or delay_s > 0:
            raise self._suspend(n, "sleep", delay_s)

    def _keep(self, is_accepted: bool, step: StepRecord | None) -> StepRecord:
        if not is_accepted or step is None:
            raise LeaseLost
        assert self._known is not None
        self._known[step.n] = step
        return step

    def _suspend(self, n: int, name: str, delay_s: float, *, signal: bool = False, key: str = "") -> Suspended:
        self._suspended = Suspended(n, name, delay_s, signal=signal, key=key)
        return self._suspended


def log_of(what: str) -> StepLog:
    """The steps of the job that runs here."""
    job = current_job()
    if job.batch:
        raise InvalidState(f"use {what} in", f"job {job.id}", "run by a batch task, together with others")
    if job.step_store is None:
        raise NoCurrentJob(what)
    if job.step_log is None:
        job.step_log = StepLog(job, job.step_store)
    assert isinstance(job.step_log, StepLog)
    return job.step_log


class StepCall:
    """`step(name, function, …)` in plain functions, `astep` in `async def`; `using` gives it a retry policy."""

    __slots__ = ("_retry",)

    def __init__(self, retry: Retry | None = None) -> None:
        self._retry = retry

    def __repr__(self) -> str:
        name = "astep" if isinstance(self, AsyncStep) else "step"
        using = "" if self._retry is None else f".using(retry={self._retry!r})"
        return f"{name}{using}(name, function, *args, **kwargs)"

    def _pause_s(self, error: Exception, tries: int, store: StepStore) -> float | None:
        """How long to wait before the next try; None: there is none."""
        retry = self._retry
        if retry is None or tries >= (retry.max_attempts or 1) or isinstance(error, TaskVerdict):
            return None
        if store.classify(error) == "non_retryable":
            return None
        return retry.delay_s(tries, store.fraction())


class SyncStep(StepCall):
    __slots__ = ()

    def using(self, *, retry: Retry) -> SyncStep:
        """The same with a retry policy: the step is tried again here, in its slot, before the attempt fails.

        `max_attempts` counts its tries; without it there is one.
        """
        return SyncStep(retry_policy(retry))

    def __call__(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function and remember what it returned, as JSON; in a later attempt of the job return that.

        At least once: between the call and the record a crash makes the next attempt call it again.
        """
        if inspect.iscoroutinefunction(function) or _is_on_loop():
            raise InvalidOption("step", name, "`await astep(…)` in async code: it would block the event loop")
        log, checked = log_of("step()"), _step_name(name)
        n, job = log.next(), current_job()
        found = run_steps(log.store, log.recorded(n, "call", checked))
        if found is None:
            found = self._run(log, job, n, checked, functools.partial(function, *args, **kwargs))
        result: T = _result(found, function)
        return result

    def _run(self, log: StepLog, job: CurrentJob, n: int, name: str, call: Callable[[], object]) -> StepRecord:
        tries, store = 0, log.store
        while True:
            tries += 1
            began_s, token = store.monotonic(), _in_step.set(name)
            try:
                result = call()
            except Exception as error:
                if (pause_s := self._pause_s(error, tries, store)) is None:
                    raise
            else:
                return run_steps(store, log.record(n, name, result, store.monotonic() - began_s))
            finally:
                _in_step.reset(token)
            until_s = store.monotonic() + pause_s
            while (left_s := until_s - store.monotonic()) > 0:
                job.check()
                store.sleeper.sleep(min(left_s, LONGEST_PAUSE_S))


class AsyncStep(StepCall):
    __slots__ = ()

    def using(self, *, retry: Retry) -> AsyncStep:
        """The same with a retry policy: the step is tried again here, in its slot, before the attempt fails."""
        return AsyncStep(retry_policy(retry))

    @overload
    def __call__(
        self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def __call__(
        self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...
    def __call__(self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call the function and remember what it returned; a plain function runs in a thread."""
        log, checked = log_of("astep()"), _step_name(name)
        # Numbered by the call, not by who is awaited first: side by side they have the same numbers in each attempt.
        n, call = log.next(), functools.partial(function, *args, **kwargs)
        return self._step(log, n, checked, function, call, _current_task())

    async def _step(
        self,
        log: StepLog,
        n: int,
        name: str,
        function: Callable[..., Any],
        call: Callable[[], Any],
        caller: asyncio.Task[Any] | None,
    ) -> Any:
        with log.calling(caller):
            found = await arun_steps(log.store, log.recorded(n, "call", name))
            tries, store = 0, log.store
            while found is None:
                tries += 1
                began_s, token = store.monotonic(), _in_step.set(name)
                try:
                    if inspect.iscoroutinefunction(function):
                        result = await call()
                    else:
                        import asyncio  # Imported here: it doubles the import time of fairlane.

                        result = await asyncio.to_thread(call)
                        result = await result if inspect.isawaitable(result) else result
                except Exception as error:
                    if (pause_s := self._pause_s(error, tries, store)) is None:
                        raise
                    await store.sleeper.asleep(pause_s)
                else:
                    found = await arun_steps(store, log.record(n, name, result, store.monotonic() - began_s))
                finally:
                    _in_step.reset(token)
        return _result(found, function)


step = SyncStep()
astep = AsyncStep()


def sleep(seconds: float | timedelta = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0) -> None:
    """Give the slot back and continue behind this point after the time; no attempt is charged."""
    log = log_of("sleep()")
    run_steps(log.store, _sleep(log, _total_s(seconds, minutes, hours, days)))


async def asleep(
    seconds: float | timedelta = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
) -> None:
    log = log_of("asleep()")
    await log.arun(_sleep(log, _total_s(seconds, minutes, hours, days)))


def _sleep(log: StepLog, delay_s: float) -> Steps[None]:
    n = log.next()
    log.end_sleep(n, (yield from log.recorded(n, "sleep", "sleep")), delay_s)


def _total_s(seconds: float | timedelta, minutes: float, hours: float, days: float) -> float:
    parts = (("minutes", minutes, 60.0), ("hours", hours, 3600.0), ("days", days, 86_400.0))
    return span_s("sleep", span_s("seconds", seconds) + sum(span_s(name, given) * unit for name, given, unit in parts))


@overload
def wait_for(
    name: str, *, timeout: float | timedelta, key: str | int | None = None, default: Any = ..., type: None = None
) -> Any: ...
@overload
def wait_for(name: str, *, timeout: float | timedelta, key: str | int | None = None, type: type[T]) -> T: ...
@overload
def wait_for(
    name: str, *, timeout: float | timedelta, key: str | int | None = None, default: D, type: type[T]
) -> T | D: ...
def wait_for(
    name: str, *, timeout: float | timedelta, key: str | int | None = None, default: Any = ..., type: Any = None
) -> Any:
    """Give the slot back until `app.signals.emit(name, …)` is called for this tenant and key; returns its data.

    A signal that was emitted before, and that this job has not had, counts. After `timeout` it returns `default`, or
    raises `SignalTimedOut`. The data is plain JSON values, or read as `type`. No attempt is charged.
    """
    log = log_of("wait_for()")
    found = run_steps(log.store, _wait(log, check_signal_name(name), signal_key(key), timeout))
    return _signal_data(found, default, type)


@overload
def await_for(
    name: str, *, timeout: float | timedelta, key: str | int | None = None, default: Any = ..., type: None = None
) -> Coroutine[Any, Any, Any]: ...
@overload
def await_for(
    name: str, *, timeout: float | timedelta, key: str | int | None = None, type: type[T]
) -> Coroutine[Any, Any, T]: ...
@overload
def await_for(
    name: str, *, timeout: float | timedelta, key: str | int | None = None, default: D, type: type[T]
) -> Coroutine[Any, Any, T | D]: ...
def await_for(
    name: str, *, timeout: float | timedelta, key: str | int | None = None, default: Any = ..., type: Any = None
) -> Coroutine[Any, Any, Any]:
    """`wait_for` in `async def` tasks."""
    log = log_of("await_for()")
    steps = _wait(log, check_signal_name(name), signal_key(key), timeout)

    async def wait() -> Any:
        return _signal_data(await log.arun(steps), default, type)

    return wait()


def _wait(log: StepLog, name: str, key: str, timeout: float | timedelta) -> Steps[StepRecord]:
    timeout_s, n = span_s("timeout", timeout), log.next()

    def wait() -> Steps[StepRecord]:
        found = yield from log.recorded(n, "wait", name, key)
        return found if found is not None else (yield from log.take_signal(n, name, key, timeout_s))

    return wait()


def _signal_data(found: StepRecord, default: Any, kind: Any) -> Any:
    if found.signal is None:
        if default is ...:
            raise SignalTimedOut(found.name, found.key)
        return default
    return _read(found, msgspec.json.decode if kind is None else type_reader(kind))


def _result(found: StepRecord, function: Callable[..., Any]) -> Any:
    """What the call returned, as a later attempt reads it: both get the same."""
    return _read(found, result_reader(function))


def _read(found: StepRecord, read: Callable[[str], Any]) -> Any:
    try:
        return read("null" if found.result is None else found.result)
    except msgspec.DecodeError as error:
        what = _called(found.kind, found.name, found.key)
        raise NonRetryable(f"step {found.n} of this job, {what}: its recorded result does not fit: {error}") from None


def _called(kind: StepKind, name: str, key: str) -> str:
    if kind == "sleep":
        return "a sleep"
    if kind == "call":
        return f'"{name}"'
    return f'the wait for "{name}"{f" with the key {key!r}" if key else ""}'


def _step_name(name: object) -> str:
    return check_key("step", name)


def _current_task() -> asyncio.Task[Any] | None:
    """What runs here; None: no event loop runs in this thread."""
    if not _is_on_loop():
        return None
    from asyncio import current_task

    return current_task()


def _is_on_loop() -> bool:
    """Whether an event loop runs in this thread; none does where nothing has imported asyncio."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
