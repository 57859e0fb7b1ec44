"""Runs attempts in the caller's thread or on its loop: in isolated processes and in tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

from fairlane.client.admin.breakers import around_by_caller
from fairlane.client.app import Fairlane
from fairlane.client.context import CurrentJob, NoteTaker, StepStore, running
from fairlane.client.hooks import HOOKS_S, Hook
from fairlane.client.logs import structlog_binder
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
    attempt = _DirectAttempt(app, lease, notes, steps)
    with attempt.deciding(), attempt.running() as job:
        if lease.headers and needs_results(lease):
            lease = run_steps(app.runtime.access, with_results(lease))
        attempt.result = _call(attempt.task, job, attempt.task.decode(lease))
    if attempt.hooks:
        before_hooks(attempt.outcome)
    for hook in attempt.hooks:
        with attempt.hooked(hook) as job:
            asyncio.run(hook.call(job, attempt.ended)) if hook.is_async else hook.call(job, attempt.ended)
    return DirectRun(attempt.outcome, attempt.error)


async def arun_directly(app: Fairlane, lease: Lease, steps: StepStore | None = None) -> DirectRun:
    """The same on the running loop; plain functions run in a thread."""
    attempt = _DirectAttempt(app, lease, None, steps)
    task = attempt.task
    with attempt.deciding(), attempt.running() as job:
        if lease.headers and needs_results(lease):
            lease = await arun_steps(app.runtime.access, with_results(lease))
        arguments = task.decode(lease)
        if task.is_async:
            attempt.result = await task.function(**arguments)
        else:
            call = partial(asyncio.to_thread, task.function, **arguments)
            attempt.result = await (call() if task.outer is None else task.outer.arun(job, call))
    for hook in attempt.hooks:
        with attempt.hooked(hook) as job:
            call = partial(hook.call, job, attempt.ended)
            await (call() if hook.is_async else asyncio.to_thread(call))
    return DirectRun(attempt.outcome, attempt.error)


def _call(task: PreparedTask, job: CurrentJob, arguments: dict[str, Any]) -> Any:
    if task.is_async:
        return asyncio.run(task.function(**arguments))
    if task.outer is None:
        return task.function(**arguments)
    # In a thread, as in a worker: on the thread of the hooks' loop a plain function could start no loop of its own.
    return asyncio.run(task.outer.arun(job, partial(asyncio.to_thread, task.function, **arguments)))


class _DirectAttempt:
    """What both ways to run an attempt directly share."""

    outcome: Outcome

    def __init__(self, app: Fairlane, lease: Lease, notes: NoteTaker | None, steps: StepStore | None) -> None:
        self.task = PreparedTask(app, app.tasks.require(lease.type))
        self._runtime, self._lease, self._notes, self._shown = app.runtime, lease, notes, self.task.shown(lease)
        self._steps = steps
        self.result: object = None
        self.error: BaseException | None = None
        self.hooks: tuple[Hook, ...] = ()
        self.ended: Any = None

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """Turn what the block does into the outcome, as a slot does."""
        monotonic = self._runtime.clock.monotonic
        began_s = monotonic()
        try:
            yield
        except (Exception, AttemptInterrupted, SystemExit, GeneratorExit) as error:  # noqa: BLE001 - a runner: as in a slot
            self.error, self.outcome = error, self.task.raised(self._lease, error, monotonic() - began_s)
        else:
            self.outcome = self.task.returned(self._lease, self.result, monotonic() - began_s)
        self.hooks, self.ended = self.task.ended(self.outcome, self.result, self.error)

    @contextmanager
    def running(self) -> Iterator[CurrentJob]:
        with ExitStack() as around:
            job = around.enter_context(self._as_current(self.task.timeout_s(self._lease)))
            job.step_store = self._steps
            around.enter_context(around_by_caller(self.task.breaker))
            if (bind := structlog_binder(is_wanted=self._runtime.settings.log_context)) is not None:
                around.callback(bind(job))
            yield job

    @contextmanager
    def hooked(self, hook: Hook) -> Iterator[CurrentJob]:
        """Log what one of `hooks` raises in the block: it does not change the outcome."""
        try:
            with self._as_current(HOOKS_S) as job:
                yield job
        except (Exception, AttemptInterrupted, SystemExit, GeneratorExit) as error:  # noqa: BLE001 - as in a slot
            log_hook(self._lease, hook, error)

    def _as_current(self, timeout_s: float) -> AbstractContextManager[CurrentJob]:
        clock = self._runtime.clock
        return running(self._shown, self._notes, clock, clock.monotonic() + timeout_s, runtime=self._runtime)
