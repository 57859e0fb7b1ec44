"""Resources for tasks: opened when a job first asks, closed when the job, or the worker, ends.

    @app.resource
    async def session() -> AsyncIterator[Session]:
        async with Session(await engine()) as session:
            yield session

    @app.task
    async def send(user_id: int) -> None:
        db = await session()

A resource is asked for inside the task, not passed as a parameter: parameters are the job's payload and nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, get_args, overload

from fairlane.errors import InvalidOption

if TYPE_CHECKING:
    from fairlane.client.scopes import Scope

T = TypeVar("T")

ResourceScope = Literal["job", "worker"]
"""job: one for each attempt, fresh. worker: one for each worker process, shared by its jobs."""

job_scope: ContextVar[Scope | None] = ContextVar("fairlane_job_scope", default=None)
worker_scope: ContextVar[Scope | None] = ContextVar("fairlane_worker_scope", default=None)
replacements: ContextVar[dict[Resource[Any], Any]] = ContextVar("fairlane_replacements", default={})  # noqa: B039 - never changed in place


class Resource(Generic[T]):
    """A registered generator function that yields one value and cleans up behind it."""

    def __init__(self, function: Callable[[], Any], scope: ResourceScope) -> None:
        self.function, self.scope = function, scope
        self.name = f"{function.__module__}.{function.__qualname__}"
        self.__doc__ = function.__doc__

    @contextmanager
    def replaced(self, value: T) -> Iterator[T]:
        """Inside the block, everybody who asks gets this value: for tests, with or without a job."""
        token = replacements.set({**replacements.get(), self: value})
        try:
            yield value
        finally:
            replacements.reset(token)

    def _scope(self) -> Scope:
        from fairlane.client.scopes import require_scope

        return require_scope(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, one a {self.scope}>"


class SyncResource(Resource[T]):
    """A resource made of a plain generator function, for any task."""

    def __call__(self) -> T:
        """Its value for the job that runs here; the first call opens it."""
        replaced = replacements.get()
        return cast(T, replaced[self]) if self in replaced else cast(T, self._scope().get(self))

    def open(self) -> Any:
        return contextmanager(self.function)()


class AsyncResource(Resource[T]):
    """A resource made of an async generator function, for `async def` tasks."""

    async def __call__(self) -> T:
        """Its value for the job that runs here; the first call opens it."""
        replaced = replacements.get()
        return cast(T, replaced[self]) if self in replaced else cast(T, await self._scope().aget(self))

    def open(self) -> Any:
        return asynccontextmanager(self.function)()


class ResourceDecorator:
    """What `@app.resource(…)` returns: takes the function."""

    def __init__(self, scope: ResourceScope) -> None:
        if scope not in get_args(ResourceScope):
            raise InvalidOption("scope", scope, f"one of {', '.join(get_args(ResourceScope))}")
        self._scope = scope

    @overload
    def __call__(self, function: Callable[[], AsyncIterator[T]], /) -> AsyncResource[T]: ...
    @overload
    def __call__(self, function: Callable[[], Iterator[T]], /) -> SyncResource[T]: ...
    def __call__(self, function: Callable[[], Any], /) -> Any:
        return registered(function, self._scope)


def registered(function: Callable[[], Any], scope: ResourceScope) -> Resource[Any]:
    is_async = inspect.isasyncgenfunction(function)
    if not is_async and not inspect.isgeneratorfunction(function):
        raise InvalidOption("resource", function, "a function, plain or async, that yields its value once")
    if any(p.default is p.empty for p in inspect.signature(function).parameters.values()):
        raise InvalidOption(
            f"resource {function.__qualname__}", str(inspect.signature(function)), "no parameters to fill"
        )
    return AsyncResource(function, scope) if is_async else SyncResource(function, scope)


class Resourcing:
    """The verb of `Fairlane` that registers resources."""

    has_resources = False

    @overload
    def resource(self, function: Callable[[], AsyncIterator[T]], /) -> AsyncResource[T]: ...
    @overload
    def resource(self, function: Callable[[], Iterator[T]], /) -> SyncResource[T]: ...
    @overload
    def resource(self, /, *, scope: ResourceScope) -> ResourceDecorator: ...
    def resource(self, function: Callable[[], Any] | None = None, /, *, scope: ResourceScope = "job") -> Any:
        """Register a generator function as a resource, one for each job: `@app.resource`, or `@app.resource(scope="worker")`.

        What stands behind its `yield` runs when the job has ended, however it ended: an exception or a cancellation is raised at the
        `yield` first. A job that returned but whose resource fails to close has failed.
        """
        self.has_resources = True
        decorator = ResourceDecorator(scope)
        return decorator if function is None else decorator(function)
