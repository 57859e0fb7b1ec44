"""Runs attempts in the caller's thread or on its loop: in isolated processes and in tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

from fairlane.client.admin.breakers import around_by_caller
from fairlane.client.app import Fairlane
from fairlane.client.context import CurrentJob, NoteTaker, StepStore, running
from fairlane.client.hooks import HOOKS_S, Hook
from fairlane.client.logs import structlog_binder
from fairlane.client.signature import entries_of
from fairlane.client.steps import arun_steps, run_steps
from fairlane.client.workflows import needs_results, with_results
from fairlane.core.job import Lease
from fairlane.core.outcome import Outcome
from fairlane.errors import AttemptInterrupted
from fairlane.worker.attempts import PreparedTask, log_hook


class DirectRun(NamedTuple):
    """How an attempt ended that was run by its caller, unsettled."""

    outcome: Outcome
    error: BaseException | None
    """What it raised."""


def run_directly(
    app: Fairlane,
    lease: Lease,
    notes: NoteTaker | None = None,
    steps: StepStore | None = None,
    before_hooks: Callable[[Outcome], None] = lambda _: None,
) -> DirectRun:
    """Run one leased attempt in this thread, an `async def` on a loop of its own.

    `before_hooks` gets the outcome before the hooks that learn of it are called, if there are any.
    """
    return run_call_directly(app, [lease], notes, steps, before_hooks)[0]


def run_call_directly(
    app: Fairlane,
    leases: Sequence[Lease],
    notes: NoteTaker | None = None,
    steps: StepStore | None = None,
    before_hooks: Callable[[Outcome], None] = lambda _: None,
) -> list[DirectRun]:
    """The same for one attempt, or for several of a batch task in one call."""
    call = _DirectCall(app, leases, notes, steps)
    with call.deciding():
        for attempt in call.attempts:
            with attempt.failing():
                lease = attempt.lease
                if lease.headers and needs_results(lease):
                    lease = run_steps(app.runtime.access, with_results(lease, app.runtime.tasks))
                attempt.arguments = call.task.decode(lease)
        if call.read:
            with call.running() as job:
                call.returned = _call(call.task, job, call.arguments())
    for attempt in call.attempts:
        if attempt.hooks:
            before_hooks(attempt.outcome)
        for hook in attempt.hooks:
            with attempt.hooked(hook) as job:
                asyncio.run(hook.call(job, attempt.ended)) if hook.is_async else hook.call(job, attempt.ended)
    return call.runs()


async def arun_call_directly(app: Fairlane, leases: Sequence[Lease], steps: StepStore | None = None) -> list[DirectRun]:
    """The same on the running loop; plain functions run in a thread."""
    call = _DirectCall(app, leases, None, steps)
    task = call.task
    with call.deciding():
        for attempt in call.attempts:
            with attempt.failing():
                lease = attempt.lease
                if lease.headers and needs_results(lease):
                    lease = await arun_steps(app.runtime.access, with_results(lease, app.runtime.tasks))
                attempt.arguments = task.decode(lease)
        if call.read:
            with call.running() as job:
                if task.is_async:
                    call.returned = await task.function(**call.arguments())
                else:
                    run = partial(asyncio.to_thread, task.function, **call.arguments())
                    call.returned = await (run() if task.outer is None else task.outer.arun(job, run))
    for attempt in call.attempts:
        for hook in attempt.hooks:
            with attempt.hooked(hook) as job:
                run = partial(hook.call, job, attempt.ended)
                await (run() if hook.is_async else asyncio.to_thread(run))
    return call.runs()


def _call(task: PreparedTask, job: CurrentJob, arguments: dict[str, Any]) -> Any:
    if task.is_async:
        return (task.run_here or asyncio.run)(task.function(**arguments))
    if task.outer is None:
        return task.function(**arguments)
    # In a thread, as in a worker: on the thread of the hooks' loop a plain function could start no loop of its own.
    return asyncio.run(task.outer.arun(job, partial(asyncio.to_thread, task.function, **arguments)))


class _DirectAttempt:
    """One attempt of a call, and how it ended."""

    outcome: Outcome

    def __init__(self, call: _DirectCall, lease: Lease) -> None:
        self.lease, self._call = lease, call
        self.arguments: dict[str, Any] | None = None
        """None: its payload cannot be read."""
        self.result: object = None
        self.error: BaseException | None = None
        self.hooks: tuple[Hook, ...] = ()
        self.ended: Any = None

    @contextmanager
    def failing(self) -> Iterator[None]:
        """What the block raises is this attempt's error."""
        try:
            yield
        except (Exception, AttemptInterrupted, SystemExit, GeneratorExit) as error:  # noqa: BLE001 - as in a slot
            self.error = error

    def decide(self, ran_s: float) -> None:
        task = self._call.task
        if self.error is not None:
            self.outcome = task.raised(self.lease, self.error, ran_s)
        else:
            self.outcome = task.returned(self.lease, self.result, ran_s)
        self.hooks, self.ended = task.ended(self.outcome, self.result, self.error)

    @contextmanager
    def hooked(self, hook: Hook) -> Iterator[CurrentJob]:
        """Log what one of `hooks` raises in the block: it does not change the outcome."""
        try:
            with self._call.as_current(self.lease, HOOKS_S) as job, self._call.on_log_lines(job):
                yield job
        except (Exception, AttemptInterrupted, SystemExit, GeneratorExit) as error:  # noqa: BLE001 - as in a slot
            log_hook(self.lease, hook, error)


