"""Batch tasks: one call of the function runs up to `batch` jobs of one tenant, each settled on its own.

Its parameter is a list with the argument of each job. It returns a list with one entry for each, in the same order: a
result, or an exception, which that job alone has raised; or None. An exception that it raises is raised by every job.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar, cast, overload

from fairlane.client.task import Task

V = TypeVar("V")
R = TypeVar("R")


class SyncBatchTask(Task[[V], R], Generic[V, R]):
    """A batch task made of a plain function."""

    def __call__(self, values: list[V], /) -> Sequence[R | Exception] | None:
        """Run the function directly, without a job."""
        return cast("Sequence[R | Exception] | None", self.definition.function(values))


class AsyncBatchTask(Task[[V], R], Generic[V, R]):
    """A batch task made of an `async def` function."""

    def __call__(self, values: list[V], /) -> Coroutine[Any, Any, Sequence[R | Exception] | None]:
        """Run the function directly, without a job."""
        return cast("Coroutine[Any, Any, Sequence[R | Exception] | None]", self.definition.function(values))


class BatchDecorator:
    """What `@app.task(batch=…)` returns: takes the function."""

    def __init__(self, register: Callable[[Callable[..., Any]], Any]) -> None:
        self._register = register

    @overload
    def __call__(self, function: Callable[[list[V]], Coroutine[Any, Any, None]], /) -> AsyncBatchTask[V, None]: ...
    @overload
    def __call__(
        self, function: Callable[[list[V]], Coroutine[Any, Any, Sequence[R | Exception]]], /
    ) -> AsyncBatchTask[V, R]: ...
    @overload
    def __call__(self, function: Callable[[list[V]], None], /) -> SyncBatchTask[V, None]: ...
    @overload
    def __call__(self, function: Callable[[list[V]], Sequence[R | Exception]], /) -> SyncBatchTask[V, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        return self._register(function)
