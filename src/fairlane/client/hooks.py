"""Hooks around jobs, for the whole application or one task: `before_job`, `around_job`, `after_job`, `on_failure`.

    around (application) ┐
      around (task)      │ inside the attempt: under its timeout, in the task's thread or on its loop
        before …         │
          the task       ┘
    after … | on_failure …   once the outcome is decided, which they cannot change; in HOOKS_S of their own

A task without hooks is run as if there were none: they are put around its function when a worker prepares it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial, wraps
from typing import Any, NamedTuple, TypeVar

from fairlane.client.context import CurrentJob, current_job
from fairlane.client.resources import scoped
from fairlane.core.job import ErrorClass
from fairlane.errors import InvalidOption

HOOKS_S = 10.0
"""How long `after_job` and `on_failure` hooks of one attempt may take together. The job is settled afterwards."""


class FailedAttempt(NamedTuple):
    """How an attempt failed, for `on_failure` hooks."""

    exception: BaseException
    error_class: ErrorClass
    retry_in_s: float | None
    """When it runs again; None: it is dead."""

    @property
    def will_retry(self) -> bool:
        return self.retry_in_s is not None

    @property
    def is_dead(self) -> bool:
        """It failed for the last time and is a dead letter now."""
        return self.retry_in_s is None


BeforeHook = Callable[[CurrentJob], "Coroutine[Any, Any, None] | None"]
AroundHook = Callable[[CurrentJob], "Iterator[None] | AsyncIterator[None]"]
AfterHook = Callable[[CurrentJob, Any], "Coroutine[Any, Any, None] | None"]
FailureHook = Callable[[CurrentJob, FailedAttempt], "Coroutine[Any, Any, None] | None"]

Before = TypeVar("Before", bound=BeforeHook)
Around = TypeVar("Around", bound=AroundHook)
After = TypeVar("After", bound=AfterHook)
OnFailure = TypeVar("OnFailure", bound=FailureHook)

Inner = Callable[[], Awaitable[Any]]


class Hook(NamedTuple):
    """A registered hook."""

    call: Callable[..., Any]
    """For `around_job`: makes the context manager."""
    is_async: bool
    name: str


class Hooks:
    """The hooks of an application, of a task, or of both, each kind in the order in which it runs."""

    def __init__(
        self,
        before: tuple[Hook, ...] = (),
        around: tuple[Hook, ...] = (),
        after: tuple[Hook, ...] = (),
        failure: tuple[Hook, ...] = (),
    ) -> None:
        self.before, self.around, self.after, self.failure = before, around, after, failure

    def copied(self) -> Hooks:
        return Hooks(self.before, self.around, self.after, self.failure)

    def with_task(self, task: Hooks) -> Hooks:
        """The application's hooks and those of one task: the task's are the inner ones."""
        return Hooks(
            self.before + task.before, self.around + task.around, task.after + self.after, task.failure + self.failure
        )

    def only(self, *, is_async: bool) -> Hooks:
        """Those of one colour that run inside the attempt."""
        return Hooks(
            tuple(hook for hook in self.before if hook.is_async is is_async),
            tuple(hook for hook in self.around if hook.is_async is is_async),
        )

    @property
    def is_inside(self) -> bool:
        """Whether any of them runs inside the attempt."""
        return bool(self.before or self.around)

    def run(self, job: CurrentJob, inner: Callable[[], Any], at: int = 0) -> Any:
        """Call `inner` with these hooks, all of them plain, around it."""
        if at == len(self.around):
            for before in self.before:
                before.call(job)
            return inner()
        manager = self.around[at].call(job)
        manager.__enter__()
        try:
            result = self.run(job, inner, at + 1)
        except BaseException as error:
            # What it returns does not count: no hook can make a failed attempt look like one that returned.
            manager.__exit__(type(error), error, error.__traceback__)
            raise
        manager.__exit__(None, None, None)
        return result

    async def arun(self, job: CurrentJob, inner: Inner, at: int = 0) -> Any:
        """The same on an event loop, with hooks of both colours."""
        if at == len(self.around):
            for before in self.before:
                if before.is_async:
                    await before.call(job)
                else:
                    before.call(job)
            return await inner()
        around = self.around[at]
        manager = around.call(job)
        await manager.__aenter__() if around.is_async else manager.__enter__()
        try:
            result = await self.arun(job, inner, at + 1)
        except BaseException as error:
            ended = (type(error), error, error.__traceback__)
            await manager.__aexit__(*ended) if around.is_async else manager.__exit__(*ended)
            raise
        await manager.__aexit__(None, None, None) if around.is_async else manager.__exit__(None, None, None)
        return result

    def wrap(self, function: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        """The task's function with these hooks around it; around a plain function they must be plain."""

        @wraps(function)
        async def arun(**arguments: Any) -> Any:
            return await self.arun(current_job(), partial(function, **arguments))

        @wraps(function)
        def run(**arguments: Any) -> Any:
            return self.run(current_job(), partial(function, **arguments))

        return arun if is_async else run

    def scoped(self) -> Hooks:
        """The same, each `after_job` and `on_failure` hook with resources of its own."""
        after, failure = (
            tuple(hook._replace(call=_scoped(hook)) for hook in hooks) for hooks in (self.after, self.failure)
        )
        return Hooks(self.before, self.around, after, failure)