class _DirectCall:
    """What both ways to run attempts directly share."""

    def __init__(
        self, app: Fairlane, leases: Sequence[Lease], notes: NoteTaker | None, steps: StepStore | None
    ) -> None:
        self.task = PreparedTask(app, app.tasks[leases[0].type])
        self._runtime, self._notes, self._steps = app.runtime, notes, steps
        self.attempts = [_DirectAttempt(self, lease) for lease in leases]
        self.returned: Any = None

    @property
    def read(self) -> list[_DirectAttempt]:
        """The attempts whose payload can be read: they run."""
        return [attempt for attempt in self.attempts if attempt.arguments is not None]

    def arguments(self) -> dict[str, Any]:
        given = [attempt.arguments or {} for attempt in self.read]
        name = self.task.argument
        return given[0] if self.task.batch is None else {name: [arguments[name] for arguments in given]}

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Turn what the block does into outcomes, as a slot does."""
        monotonic = self._runtime.clock.monotonic
        began_s, is_batch = monotonic(), self.task.batch is not None
        try:
            yield
            entries = entries_of(self.task.name, self.returned, len(self.read)) if is_batch else (self.returned,)
        except (Exception, AttemptInterrupted, SystemExit, GeneratorExit) as error:  # noqa: BLE001 - a runner: as in a slot
            for attempt in self.read:
                attempt.error = error
        else:
            for attempt, entry in zip(self.read, entries, strict=False):
                if is_batch and isinstance(entry, BaseException):
                    attempt.error = entry
                else:
                    attempt.result = entry
        for attempt in self.attempts:
            attempt.decide(monotonic() - began_s)

    @contextmanager
    def running(self) -> Iterator[CurrentJob]:
        with ExitStack() as around:
            timeout_s, read = self.task.timeout_s(self.read[0].lease), self.read
            job = around.enter_context(self.as_current(read[0].lease, timeout_s))
            if self.task.batch is None:
                job.step_store = self._steps
            else:
                jobs = (job, *(self._job(attempt.lease, timeout_s) for attempt in read[1:]))
                for each in jobs:
                    each.batch = jobs
            around.enter_context(around_by_caller(self.task.breaker))
            around.enter_context(self.on_log_lines(job))
            yield job

    @contextmanager
    def on_log_lines(self, job: CurrentJob) -> Iterator[None]:
        bind = structlog_binder(is_wanted=self._runtime.settings.log_context)
        unbind = None if bind is None else bind(job)
        try:
            yield
        finally:
            if unbind is not None:
                unbind()

    def runs(self) -> list[DirectRun]:
        return [DirectRun(attempt.outcome, attempt.error) for attempt in self.attempts]

    def as_current(self, lease: Lease, timeout_s: float) -> AbstractContextManager[CurrentJob]:
        return running(self._job(lease, timeout_s))

    def _job(self, lease: Lease, timeout_s: float) -> CurrentJob:
        clock = self._runtime.clock
        until_s = clock.monotonic() + timeout_s
        return CurrentJob(self.task.shown(lease), self._notes, clock, until_s, runtime=self._runtime)
