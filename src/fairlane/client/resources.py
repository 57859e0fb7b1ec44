"""Resources for tasks: opened when a job first asks, closed when the job, or the worker, ends.

    @app.resource
    async def session() -> AsyncIterator[Session]:
        async with Session(await engine()) as session:
            yield session

    @app.task
    async def send(user_id: int) -> None:
        db = await session()

A resource is asked for inside the task, not passed as a parameter: parameters are the job's payload and nothing else.
An open resource lives with one attempt or with one worker, and is closed newest first, with the exception that ended
the work.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast, get_args, overload

from fairlane.client.logs import GuardedLogger
from fairlane.core.payload.storable import format_traceback
from fairlane.errors import InvalidOption, NoCurrentJob

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

ResourceScope = Literal["job", "worker"]
"""job: one for each attempt, fresh. worker: one for each worker process, shared by its jobs."""

job_scope: ContextVar[ResourceHolder | None] = ContextVar("fairlane_job_scope", default=None)
worker_scope: ContextVar[ResourceHolder | None] = ContextVar("fairlane_worker_scope", default=None)
replacements: ContextVar[dict[Resource[Any], Any]] = ContextVar(
    "fairlane_replacements",
    default={},  # noqa: B039 - never changed in place
)


class Resource(Generic[T]):
    """A registered generator function that yields one value and then cleans up."""

    def __init__(self, function: Callable[[], Any], scope: ResourceScope) -> None:
        self.function, self.scope = function, scope
        self.name = f"{function.__module__}.{function.__qualname__}"
        self.__doc__ = function.__doc__

    @contextmanager
    def replaced(self, value: T) -> Iterator[T]:
        """Use this value for all callers inside the block: for tests, with or without a job."""
        token = replacements.set({**replacements.get(), self: value})
        try:
            yield value
        finally:
            replacements.reset(token)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, one a {self.scope}>"


class SyncResource(Resource[T]):
    """A resource made of a plain generator function, for any task."""

    def __call__(self) -> T:
        """Its value for the job that runs here; the first call opens it."""
        replaced = replacements.get()
        return cast(T, replaced[self]) if self in replaced else cast(T, require_scope(self).get(self))

    def open(self) -> Any:
        return contextmanager(self.function)()


class AsyncResource(Resource[T]):
    """A resource made of an async generator function, for `async def` tasks."""

    async def __call__(self) -> T:
        """Its value for the job that runs here; the first call opens it."""
        replaced = replacements.get()
        return cast(T, replaced[self]) if self in replaced else cast(T, await require_scope(self).aget(self))

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


logger = GuardedLogger("fairlane.resources")


class ResourceHolder(Protocol):
    """Where open resources live."""

    def get(self, resource: SyncResource[Any]) -> Any: ...

    async def aget(self, resource: AsyncResource[Any]) -> Any: ...


def require_scope(resource: Resource[Any]) -> ResourceHolder:
    """Where a resource that is asked for here lives. Without a worker around the job, all of them live with the job."""
    scope = job_scope.get()
    if resource.scope == "worker":
        scope = worker_scope.get() or scope
    if scope is None:
        raise NoCurrentJob(f"resource {resource.name}")
    return scope


class JobScope:
    """The resources of one attempt."""

    def __init__(self) -> None:
        self._values: dict[Resource[Any], Any] = {}
        self._open: list[tuple[Resource[Any], Any]] = []
        self._lock = threading.RLock()
        self._opening: dict[Resource[Any], asyncio.Lock] = {}
        self._is_closed = False

    def get(self, resource: SyncResource[Any]) -> Any:
        with self._lock:
            if resource not in self._values:
                manager = self._manager(resource)
                self._keep(resource, manager, manager.__enter__())
            return self._values[resource]

    async def aget(self, resource: AsyncResource[Any]) -> Any:
        import asyncio  # Imported here: it doubles the import time of fairlane.

        async with self._opening.setdefault(resource, asyncio.Lock()):
            if resource not in self._values:
                manager = self._manager(resource)
                self._keep(resource, manager, await manager.__aenter__())
            return self._values[resource]

    def close(self, error: BaseException | None) -> None:
        """Close everything; raises an exception of closing only if the work itself raised none."""
        first = error
        while (last := self._last()) is not None:
            resource, manager = last
            try:
                manager.__exit__(*_exit_arguments(first))
            except BaseException as raised:  # noqa: BLE001 - the others still have to be closed
                first = _first_of(first, raised, resource)
        if error is None and first is not None:
            raise first

    async def aclose(self, error: BaseException | None) -> None:
        first = error
        while (last := self._last()) is not None:
            resource, manager = last
            try:
                if isinstance(resource, AsyncResource):
                    await manager.__aexit__(*_exit_arguments(first))
                else:
                    manager.__exit__(*_exit_arguments(first))
            except BaseException as raised:  # noqa: BLE001 - the others still have to be closed
                first = _first_of(first, raised, resource)
        if error is None and first is not None:
            raise first

    def _manager(self, resource: SyncResource[Any] | AsyncResource[Any]) -> Any:
        if self._is_closed:
            raise NoCurrentJob(f"resource {resource.name}")
        return resource.open()

    def _keep(self, resource: Resource[Any], manager: Any, value: Any) -> None:
        self._values[resource] = value
        self._open.append((resource, manager))

    def _last(self) -> tuple[Resource[Any], Any] | None:
        if self._open:
            return self._open.pop()
        self._is_closed = True
        return None


def scoped(function: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
    """Wrap the function in a scope per call, closed in the thread or on the loop that ran it."""

    @wraps(function)
    async def arun(**arguments: Any) -> Any:
        scope = JobScope()
        token = job_scope.set(scope)
        try:
            try:
                result = await function(**arguments)
            except BaseException as error:
                await scope.aclose(error)
                raise
            await scope.aclose(None)
            return result
        finally:
            job_scope.reset(token)

    @wraps(function)
    def run(**arguments: Any) -> Any:
        scope = JobScope()
        token = job_scope.set(scope)
        try:
            try:
                result = function(**arguments)
            except BaseException as error:
                scope.close(error)
                raise
            scope.close(None)
            return result
        finally:
            job_scope.reset(token)

    return arun if is_async else run


def _exit_arguments(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def _first_of(first: BaseException | None, raised: BaseException, resource: Resource[Any]) -> BaseException:
    """The work's own exception is raised; an exception while closing is only logged."""
    if first is None:
        return raised
    if raised is not first:
        logger.warning("resource %s could not be closed\n%s", resource.name, format_traceback(raised))
    return first
