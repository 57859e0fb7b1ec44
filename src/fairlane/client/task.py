"""Tasks: registered functions that can be enqueued, and still be called."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, Self, TypeVar, Unpack, cast, overload

from msgspec import Raw

from fairlane.client.context import running
from fairlane.client.definition import Definition
from fairlane.client.enqueuing import Enqueuer
from fairlane.client.handle import Handle
from fairlane.client.options import EnqueueOptions, Options
from fairlane.core.job import Lease
from fairlane.core.versions import Upcast

P = ParamSpec("P")
R = TypeVar("R")


class Bound(Generic[R]):
    """A task with its arguments, checked and ready for `enqueue_many`."""

    __slots__ = ("args", "definition", "options", "payload")

    def __init__(self, definition: Definition[R], options: Options, args: dict[str, Any], payload: Raw) -> None:
        self.definition, self.options, self.args, self.payload = definition, options, args, payload

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bound):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity()[:2])

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.args.items())
        return f"<Bound {self.definition.name}({given})>"

    def _identity(self) -> tuple[str, bytes, Options]:
        return self.definition.name, bytes(self.payload), self.options


class Task(Generic[P, R]):
    """A registered function: `enqueue` makes a job of a call, `using` says how.

    Arguments are stored as JSON under their parameter names and checked against the annotations, at the call and again
    when the job runs. The task sees what JSON carries: an unannotated tuple arrives as a list.
    """

    def __init__(self, definition: Definition[R], enqueuer: Enqueuer, options: Options | None = None) -> None:
        self.definition = definition
        self._enqueuer = enqueuer
        self._options = options or Options()
        self.__wrapped__ = definition.function
        self.__name__ = definition.function.__name__
        self.__qualname__ = definition.function.__qualname__
        self.__module__ = definition.function.__module__
        self.__doc__ = definition.function.__doc__

    @property
    def name(self) -> str:
        """The type of its jobs."""
        return self.definition.name

    def using(self, **options: Unpack[EnqueueOptions]) -> Self:
        """The same task with enqueue options; further `using` calls add to them, None takes one back."""
        changed = self._options.changed(options, self._enqueuer.preparer.priorities)
        return type(self)(self.definition, self._enqueuer, changed)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Make a job of this call. It is stored when this returns, or with the caller's transaction (`using(conn=…)`)."""
        return self._enqueuer.one(self.definition, self._options, self.definition.signature.bind(args, kwargs))

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        bound = self.definition.signature.bind(args, kwargs)
        return await self._enqueuer.aone(self.definition, self._options, bound)

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> Bound[R]:
        """A call to be enqueued with others: `app.enqueue_many([task.bind(1), task.bind(2)])`."""
        bound = self.definition.signature.bind(args, kwargs)
        return Bound(self.definition, self._options, bound, self._enqueuer.preparer.payload(self.definition, bound))

    def upcast(self, from_version: int) -> Callable[[Upcast], Upcast]:
        """Decorate the function that brings a payload of `from_version` to the next one."""
        return self.definition.upcasters.register(self.name, from_version)

    def decode(self, lease: Lease) -> dict[str, Any]:
        """The keyword arguments of one attempt; raises `UnreadablePayload` if they do not fit."""
        return self.definition.decode(lease)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}{self.definition.signature}>"


class SyncTask(Task[P, R]):
    """A task made of a plain function."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here and now, without any job."""
        return cast(R, self.definition.function(*args, **kwargs))

    def run(self, lease: Lease) -> R:
        """Run one attempt of a job here, as the current job."""
        with running(lease):
            return cast(R, self.definition.function(**self.decode(lease)))


class AsyncTask(Task[P, R]):
    """A task made of an `async def` function."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Run the function here and now, without any job."""
        return cast("Coroutine[Any, Any, R]", self.definition.function(*args, **kwargs))

    async def arun(self, lease: Lease) -> R:
        """Run one attempt of a job here, as the current job."""
        with running(lease):
            return cast(R, await self.definition.function(**self.decode(lease)))


class TaskDecorator:
    """What `@app.task(…)` returns: takes the function."""

    def __init__(self, register: Callable[[Callable[..., Any]], Any]) -> None:
        self._register = register

    @overload
    def __call__(  # type: ignore[overload-overlap]  # an async function is the narrower case, and comes first
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        return self._register(function)