def _scoped(hook: Hook) -> Callable[..., Any]:
    return lambda job, ended: scoped(partial(hook.call, job, ended), is_async=hook.is_async)()


class HookDecorators:
    """`before_job`, `around_job`, `after_job` and `on_failure` of an application or a task, to be used as decorators.

    A hook runs for jobs of workers that start after it was registered: register hooks where tasks are registered.
    """

    __slots__ = ()

    @property
    def _hooks(self) -> Hooks:
        raise NotImplementedError

    def before_job(self, hook: Before, /) -> Before:
        """Call it before each attempt, with the job. If it raises, the attempt fails as if the task had raised."""
        self._hooks.before += (_read("before_job", hook, "job"),)
        return hook

    def around_job(self, hook: Around, /) -> Around:
        """Run each attempt at its `yield`: a function, plain or async, that takes the job and yields once.

        The exception of the attempt is raised at the `yield`. The hook may raise another instead; it cannot swallow it.
        """
        self._hooks.around += (_read_around(hook),)
        return hook

    def after_job(self, hook: After, /) -> After:
        """Call it after each attempt whose task returned, with the job and the result. What it raises is logged."""
        self._hooks.after = (_read("after_job", hook, "job, result"), *self._hooks.after)
        return hook

    def on_failure(self, hook: OnFailure, /) -> OnFailure:
        """Call it after each attempt that failed, with the job and a `FailedAttempt`. What it raises is logged."""
        self._hooks.failure = (_read("on_failure", hook, "job, failed"), *self._hooks.failure)
        return hook


def _read(kind: str, hook: object, parameters: str) -> Hook:
    is_async = inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(hook, "__call__", None))  # noqa: B004
    yields = inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook)
    if not callable(hook) or yields or not _takes(hook, len(parameters.split(", "))):
        raise InvalidOption(kind, hook, f"a function, plain or async, that takes ({parameters})")
    return Hook(hook, is_async, _name(hook))


def _read_around(hook: object) -> Hook:
    is_async = inspect.isasyncgenfunction(hook)
    if not callable(hook) or not (is_async or inspect.isgeneratorfunction(hook)) or not _takes(hook, 1):
        raise InvalidOption("around_job", hook, "a function, plain or async, that takes (job) and yields once")
    return Hook(asynccontextmanager(hook) if is_async else contextmanager(hook), is_async, _name(hook))


def _takes(hook: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(hook).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True  # written in C: unknown until it is called
    return True


def _name(hook: object) -> str:
    return f"{getattr(hook, '__module__', '')}.{getattr(hook, '__qualname__', type(hook).__qualname__)}".lstrip(".")
