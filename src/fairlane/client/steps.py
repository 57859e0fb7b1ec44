"""Decisions that ask the store in between, written once for sync and async code: a generator yields operations and is sent their answers.

Verbs written once, called in two colours.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from fairlane.client.store_access import StoreAccess
from fairlane.core.ops import Op

T = TypeVar("T")
Steps = Generator[Op[Any], Any, T]


def run_steps(access: StoreAccess, steps: Steps[T]) -> T:
    try:
        op = next(steps)
        while True:
            op = steps.send(access.run(op))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def arun_steps(access: StoreAccess, steps: Steps[T]) -> T:
    try:
        op = next(steps)
        while True:
            op = steps.send(await access.arun(op))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


P = ParamSpec("P")
A = TypeVar("A")


class Ask(NamedTuple, Generic[A, T]):
    """An operation, and how its answer is read for the caller."""

    op: Op[A]
    read: Callable[[A], T]


class HasAccess(Protocol):
    @property
    def access(self) -> StoreAccess: ...


def both(
    ask: Callable[P, Ask[Any, T]],
) -> tuple[Callable[Concatenate[HasAccess, P], T], Callable[Concatenate[HasAccess, P], Coroutine[Any, Any, T]]]:
    """The sync method of a verb and its async twin."""

    @wraps(ask)
    def run(self: HasAccess, /, *args: P.args, **kwargs: P.kwargs) -> T:
        asked = ask(*args, **kwargs)
        return asked.read(self.access.run(asked.op))

    @wraps(ask)
    async def arun(self: HasAccess, /, *args: P.args, **kwargs: P.kwargs) -> T:
        asked = ask(*args, **kwargs)
        return asked.read(await self.access.arun(asked.op))

    return run, arun
